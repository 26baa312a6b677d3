"""What a filter that leaves nothing comes to: which of its conditions do it, and what is left without them.

Filters alone are looked at; who asks and what they may see stays as it is in every view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rag.concurrency import concurrently
from rag.filters.tree import called, conditions, is_on_date, without

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from rag.filters.tree import Filter
    from rag.search.view import View

Finds: TypeAlias = "Callable[[list[View]], Awaitable[bool]]"
"""Whether the search finds anything in views."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What a filter's conditions come to, by their positions.

    `alone` are those that leave results if they stand alone; without those of `dropped` the filter does.
    """

    alone: frozenset[int]
    dropped: frozenset[int]


async def impact(views: Sequence[View], finds: Finds) -> Impact | None:
    """What to drop of a filter that leaves nothing; None if nothing is found without it, either.

    Conditions that leave nothing alone are dropped in any case. Of the others as few as will do, the last
    written first and those on dates after all others.
    """
    if not await finds([replace(view, filter=None) for view in views]):
        return None
    parts = _conditions(views)
    single = [partial(finds, _keeping(views, {at})) for at in range(len(parts))]
    found = await concurrently(single) if len(parts) > 1 else []
    alone = [at for at, any_ in enumerate(found) if any_]
    order = sorted(alone, key=lambda at: (not is_on_date(parts[at]), at))
    low, high = min(1, len(order)), len(order)  # by halves: a search under many conditions takes its time
    while low < high:
        middle = (low + high + 1) // 2
        enough = await finds(_keeping(views, order[:middle]))
        low, high = (middle, high) if enough else (low, middle - 1)
    return Impact(frozenset(alone), frozenset(range(len(parts))) - set(order[:low]))


def relaxed(views: Sequence[View], dropped: Collection[int]) -> list[View]:
    """The views with a filter that lacks the conditions of these positions."""
    return [replace(view, filter=view.filter and without(view.filter, dropped)) for view in views]


def _keeping(views: Sequence[View], kept: Collection[int]) -> list[View]:
    return relaxed(views, [at for at in range(len(_conditions(views))) if at not in kept])


def explained(views: Sequence[View], found: Impact) -> str:
    """Which conditions to leave out, and which leave results alone."""
    words = f"The filter leaves nothing; without {_called(views, found.dropped)} it leaves results."
    if len(_conditions(views)) == 1:
        return words
    return f"{words} Alone, each of these leaves results: {_called(views, found.alone) or 'none'}."


def said(views: Sequence[View], dropped: Collection[int]) -> str:
    """What a reader must know of a search without these conditions."""
    return f"The filter leaves nothing, so these conditions were dropped: {_called(views, dropped)}."


def _called(views: Sequence[View], positions: Collection[int]) -> str:
    parts = _conditions(views)
    return ", ".join(dict.fromkeys(called(parts[at]) for at in sorted(positions)))


def _conditions(views: Sequence[View]) -> tuple[Filter, ...]:
    """The filter's conditions; all views have the same, each with its own collection's types."""
    return conditions(views[0].filter) if views[0].filter else ()
