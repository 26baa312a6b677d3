"""What a filter that leaves nothing comes to: which of its conditions do it, and what is left without them.

Filters alone are looked at; who asks and what they may see stays as it is in every view.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rag.filters.conditions import called, conditions, is_on_date, without
from rag.search.recall import concurrently

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from rag.filters.tree import Filter
    from rag.search.view import View

Finds: TypeAlias = "Callable[[list[View]], Awaitable[bool]]"
"""Whether the search finds anything in views."""


def relaxed(views: Sequence[View], dropped: Collection[int]) -> list[View]:
    """The views with a filter that lacks the conditions of these positions."""
    return [replace(view, filter=view.filter and without(view.filter, dropped)) for view in views]


async def to_drop(views: Sequence[View], finds: Finds) -> list[int]:
    """The positions of conditions without which the search finds something; none if there are none such.

    They are dropped one after another, the last written first and those on dates after all others;
    then those come back that were no obstacle.
    """
    parts = _conditions(views)
    order = sorted(range(len(parts)), key=lambda at: (is_on_date(parts[at]), -at))
    dropped: list[int] = []
    for at in order:
        dropped.append(at)
        if await finds(relaxed(views, dropped)):
            break
    else:
        return []
    for at in reversed(dropped[:-1]):
        fewer = [other for other in dropped if other != at]
        if await finds(relaxed(views, fewer)):
            dropped = fewer
    return sorted(dropped)


async def explained(views: Sequence[View], dropped: Sequence[int], finds: Finds) -> str:
    """Which conditions alone leave results, and which to leave out."""
    words = f"The filter leaves nothing; without {_called(views, dropped)} it leaves results."
    parts = _conditions(views)
    if len(parts) == 1:
        return words
    everything = set(range(len(parts)))
    alone = [relaxed(views, everything - {at}) for at in range(len(parts))]
    leaves = await concurrently([partial(finds, one) for one in alone])
    some = [called(part) for part, found in zip(parts, leaves, strict=True) if found]
    return f"{words} Alone, each of these leaves results: {', '.join(some) or 'none'}."


def said(views: Sequence[View], dropped: Sequence[int]) -> str:
    """What a reader must know of a search without these conditions."""
    return f"The filter leaves nothing, so these conditions were dropped: {_called(views, dropped)}."


def _called(views: Sequence[View], dropped: Sequence[int]) -> str:
    parts = _conditions(views)
    return ", ".join(called(parts[at]) for at in dropped)


def _conditions(views: Sequence[View]) -> tuple[Filter, ...]:
    """The filter's conditions; all views have the same, each with its own collection's types."""
    return conditions(views[0].filter) if views[0].filter else ()
