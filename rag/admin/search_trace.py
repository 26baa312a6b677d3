"""A search's trace for people: the ranks of passages step by step, and the words for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from rag.answers import Usage
from rag.search.reply.reply_parts import page_of
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rag.answers import Answer, Hit, Listing, Step, SubQuery, Trace

UNRANKED = frozenset({"plan", "planner", "multi_query", "embed", "recall"})


@dataclass(frozen=True, slots=True)
class RankStep:
    """The ranks after a step, from 1, by chunk id. A list holds the best rank of all queries."""

    name: str
    ranks: Mapping[str, int]
    is_list: bool = False


def rank_steps(answer: Answer) -> tuple[RankStep, ...]:
    """The steps that rank passages, in order: the lists, then the stages; no lists without a trace."""
    lists = _lists(answer.trace) if answer.trace else ()
    stages = (
        RankStep(stage.name, {id_: rank for rank, id_ in enumerate(stage.left, 1)})
        for stage in answer.steps
        if stage.name not in UNRANKED and stage.after == len(stage.left)
    )
    return (*lists, *stages)


def _lists(trace: Trace) -> Iterator[RankStep]:
    for name in ("dense", "sparse", "exact"):
        ranks = {
            id_: min(one.rank for one in listings if one.list == name)
            for id_, listings in trace.listings.items()
            if any(one.list == name for one in listings)
        }
        if ranks:
            yield RankStep(f"{name} list", ranks, is_list=True)


def rank_changes(steps: Sequence[RankStep], id_: str) -> list[tuple[str, int | None]]:
    """The stages that changed a passage's rank, with the new rank; None if it dropped out.

    Example: fuse 3, gate 3, rerank 1, dedupe None, limit None -> fuse 3, rerank 1, dedupe None.
    """
    return changes((step.name, step.ranks.get(id_)) for step in steps if not step.is_list)


def changes(ranks: Iterable[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """The ranks that differ from the previous one; before the first there is none."""
    pairs = pairwise([("", None), *ranks])
    return [after for before, after in pairs if after[1] != before[1]]


def heading(hit: Hit) -> str:
    """A hit's title, section and page."""
    return ", ".join(heading_parts(hit))


def heading_parts(hit: Hit) -> list[str]:
    """Those of title, section and page that the hit has."""
    path = hit.chunk.section[1:] if hit.chunk.section[:1] == (hit.source.title,) else hit.chunk.section
    page = page_of(hit.source, hit.chunk.page, hit.chunk.page) if hit.chunk.page else ""
    return [part for part in (label(hit.source.title), label(" > ".join(path)), page) if part]


def query_details(query: SubQuery) -> str:
    """A query's details beside its text: 'weight 0.70, in handbook, where {"year": 2020}'."""
    parts = [f"weight {query.weight:.2f}"] if query.weight != 1 else []
    if query.collections:
        parts.append(f"in {', '.join(query.collections)}")
    if query.filter is not None:
        parts.append(f"where {label(json.dumps(query.filter, ensure_ascii=False, default=str))}")
    return ", ".join(parts)


def listings_text(listings: Sequence[Listing], *, queries: int) -> str:
    """Example: "dense 3 (0.43), sparse 1 (1.00)"; several queries are numbered."""
    by_query = sorted(listings, key=lambda one: (one.query, one.list))
    parts = []
    for query, of_query in groupby(by_query, key=lambda one: one.query):
        places = ", ".join(f"{one.list} {one.rank} ({one.score:.2f})" for one in of_query)
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
