"""The output of `refdesk-admin search`: results, and the trace as lines (--explain) and as a page (--report).

First come the ranks of passages step by step and the words for a trace, which both share.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path

from rag.admin.terminal import echo
from rag.answers import Answer, Hit, Listing, Preview, Step, SubQuery, Trace, Usage
from rag.report import (
    Html,
    collapsible,
    counted,
    decimals,
    joined,
    one_line,
    page,
    section,
    table,
    tag,
    with_tables,
)
from rag.search.reply.reply_parts import page_of
from rag.search.reply.search_reply import HitRecord, SearchReply
from rag.search.reply.untrusted import label
from rag.search.why import SourceTrace
from rag.text.flags import IN_WORDS

UNRANKED = frozenset({"plan", "planner", "multi_query", "embed", "recall"})


@dataclass(frozen=True, slots=True)
class RankStep:
    """The ranks after a step, from 1, by chunk id. A list holds the best rank of all queries."""

    name: str
    ranks: Mapping[str, int]
    is_list: bool = False


def rank_steps(answer: Answer) -> tuple[RankStep, ...]:
    """The steps that rank passages, in order: the lists, if the answer has a trace, then the stages."""
    lists = _lists(answer.trace) if answer.trace else ()
    stages = (
        RankStep(stage.name, {id_: rank for rank, id_ in enumerate(stage.hit_ids, 1)})
        for stage in answer.steps
        if stage.name not in UNRANKED and stage.after == len(stage.hit_ids)
    )
    return (*lists, *stages)


def _lists(trace: Trace) -> Iterator[RankStep]:
    for name in ("dense", "sparse", "exact"):
        in_list = {
            id_: [listing.rank for listing in listings if listing.list == name]
            for id_, listings in trace.listings.items()
        }
        if ranks := {id_: min(of_queries) for id_, of_queries in in_list.items() if of_queries}:
            yield RankStep(f"{name} list", ranks, is_list=True)


def rank_changes(steps: Sequence[RankStep], id_: str) -> list[tuple[str, int | None]]:
    """The stages that changed a passage's rank, with the new rank; None if it dropped out.

    Example: fuse 3, gate 3, rerank 1, dedupe None, limit None -> fuse 3, rerank 1, dedupe None.
    """
    return changes((step.name, step.ranks.get(id_)) for step in steps if not step.is_list)


def changes(ranks: Iterable[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """The ranks that differ from the previous one. The first is compared with None."""
    pairs = pairwise([("", None), *ranks])
    return [after for before, after in pairs if after[1] != before[1]]


def heading_parts(hit: Hit) -> list[str]:
    """The title, section and page of a hit, as far as it has them."""
    path = hit.chunk.section[1:] if hit.chunk.section[:1] == (hit.source.title,) else hit.chunk.section
    page = page_of(hit.source, hit.chunk.page, hit.chunk.page) if hit.chunk.page else ""
    return [part for part in (label(hit.source.title), label(" > ".join(path)), page) if part]


def query_details(query: SubQuery) -> str:
    """A query's details without its text: 'weight 0.70, in handbook, where {"year": 2020}'."""
    parts = [f"weight {query.weight:.2f}"] if query.weight != 1 else []
    if query.collections:
        parts.append(f"in {', '.join(query.collections)}")
    if query.filter is not None:
        parts.append(f"where {label(json.dumps(query.filter, ensure_ascii=False, default=str))}")
    return ", ".join(parts)


def listings_text(listings: Sequence[Listing], *, queries: int) -> str:
    """Example: "dense 3 (0.43), sparse 1 (1.00)"; several queries are numbered."""
    by_query = sorted(listings, key=lambda listing: (listing.query, listing.list))
    parts = []
    for query, of_query in groupby(by_query, key=lambda listing: listing.query):
        places = ", ".join(f"{listing.list} {listing.rank} ({listing.score:.2f})" for listing in of_query)
        parts.append(f"query {query + 1}: {places}" if queries > 1 else places)
    return "; ".join(parts)


