"""The page that shows how a search came to its answer: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rag.admin.console import counted
from rag.admin.rank_steps import rank_steps
from rag.admin.search_report.moves import moves
from rag.admin.search_report.passages import fate_shown, hit_shown
from rag.admin.search_report.stages import previews, stages_table
from rag.admin.trace_wording import all_used, cost, milliseconds, one_line, query_details, tokens
from rag.report.html import Html, joined, page, section, tag
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.answers import Answer, SubQuery
    from rag.search.explain.why_not import Fate

STYLE = Path(__file__).with_name("style.css")


def search_report(question: str, answer: Answer, fates: Sequence[Fate] = ()) -> str:
    """An HTML page that tells how a question came to its answer, and what became of sources asked about.

    It has no script and refers to nothing; what documents and models say in it is escaped.
    """
    steps = rank_steps(answer)
    hits = [hit_shown(rank, hit, answer, steps) for rank, hit in enumerate(answer.hits, 1)]
    sections = [
        section("What to know", *_notes(answer.notes)),
        section("Expected", *(fate_shown(fate) for fate in fates)),
        section("Queries", *_queries(answer)),
        section("Steps", *stages_table(answer.stages)),
        section("How the ranks moved", *moves(answer.hits, answer.stages, steps, fates)),
        section("Hits", *hits),
        section("The first passages after each step", *previews(answer.stages)),
    ]
    title = f"{label(question)}: trace of a search"
    return page(title, _header(question, answer), sections, style=STYLE.read_text(encoding="utf-8"))


def _header(question: str, answer: Answer) -> Html:
    kicker = tag("p", "Trace of a search", class_="kicker")
    heading = tag("h1", label(question), dir="auto")
    return joined([kicker, heading, tag("p", " ".join(_took(answer)), class_="lede")])


def _took(answer: Answer) -> Iterator[str]:
    seconds = sum(stage.seconds for stage in answer.stages)
    yield f"{counted(len(answer.hits), 'hit')} in {milliseconds(seconds)} ms."
    if used := all_used(answer.stages):
        price = f"; cost: {cost(used)}" if cost(used) else ""
        yield f"{counted(used.requests, 'request')} to models; tokens: {tokens(used)}{price}."
    if answer.context:
        passages = counted(len(answer.context.chunk_ids), "passage")
        yield f"The context holds {passages} in {answer.context.tokens} tokens."


def _notes(notes: Sequence[str]) -> Iterator[Html]:
    if notes:
        yield tag("ul", *(tag("li", one_line(note)) for note in notes), class_="notes")


def _queries(answer: Answer) -> Iterator[Html]:
    """The queries, if there is more to them than the question."""
    queries = answer.trace.queries if answer.trace else ()
    if len(queries) > 1 or any(map(query_details, queries)):
        yield tag("ol", *map(_query, queries), class_="queries")


def _query(query: SubQuery) -> Html:
    said = (one_line(query_details(query)), label(query.reason))
    details = (tag("small", one, dir="auto") for one in said if one)
    return tag("li", tag("span", label(query.text), dir="auto"), *details)
