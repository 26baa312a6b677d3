"""The page that shows a search's trace: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rag.admin import search_output
from rag.answers import Answer, Hit, Preview, Step, SubQuery
from rag.report import (
    Html,
    collapsible,
    counted,
    decimals,
    joined,
    one_line,
    page,
    section,
    tag,
    with_tables,
)
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from rag.search.why import SourceTrace

STYLE = Path(__file__).with_name("style.css")
SHOWN_CHARS = 600  # of a hit's text
KEPT = "\n\u200c\u200d"  # lines; and joiners, which scripts need
TITLES = ("Step", "When", "ms", "In → out", "Tokens", "Cost")
WITHOUT_USAGE = 4  # of the columns


def search_report(question: str, answer: Answer, fate: SourceTrace | None = None) -> str:
    """An HTML page of a search's trace, and of what happened to an expected source.

    It has no script and no links. Text of documents and models is escaped.
    """
    queries, steps, previews = trace_sections(answer)
    sections = [
        section("What to know", *_notes(answer.notes)),
        section("Expected", *([_fate(fate)] if fate else [])),
        *(queries, steps),
        section("Hits", *hit_articles(answer)),
        previews,
    ]
    title = f"{label(question)}: trace of a search"
    return page(title, _header(question, answer), sections, style=STYLE.read_text(encoding="utf-8"))


def trace_sections(answer: Answer) -> tuple[Html, Html, Html]:
    """How a search went: its queries, its steps, and the passages after each step."""
    return (
        section("Queries", *_queries(answer)),
        section("Steps", *_stages_table(answer.steps)),
        section("The first passages after each step", *_previews(answer.steps)),
    )


def hit_articles(answer: Answer, address: Callable[[Hit], str | None] = lambda _hit: None) -> list[Html]:
    """An element per hit. Its heading is a link if the hit has an `address`."""
    steps = search_output.rank_steps(answer)
    return [_hit(rank, hit, answer, steps, address(hit)) for rank, hit in enumerate(answer.hits, 1)]


def summary_line(answer: Answer) -> str:
    """The number of hits, with the time, tokens and cost of the search."""
    return " ".join(_took(answer))


def _header(question: str, answer: Answer) -> Html:
    kicker = tag("p", "Trace of a search", class_="kicker")
    heading = tag("h1", label(question), dir="auto")
    return joined([kicker, heading, tag("p", summary_line(answer), class_="lede")])


def _took(answer: Answer) -> Iterator[str]:
    seconds = sum(stage.seconds for stage in answer.steps)
    yield f"{counted(len(answer.hits), 'hit')} in {search_output.milliseconds(seconds)} ms."
    if used := search_output.all_used(answer.steps):
        price = f"; cost: {search_output.cost(used)}" if search_output.cost(used) else ""
        yield f"{counted(used.requests, 'request')} to models; tokens: {search_output.tokens(used)}{price}."
    if answer.context:
        passages = counted(len(answer.context.chunk_ids), "passage")
        yield f"The context holds {passages} in {answer.context.tokens} tokens."


def _notes(notes: Sequence[str]) -> Iterator[Html]:
    if notes:
        yield tag("ul", *(tag("li", one_line(note)) for note in notes), class_="notes")


def _queries(answer: Answer) -> Iterator[Html]:
    """The queries, if they hold more than the question."""
    queries = answer.trace.queries if answer.trace else ()
    if len(queries) > 1 or any(map(search_output.query_details, queries)):
        yield tag("ol", *map(_query, queries), class_="queries")


def _query(query: SubQuery) -> Html:
    texts = (one_line(search_output.query_details(query)), label(query.reason))
    details = (tag("small", text, dir="auto") for text in texts if text)
    return tag("li", tag("span", label(query.text), dir="auto"), *details)


def _hit(
    rank: int, hit: Hit, answer: Answer, steps: Sequence[search_output.RankStep], address: str | None
) -> Html:
    """A hit: its heading, scores, lists, ranks through the stages, and part of its text."""
    badge = tag("span", str(rank), class_="badge")
    parts = joined(_isolated_parts(search_output.heading_parts(hit)))
    heading = tag("h3", badge, tag("a", parts, href=address) if address else parts)
    ranks = _ranks_list(search_output.rank_changes(steps, hit.chunk.id))
    text = tag("blockquote", with_tables(_shown_text(hit)), dir="auto")
    return tag("article", heading, *_facts(hit, answer), ranks, text, class_="hit")


def _isolated_parts(parts: Sequence[str]) -> Iterator[str]:
    """The parts with commas between, each isolated, so that right-to-left text doesn't reorder the others."""
    for at, part in enumerate(parts):
        yield ", " if at else ""
        yield tag("bdi", part)