def ranks_text(changes: Sequence[tuple[str, int | None]]) -> str:
    """Example: ("fuse", 3), ("rerank", 1), ("limit", None) -> "fuse 3 → rerank 1 → limit out"."""
    return " → ".join(f"{name} {rank or 'out'}" for name, rank in changes)


def all_used(stages: Sequence[Step]) -> Usage | None:
    """The total usage of all stages; None if none is known."""
    used = [stage.usage for stage in stages if stage.usage]
    return sum(used, Usage()) if used else None


def tokens(usage: Usage | None) -> str:
    """Example: "412 in, 96 out"."""
    return f"{usage.input_tokens} in, {usage.output_tokens} out" if usage else ""


def cost(usage: Usage | None) -> str:
    """The cost by the prices in the settings; empty without prices."""
    return f"{usage.cost:.4f}" if usage and usage.cost else ""


def milliseconds(seconds: float) -> str:
    """Example: 0.0123 -> "12.3"."""
    return f"{1000 * seconds:.1f}"


def counts(stage: Step) -> str:
    """The numbers of queries or hits before and after: "30 → 8"."""
    return " → ".join(str(count) for count in (stage.before, stage.after) if count is not None)


WIDTH = 100  # of lines
NUMBERS = frozenset({"MS"})  # columns that align right


def print_results(reply: SearchReply) -> None:
    """Print a reply: each passage below its citation, or all as one text."""
    if reply.context:
        echo(f"{reply.context}\n")
    for number, result in enumerate(reply.results, 1):
        for line in textwrap.wrap(f"{number}. {result.cite_as}", WIDTH, subsequent_indent="   "):
            echo(line, bold=True)
        echo(f"   [{result.id}]  score {result.score:.2f}  {_evidence(result)}")
        if result.also_in:
            places = f"   The same in {', '.join(result.also_in)}."
            echo(textwrap.fill(places, WIDTH, subsequent_indent="   "))
        if result.flags:
            echo(f"   Contains {', '.join(IN_WORDS[flag] for flag in result.flags)}.")
        if result.stale:  # changed or gone
            echo(f"   The file has {result.stale} since it was ingested.")
        for line in [*filter(None, [result.header]), *(result.text or "").splitlines()]:
            wrapped = textwrap.fill(line, WIDTH, initial_indent="   ", subsequent_indent="   ")
            echo(wrapped if line.strip() else "")
        echo()
    for note in reply.notes:
        echo(f"Note: {note}")


def _evidence(result: HitRecord) -> str:
    """The similarity or, in mode exact, the matches and their lines."""
    if not result.matches:
        return f"similarity {decimals(result.similarity)}"
    lines = list(dict.fromkeys(str(match["line"]) for match in result.matches))
    count, on = result.match_count or 0, "line" if len(lines) == 1 else "lines"
    ellipsis = ", …" if count > len(result.matches) else ""
    return f"{count} {'match' if count == 1 else 'matches'} on {on} {', '.join(lines)}{ellipsis}"


def explanation(answer: Answer, fate: SourceTrace | None = None) -> list[str]:
    """The trace of an answer as lines: its queries, stages and hits, and what happened to an expected source.

    The lines hold no control characters. Only rows of the table can be longer than `WIDTH`.
    """
    queries = answer.trace.queries if answer.trace else ()
    steps = rank_steps(answer)
    parts: list[list[str]] = [
        [
            line
            for number, query in enumerate(queries, 1)
            for line in _query(query, f"Query {number}" if len(queries) > 1 else "Query")
        ],
        [*_stages(answer.steps)] if answer.steps else [],
        *([*_hit(rank, hit, answer, steps)] for rank, hit in enumerate(answer.hits, 1)),
        [*_fate(fate)] if fate else [],
    ]
    return [line for part in parts if part for line in (*part, "")][:-1]


