"""A search that found nothing: which conditions of its filter are to blame, and what to do without them.

Only the filter is relaxed. Who asks, and what they may see, stays as it is in every view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rag.concurrency import concurrently
from rag.filters.tree import called, conditions, is_on_date, without
from rag.search.stages.thresholds import UNGROUNDED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rag.filters.tree import Filter
    from rag.search.plan import Plan
    from rag.search.recall import Query
    from rag.search.run import Run
    from rag.search.view import View


class FindsAny(Protocol):
    """Whether a query finds anything, with a run's plan."""

    async def __call__(self, query: Query, run: Run, *, with_thresholds: bool = True) -> bool:
        """True as soon as one hit passes the gate, and the thresholds if they are to count."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What a filter's conditions do, by their positions.

    Each of `alone` leaves results if it is the only condition. Without those of `dropped` the filter does.
    """

    alone: frozenset[int]
    dropped: frozenset[int]


async def explain_nothing(query: Query, run: Run, finds_any: FindsAny) -> Query | None:
    """Retry with a relaxed filter if the plan allows it; otherwise note why nothing was found.

    Returns the query without the conditions that leave nothing, None where no other query is to be asked.
    """
    plan, views = run.plan, query.views
    if plan.thresholds.of_hits and await finds_any(query, run, with_thresholds=False):
        run.note([f"{UNGROUNDED} The nearest passages are below the thresholds."])
        return None
    impact = await _impact(query, run, finds_any) if plan.filter is not None else None
    if impact is None:
        run.note([_without_filter(views, plan)])
        return None
    if not plan.relax:
        run.note([_advice(views, impact)])
        return None
    run.note([f"The filter excludes all results. Conditions dropped: {_called(views, impact.dropped)}."])
    return _relaxed(query, impact.dropped)


async def _impact(query: Query, run: Run, finds_any: FindsAny) -> Impact | None:
    """Which conditions leave nothing, and which to drop; None if nothing is found without any filter.

    Conditions that leave nothing alone are dropped in any case. Of the others as few as possible are: the
    last written first, and those on dates last.
    """
    parts = _conditions(query.views)
    if not await finds_any(_relaxed(query, range(len(parts))), run):
        return None
    single = [partial(finds_any, _keeping(query, {at}), run) for at in range(len(parts))]
    found = await concurrently(single) if len(parts) > 1 else []
    alone = [at for at, any_ in enumerate(found) if any_]
    order = sorted(alone, key=lambda at: (not is_on_date(parts[at]), at))
    low, high = min(1, len(order)), len(order)  # bisect: a search under many conditions is slow
    while low < high:
        middle = (low + high + 1) // 2
        enough = await finds_any(_keeping(query, order[:middle]), run)
        low, high = (middle, high) if enough else (low, middle - 1)
    return Impact(frozenset(alone), frozenset(range(len(parts))) - set(order[:low]))


def _relaxed(query: Query, dropped: Collection[int]) -> Query:
    """The query with a filter that lacks the conditions of these positions."""
    views = (replace(view, filter=view.filter and without(view.filter, dropped)) for view in query.views)
    return replace(query, views=tuple(views))


def _keeping(query: Query, kept: Collection[int]) -> Query:
    return _relaxed(query, [at for at in range(len(_conditions(query.views))) if at not in kept])


def _advice(views: Sequence[View], impact: Impact) -> str:
    """Which conditions to leave out, and which leave results alone."""
    advice = f"The filter excludes all results; without {_called(views, impact.dropped)} there are results."
    if len(_conditions(views)) == 1:
        return advice
    return (
        f"{advice} Each of these conditions alone leaves results: {_called(views, impact.alone) or 'none'}."
    )


def _without_filter(views: Sequence[View], plan: Plan) -> str:
    """Why nothing was found where no filter is to blame."""
    if plan.sources is not None or plan.exclude_sources:
        return (
            "Nothing was found in the sources that the request allows. "
            "Search without sources and exclude_sources."
        )
    if plan.mode == "sparse":
        return (
            "No passage contains a word of the query. "
            "Use other words, or mode hybrid to search by meaning, too."
        )
    return f"Nothing was found in {', '.join(view.table.collection.name for view in views)}."


def _called(views: Sequence[View], positions: Collection[int]) -> str:
    parts = _conditions(views)
    return ", ".join(dict.fromkeys(called(parts[at]) for at in sorted(positions)))


def _conditions(views: Sequence[View]) -> tuple[Filter, ...]:
    """The filter's conditions; all views have the same, each with its own collection's types."""
    return conditions(views[0].filter) if views[0].filter else ()
