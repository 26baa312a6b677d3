"""The output of `refdesk-admin search`: results, and with --explain the trace."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rag.admin.console import echo
from rag.admin.search_trace import (
    all_used,
    changes,
    cost,
    counts,
    heading,
    listings_text,
    milliseconds,
    query_details,
    rank_changes,
    rank_steps,
    ranks_text,
    tokens,
)
from rag.report.tables import decimals, one_line, table
from rag.search.reply.untrusted import label
from rag.text.flags import IN_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.admin.search_trace import RankStep
    from rag.answers import Answer, Hit, Step, SubQuery, Usage
    from rag.search.reply.search_reply import HitRecord, SearchReply
    from rag.search.why_not import SourceTrace

WIDTH = 100  # of lines
STALE = {
    "changed": "The file has changed since it was ingested.",
    "gone": "The file has gone since it was ingested.",
}
NUMBERS = frozenset({"MS"})  # columns that align right


def print_results(reply: SearchReply) -> None:
    """Print a reply: each passage below where it stands, or all as one text."""
    if reply.context:
        echo(f"{reply.context}\n")
    for number, result in enumerate(reply.results, 1):
        for line in textwrap.wrap(f"{number}. {result.cite_as}", WIDTH, subsequent_indent="   "):
            echo(line, bold=True)
        echo(f"   [{result.id}]  score {result.score:.2f}  {_evidence(result)}")
        if result.flags:
            echo(f"   Contains {', '.join(IN_WORDS[flag] for flag in result.flags)}.")
        if result.stale:
            echo(f"   {STALE[result.stale]}")
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
    lines = list(dict.fromkeys(str(one["line"]) for one in result.matches))
    count = result.match_count or 0
    on = "line" if len(lines) == 1 else "lines"
    more = ", …" if count > len(result.matches) else ""
    return f"{count} {'match' if count == 1 else 'matches'} on {on} {', '.join(lines)}{more}"


def explanation(answer: Answer, fates: Sequence[SourceTrace] = ()) -> list[str]:
    """The trace of an answer as lines: its queries, stages and hits, and what happened to expected sources.

    The lines hold no control characters. Only rows of the table can be longer than `WIDTH`.
    """
    queries = answer.trace.queries if answer.trace else ()
    steps = rank_steps(answer)
    parts: list[list[str]] = [
        [
            line
            for query, name in zip(queries, _names(len(queries)), strict=True)
            for line in _query(query, name)
        ],
        [*_stages(answer.steps)] if answer.steps else [],
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


def _stages(stages: Sequence[Step]) -> Iterator[str]:
    """The stages as a table with warnings below their stages, and without empty columns."""
    titles = ("STAGE", "STATUS", "MS", "BEFORE → AFTER", "TOKENS", "COST")
    rows = [_row(one.name, one.status, one.seconds, counts(one), one.usage) for one in stages]
    rows.append(_row("total", "", sum(one.seconds for one in stages), "", all_used(stages)))
    columns = [column for column in zip(titles, *rows, strict=True) if any(column[1:])]
    head, *lines, last = table(list(zip(*columns, strict=True)), right=NUMBERS)
    yield head
    for stage, line in zip(stages, lines, strict=True):
        yield line
        for warning in stage.warnings:
            yield from _wrapped(one_line(warning), " ! ")
    yield last


def _row(name: str, status: str, seconds: float, counted: str, usage: Usage | None) -> tuple[str, ...]:
    return name, status, milliseconds(seconds), counted, tokens(usage), cost(usage)


def _hit(rank: int, hit: Hit, answer: Answer, steps: Sequence[RankStep]) -> Iterator[str]:
    yield from _wrapped(heading(hit), f"{rank}. ")
    yield f"   [{hit.cited}]  score {hit.score:.2f}  similarity {decimals(hit.similarity)}"
    if answer.trace:
        listings = answer.trace.listings.get(hit.chunk.id, ())
        yield from _wrapped(listings_text(listings, queries=len(answer.trace.queries)))
    yield from _wrapped(ranks_text(rank_changes(steps, hit.chunk.id)))


def _fate(fate: SourceTrace) -> Iterator[str]:
    yield from _wrapped(f"{label(fate.source.title)} [{fate.source.id}]:", "Expected ")
    yield from _wrapped(one_line(f"Out at {fate.step}. {fate.reason}" if fate.step else fate.reason))
    yield from _wrapped(ranks_text(changes(fate.ranks)))


def _wrapped(text: str, begins: str = "   ") -> list[str]:
    """The text in lines, the first of which starts with `begins`; none for an empty text."""
    return textwrap.wrap(text, WIDTH, initial_indent=begins, subsequent_indent="   ")
