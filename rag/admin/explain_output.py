"""How a search's trace is printed, by `refdesk-admin search --explain`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rag.admin.rank_steps import changes, rank_steps, way
from rag.admin.trace_wording import (
    all_used,
    cost,
    counts,
    listings_said,
    milliseconds,
    one_line,
    place,
    query_details,
    tokens,
    way_said,
)
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.admin.rank_steps import Step
    from rag.answers import Answer, Hit, Stage, SubQuery, Usage
    from rag.search.explain.why_not import Fate

WIDTH = 100  # as passages are printed
NUMBERS = frozenset({"MS"})  # columns that are set to the right


def explanation(answer: Answer, fates: Sequence[Fate] = ()) -> list[str]:
    """The lines that tell how an answer came about: its queries, stages and hits, and others' fates.

    A terminal takes nothing in them for a command, and none but a table's row is longer than `WIDTH`.
    """
    queries = answer.trace.queries if answer.trace else ()
    steps = rank_steps(answer)
    parts: list[list[str]] = [
        [
            line
            for query, name in zip(queries, _names(len(queries)), strict=True)
            for line in _query(query, name)
        ],
        [*_stages(answer.stages)] if answer.stages else [],
        *([*_hit(rank, hit, answer, steps)] for rank, hit in enumerate(answer.hits, 1)),
        *([*_fate(fate)] for fate in fates),
    ]
    return [line for part in parts if part for line in (*part, "")][:-1]


def _names(queries: int) -> list[str]:
    return [f"Query {number}" for number in range(1, queries + 1)] if queries > 1 else ["Query"] * queries


def _query(query: SubQuery, name: str) -> Iterator[str]:
    yield from _wrapped(label(query.text), f"{name}: ")
    yield from _wrapped(one_line(query_details(query)))
    yield from _wrapped(label(query.reason))


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    """The stages as a table, each warning under its stage; columns that say nothing are left out."""
    titles = ("STAGE", "STATUS", "MS", "BEFORE → AFTER", "TOKENS", "COST")
    rows = [_row(one.name, one.status, one.seconds, counts(one), one.usage) for one in stages]
    rows.append(_row("total", "", sum(one.seconds for one in stages), "", all_used(stages)))
    columns = [column for column in zip(titles, *rows, strict=True) if any(column[1:])]
    head, *lines, last = ("  ".join(cells).rstrip() for cells in zip(*map(_even, columns), strict=True))
    yield head
    for stage, line in zip(stages, lines, strict=True):
        yield line
        for warning in stage.warnings:
            yield from _wrapped(one_line(warning), " ! ")
    yield last


def _row(name: str, status: str, seconds: float, counted: str, usage: Usage | None) -> tuple[str, ...]:
    return name, status, milliseconds(seconds), counted, tokens(usage), cost(usage)


def _even(column: Sequence[str]) -> list[str]:
    width = max(map(len, column))
    return [cell.rjust(width) if column[0] in NUMBERS else cell.ljust(width) for cell in column]


def _hit(rank: int, hit: Hit, answer: Answer, steps: Sequence[Step]) -> Iterator[str]:
    yield from _wrapped(place(hit), f"{rank}. ")
    yield f"   [{hit.chunk.id}]  score {hit.score:.2f}  similarity {hit.similarity:.3f}"
    if answer.trace:
        listings = answer.trace.listings.get(hit.chunk.id, ())
        yield from _wrapped(listings_said(listings, queries=len(answer.trace.queries)))
    yield from _wrapped(way_said(way(steps, hit.chunk.id)))


def _fate(fate: Fate) -> Iterator[str]:
    yield from _wrapped(f"{label(fate.source.title)} [{fate.source.id}]:", "Expected ")
    yield from _wrapped(one_line(f"Out at {fate.step}. {fate.reason}" if fate.step else fate.reason))
    yield from _wrapped(way_said(changes(fate.ranks)))


def _wrapped(text: str, begins: str = "   ") -> list[str]:
    """The text in lines, the first of which begins so; none if there is no text."""
    return textwrap.wrap(text, WIDTH, initial_indent=begins, subsequent_indent="   ")
