"""The report's hits, and what became of sources that one expected among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.admin.rank_steps import changes, way
from rag.admin.search_report.ladder import COLOURS
from rag.admin.trace_wording import listings_said, one_line, place_parts
from rag.report.html import Html, tag
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.admin.rank_steps import Step
    from rag.answers import Answer, Hit
    from rag.search.explain.why_not import Fate

SHOWN_CHARS = 600  # of a hit's text
KEPT = "\n\u200c\u200d"  # lines; and joiners, which scripts need


def hit_shown(rank: int, hit: Hit, answer: Answer, steps: Sequence[Step]) -> Html:
    """A hit: where it stands, its scores, which lists had it, its way through the stages, how it begins."""
    badge = tag("span", str(rank), class_=f"badge way-{(rank - 1) % COLOURS + 1}")
    heading = tag("h3", badge, *_isolated(place_parts(hit)))
    ways = _way_shown(way(steps, hit.chunk.id))
    text = tag("blockquote", _beginning(hit.text), dir="auto")
    return tag("article", heading, *_facts(hit, answer), ways, text, class_="hit")


def _isolated(parts: Sequence[str]) -> Iterator[str]:
    """The parts with commas between; one that is written from right to left leaves the others in place."""
    for at, part in enumerate(parts):
        yield ", " if at else ""
        yield tag("bdi", part)


def _facts(hit: Hit, answer: Answer) -> Iterator[Html]:
    scored = f" in {hit.source.collection}, score {hit.score:.2f}, similarity {hit.similarity:.3f}"
    yield tag("p", tag("code", f"[{hit.chunk.id}]"), scored, class_="facts")
    trace = answer.trace
    if trace and (listings := trace.listings.get(hit.chunk.id)):
        listed = listings_said(listings, queries=len(trace.queries))
        yield tag("p", f"Found by {listed}", class_="facts")


def fate_shown(fate: Fate) -> Html:
    """What became of a source, with the ranks of its best passage."""
    heading = tag("h3", tag("span", "?", class_="badge asked"), tag("bdi", label(fate.source.title)))
    out = f" Out at {fate.step}." if fate.step else ""
    facts = tag("p", tag("code", f"[{fate.source.id}]"), out, class_="facts")
    sentence = tag("p", one_line(fate.reason), dir="auto")
    return tag("article", heading, facts, sentence, _way_shown(changes(fate.ranks)), class_="hit")


def _way_shown(ranks: Sequence[tuple[str, int | None]]) -> Html:
    items = [tag("li", f"{name} ", tag("b", str(rank or "out"))) for name, rank in ranks]
    return tag("ol", *items, class_="way-of") if items else Html()


def _beginning(text: str) -> str:
    """The beginning of a text without what can't be seen."""
    shown = "".join(c for c in text[:SHOWN_CHARS] if c.isprintable() or c in KEPT)
    return f"{shown}…" if len(text) > SHOWN_CHARS else shown
