"""Puts boxes on a page into the order in which people read them: from the top, one column after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
MAX_BOXES = 200  # on a page; more of them stay as they are
_OVERLAP = 0.15  # of a box may lie within the one before: what is drawn by hand is never quite apart


class Box(NamedTuple):
    """A place on a page, in any unit; the origin is at the top left."""

    left: float
    top: float
    right: float
    bottom: float


def in_reading_order(things: Sequence[T], place: Callable[[T], Box | None]) -> list[T]:
    """The things by the white space between them, cut at the widest gap first (a recursive X-Y cut).

    Where nothing separates them, they stay in their order. Things without a place go first.
    Example: a title above two columns of two boxes each -> title, left column, right column.

    Source: Nagy, Seth & Viswanathan, Computer 25(7), 1992, doi:10.1109/2.144436.
    """
    placed = [(box, thing) for thing in things if (box := place(thing))]
    if len(placed) > MAX_BOXES:
        return list(things)
    return [thing for thing in things if place(thing) is None] + [thing for _, thing in _ordered(placed)]


def _ordered(placed: list[tuple[Box, T]]) -> list[tuple[Box, T]]:
    """The boxes in order: cut at the widest gap, between rows if those between columns are no wider."""
    if len(placed) < 2:  # noqa: PLR2004 there is nothing to order
        return placed
    gap, before, after = max(_cut(placed, 1, 3), _cut(placed, 0, 2), key=lambda cut: cut[0])
    return _ordered(before) + _ordered(after) if gap > -math.inf else placed


def _cut(
    placed: list[tuple[Box, T]], start: int, end: int
) -> tuple[float, list[tuple[Box, T]], list[tuple[Box, T]]]:
    """The widest gap along an axis, and the boxes before and after it; minus infinity if there is none."""
    order = sorted(range(len(placed)), key=lambda at: placed[at][0][start])
    reached, widest, cut = placed[order[0]][0][end], -math.inf, 0
    for number, at in enumerate(order[1:], 1):
        box = placed[at][0]
        gap = box[start] - reached
        if gap > widest and gap >= -_OVERLAP * (box[end] - box[start]):
            widest, cut = gap, number
        reached = max(reached, box[end])
    before, after = sorted(order[:cut]), sorted(order[cut:])
    return widest, [placed[at] for at in before], [placed[at] for at in after]
