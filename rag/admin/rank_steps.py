"""How passages moved through the steps of a search: the ranks that each step gave them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rag.answers import Answer, Trace

UNRANKED = frozenset({"plan", "planner", "multi_query", "embed", "recall"})


@dataclass(frozen=True, slots=True)
class Step:
    """The ranks after a step, from 1, by chunk id. A list has the best of all queries."""

    name: str
    ranks: Mapping[str, int]
    is_list: bool = False


def rank_steps(answer: Answer) -> tuple[Step, ...]:
    """The steps that rank passages, in order: the lists, then the stages. None without a trace."""
    lists = _lists(answer.trace) if answer.trace else ()
    stages = (
        Step(stage.name, {id_: rank for rank, id_ in enumerate(stage.left, 1)})
        for stage in answer.stages
        if stage.name not in UNRANKED and stage.after == len(stage.left)
    )
    return (*lists, *stages)


def _lists(trace: Trace) -> Iterator[Step]:
    for name in ("dense", "sparse"):
        ranks = {
            id_: min(one.rank for one in listings if one.list == name)
            for id_, listings in trace.listings.items()
            if any(one.list == name for one in listings)
        }
        if ranks:
            yield Step(f"{name} list", ranks, is_list=True)


def telling(steps: Sequence[Step]) -> list[Step]:
    """The steps without those stages that changed nothing; the last one stays.

    Example: fuse a b c, gate a b c, rerank b a c, limit b a -> fuse, rerank, limit.
    """
    stages = [step for step in steps if not step.is_list]
    changing = [after for before, after in pairwise(stages) if after.ranks != before.ranks]
    kept = [*stages[:1], *changing]
    if stages and stages[-1] not in kept:
        kept.append(stages[-1])
    return [*(step for step in steps if step.is_list), *kept]


def way(steps: Sequence[Step], id_: str) -> list[tuple[str, int | None]]:
    """The stages at which a passage got another rank than before; None is out.

    Example: fuse 3, gate 3, rerank 1, dedupe None, limit None -> fuse 3, rerank 1, dedupe None.
    """
    return changes((step.name, step.ranks.get(id_)) for step in steps if not step.is_list)


def changes(ranks: Iterable[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """The ranks that differ from those before them; before the first one there is none."""
    pairs = pairwise([("", None), *ranks])
    return [after for before, after in pairs if after[1] != before[1]]