def _facts(hit: Hit, answer: Answer) -> Iterator[Html]:
    scored = f" in {hit.source.collection}, score {hit.score:.2f}, similarity {decimals(hit.similarity)}"
    yield tag("p", tag("code", f"[{hit.cited}]"), scored, class_="facts")
    trace = answer.trace
    if trace and (listings := trace.listings.get(hit.chunk.id)):
        listed = search_output.listings_text(listings, queries=len(trace.queries))
        yield tag("p", f"Found by {listed}", class_="facts")


def _fate(fate: SourceTrace) -> Html:
    """What happened to a source, with the ranks of its best passage."""
    heading = tag("h3", tag("span", "?", class_="badge asked"), tag("bdi", label(fate.source.title)))
    out = f" Out at {fate.step}." if fate.step else ""
    facts = tag("p", tag("code", f"[{fate.source.id}]"), out, class_="facts")
    sentence = tag("p", one_line(fate.reason), dir="auto")
    return tag(
        "article", heading, facts, sentence, _ranks_list(search_output.changes(fate.ranks)), class_="hit"
    )


def _ranks_list(ranks: Sequence[tuple[str, int | None]]) -> Html:
    items = [tag("li", f"{name} ", tag("b", str(rank or "out"))) for name, rank in ranks]
    return tag("ol", *items, class_="way-of") if items else Html()


def _shown_text(hit: Hit) -> str:
    """The beginning of a hit's text without invisible characters.

    Of joined passages it is the beginning of the best one, unless that fits in after those before it.
    """
    text, passage = hit.text, hit.chunk.text
    start = text.find(passage)  # -1 where only parts of the passage are shown
    if start + len(passage) <= SHOWN_CHARS:
        start = 0
    start = max(start, 0)
    end = start + SHOWN_CHARS
    visible = "".join(c for c in text[start:end] if c.isprintable() or c in KEPT)
    return ("…\n" if start else "") + visible + ("…" if len(text) > end else "")


def _stages_table(stages: Sequence[Step]) -> Iterator[Html]:
    """A row per stage with a bar for when it ran, and warnings below their stage."""
    if not stages:
        return
    seconds = sum(stage.seconds for stage in stages)
    starts = accumulate((stage.seconds for stage in stages), initial=0.0)
    used = search_output.all_used(stages)
    columns = len(TITLES) if used else WITHOUT_USAGE
    rows = [
        _stage(stage, _bar(start, stage.seconds, seconds), columns)
        for stage, start in zip(stages, starts, strict=False)
    ]
    ends = ("", search_output.milliseconds(seconds), "", search_output.tokens(used), search_output.cost(used))
    last = tag("tr", tag("th", "all", scope="row"), *(tag("td", cell) for cell in ends[: columns - 1]))
    head = tag("tr", *(tag("th", title, scope="col") for title in TITLES[:columns]))
    table = tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", last))
    yield tag("div", table, class_="scroll steps", role="region", tabindex=0, aria_label="Steps")


def _stage(stage: Step, bar: Html, columns: int) -> Html:
    failed = stage.status == "failed"
    name = tag(
        "th", stage.name, " failed" if failed else "", scope="row", class_="failed" if failed else None
    )
    cells = (
        search_output.milliseconds(stage.seconds),
        search_output.counts(stage),
        search_output.tokens(stage.usage),
        search_output.cost(stage.usage),
    )
    row = tag("tr", name, tag("td", bar, class_="bar"), *(tag("td", cell) for cell in cells[: columns - 2]))
    return joined([row, *(_warning(warning, columns) for warning in stage.warnings)])


def _warning(text: str, columns: int) -> Html:
    return tag("tr", tag("td", tag("span", f"⚠ {one_line(text)}"), colspan=columns), class_="warned")


def _bar(start: float, seconds: float, of: float) -> Html:
    """A bar at the stage's time within the search."""
    x, width = (f"{100 * part / (of or 1):.2f}%" for part in (start, seconds))
    return tag("svg", tag("rect", x=x, y="0%", width=width, height="100%"), class_="span", aria_hidden="true")


def _previews(stages: Sequence[Step]) -> Iterator[Html]:
    """The first passages after each stage that has any, folded."""
    for stage in stages:
        if stage.preview:
            yield collapsible(f"{stage.name} {search_output.counts(stage)}", _preview_table(stage.preview))


def _preview_table(previews: Sequence[Preview]) -> Html:
    head = tag("tr", *(tag("th", title, scope="col") for title in ("#", "Passage", "Score")))
    rows = [_preview(rank, preview) for rank, preview in enumerate(previews, 1)]
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="hits")


def _preview(rank: int, preview: Preview) -> Html:
    passage = joined([tag("code", f"[{preview.id}] "), tag("span", label(preview.text), dir="auto")])
    return tag("tr", *(tag("td", cell) for cell in (str(rank), passage, f"{preview.score:.2f}")))
