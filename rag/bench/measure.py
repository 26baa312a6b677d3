"""What a measurement is, and how times are taken."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

Key = TypeVar("Key", str, int)
Item = TypeVar("Item")
P95 = 0.95


@dataclass(frozen=True, slots=True)
class Measure:
    """Something measured: `value` is the median, `limit` what this machine can do at best, in `unit` too.

    Of what grows, the limit is the value at the smallest size; of recall, the value is the mean.
    """

    name: str
    value: float
    unit: str
    limit: float | None
    min: float
    p95: float

    @property
    def ratio(self) -> float | None:
        """How many times the limit."""
        return self.value / self.limit if self.limit else None


def measured(name: str, values: Sequence[float], unit: str, limits: Sequence[float] = ()) -> Measure:
    """The measure that several values of the same thing make, and several of its limit, if it has one.

    Example: ("x", [3, 1, 2], "ms", [5, 4, 1]) -> value 2, limit 4, ratio 0.5, min 1, p95 3.
    """
    limit = statistics.median(limits) if limits else None
    return Measure(name, statistics.median(values), unit, limit, min(values), p95(values))


def p95(values: Iterable[float]) -> float:
    """The smallest of the values that at least 95 % of them don't exceed: 1 to 100 in any order -> 95."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * P95) - 1]


async def interleaved(
    calls: Mapping[Key, Callable[[str], Awaitable[object]]], queries: Sequence[str], times: int
) -> dict[Key, list[float]]:
    """Milliseconds of each call, taken `times` times with the queries in turn.

    The calls take turns and change who is first, so that what the machine does else falls on all
    alike. One more round before isn't counted: caches are empty then.
    """
    took: dict[Key, list[float]] = {name: [] for name in calls}
    warm = min(len(queries), times)
    for at in range(-warm, times):
        for name, call in rotated(list(calls.items()), at):
            began = time.perf_counter()
            await call(queries[at % len(queries)])
            if at >= 0:
                took[name].append((time.perf_counter() - began) * 1000)
    return took


def rotated(items: Sequence[Item], by: int) -> Sequence[Item]:
    """The items in order, from another one on: ([a, b, c], 4) -> [b, c, a]."""
    first = by % len(items)
    return [*items[first:], *items[:first]]