def _query(query: SubQuery, name: str) -> Iterator[str]:
    yield from _wrapped_lines(label(query.text), f"{name}: ")
    yield from _wrapped_lines(one_line(query_details(query)))
    yield from _wrapped_lines(label(query.reason))


def _stages(stages: Sequence[Step]) -> Iterator[str]:
    """The stages as a table with warnings below their stages, and without empty columns."""
    titles = ("STAGE", "STATUS", "MS", "BEFORE → AFTER", "TOKENS", "COST")
    rows = [_row(stage.name, stage.status, stage.seconds, counts(stage), stage.usage) for stage in stages]
    rows.append(_row("total", "", sum(stage.seconds for stage in stages), "", all_used(stages)))
    columns = [column for column in zip(titles, *rows, strict=True) if any(column[1:])]
    head, *lines, last = table(list(zip(*columns, strict=True)), right=NUMBERS)
    yield head
    for stage, line in zip(stages, lines, strict=True):
        yield line
        for warning in stage.warnings:
            yield from _wrapped_lines(one_line(warning), " ! ")
    yield last


def _row(name: str, status: str, seconds: float, counted: str, usage: Usage | None) -> tuple[str, ...]:
    return name, status, milliseconds(seconds), counted, tokens(usage), cost(usage)


def _hit(rank: int, hit: Hit, answer: Answer, steps: Sequence[RankStep]) -> Iterator[str]:
    yield from _wrapped_lines(", ".join(heading_parts(hit)), f"{rank}. ")
    yield f"   [{hit.cited}]  score {hit.score:.2f}  similarity {decimals(hit.similarity)}"
    if answer.trace:
        listings = answer.trace.listings.get(hit.chunk.id, ())
        yield from _wrapped_lines(listings_text(listings, queries=len(answer.trace.queries)))
    yield from _wrapped_lines(ranks_text(rank_changes(steps, hit.chunk.id)))


def _fate(fate: SourceTrace) -> Iterator[str]:
    yield from _wrapped_lines(f"{label(fate.source.title)} [{fate.source.id}]:", "Expected ")
    yield from _wrapped_lines(one_line(f"Out at {fate.step}. {fate.reason}" if fate.step else fate.reason))
    yield from _wrapped_lines(ranks_text(changes(fate.ranks)))


def _wrapped_lines(text: str, begins: str = "   ") -> list[str]:
    """The text wrapped into lines; the first starts with `begins`. An empty text has no lines."""
    return textwrap.wrap(text, WIDTH, initial_indent=begins, subsequent_indent="   ")


# The page that shows a search's trace: one self-contained HTML file.

STYLE = Path(__file__).with_name("search_report.css")
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
        section("Expected", *([_fate_article(fate)] if fate else [])),
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
    steps = rank_steps(answer)
    return [_hit_article(rank, hit, answer, steps, address(hit)) for rank, hit in enumerate(answer.hits, 1)]


def summary_line(answer: Answer) -> str:
    """The number of hits, with the time, tokens and cost of the search."""
    return " ".join(_took(answer))


def _header(question: str, answer: Answer) -> Html:
    kicker = tag("p", "Trace of a search", class_="kicker")
    heading = tag("h1", label(question), dir="auto")
    return joined([kicker, heading, tag("p", summary_line(answer), class_="lede")])


def _took(answer: Answer) -> Iterator[str]:
    seconds = sum(stage.seconds for stage in answer.steps)
    yield f"{counted(len(answer.hits), 'hit')} in {milliseconds(seconds)} ms."
    if used := all_used(answer.steps):
        price = f"; cost: {cost(used)}" if cost(used) else ""
        yield f"{counted(used.requests, 'request')} to models; tokens: {tokens(used)}{price}."
    if answer.context:
        passages = counted(len(answer.context.chunk_ids), "passage")
        yield f"The context holds {passages} in {answer.context.tokens} tokens."


def _notes(notes: Sequence[str]) -> Iterator[Html]:
    if notes:
        yield tag("ul", *(tag("li", one_line(note)) for note in notes), class_="notes")


def _queries(answer: Answer) -> Iterator[Html]:
    """The queries, if they hold more than the question."""
    queries = answer.trace.queries if answer.trace else ()
    if len(queries) > 1 or any(map(query_details, queries)):
        yield tag("ol", *map(_query_item, queries), class_="queries")


def _query_item(query: SubQuery) -> Html:
    texts = (one_line(query_details(query)), label(query.reason))
    details = (tag("small", text, dir="auto") for text in texts if text)
    return tag("li", tag("span", label(query.text), dir="auto"), *details)


def _hit_article(rank: int, hit: Hit, answer: Answer, steps: Sequence[RankStep], address: str | None) -> Html:
    """A hit: its heading, scores, lists, ranks through the stages, and part of its text."""
    badge = tag("span", str(rank), class_="badge")
    parts = joined(_isolated_parts(heading_parts(hit)))
    heading = tag("h3", badge, tag("a", parts, href=address) if address else parts)
    ranks = _ranks_list(rank_changes(steps, hit.chunk.id))
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
        listed = listings_text(listings, queries=len(trace.queries))
        yield tag("p", f"Found by {listed}", class_="facts")


def _fate_article(fate: SourceTrace) -> Html:
    """What happened to a source, with the ranks of its best passage."""
    heading = tag("h3", tag("span", "?", class_="badge asked"), tag("bdi", label(fate.source.title)))
    out = f" Out at {fate.step}." if fate.step else ""
    facts = tag("p", tag("code", f"[{fate.source.id}]"), out, class_="facts")
    sentence = tag("p", one_line(fate.reason), dir="auto")
    return tag("article", heading, facts, sentence, _ranks_list(changes(fate.ranks)), class_="hit")


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
    if not stages:
        return
    seconds = sum(stage.seconds for stage in stages)
    starts = accumulate((stage.seconds for stage in stages), initial=0.0)
    used = all_used(stages)
    columns = len(TITLES) if used else WITHOUT_USAGE
    rows = [
        _stage(stage, _bar(start, stage.seconds, seconds), columns)
        for stage, start in zip(stages, starts, strict=False)
    ]
    ends = ("", milliseconds(seconds), "", tokens(used), cost(used))
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
        milliseconds(stage.seconds),
        counts(stage),
        tokens(stage.usage),
        cost(stage.usage),
    )
    row = tag("tr", name, tag("td", bar, class_="bar"), *(tag("td", cell) for cell in cells[: columns - 2]))
    warnings = (tag("td", tag("span", f"⚠ {one_line(text)}"), colspan=columns) for text in stage.warnings)
    return joined([row, *(tag("tr", warning, class_="warned") for warning in warnings)])


def _bar(start: float, seconds: float, of: float) -> Html:
    x, width = (f"{100 * part / (of or 1):.2f}%" for part in (start, seconds))
    return tag("svg", tag("rect", x=x, y="0%", width=width, height="100%"), class_="span", aria_hidden="true")


def _previews(stages: Sequence[Step]) -> Iterator[Html]:
    """The first passages after each stage that has any, folded."""
    for stage in stages:
        if stage.preview:
            head = tag("tr", *(tag("th", title, scope="col") for title in ("#", "Passage", "Score")))
            rows = [_preview(rank, preview) for rank, preview in enumerate(stage.preview, 1)]
            table_ = tag("table", tag("thead", head), tag("tbody", *rows), class_="hits")
            yield collapsible(f"{stage.name} {counts(stage)}", table_)


def _preview(rank: int, preview: Preview) -> Html:
    passage = joined([tag("code", f"[{preview.id}] "), tag("span", label(preview.text), dir="auto")])
    return tag("tr", *(tag("td", cell) for cell in (str(rank), passage, f"{preview.score:.2f}")))
