"""Measures, the JSON that a run prints, and the comparison with an earlier run."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured quantity: `value` is the median, `limit` the best this machine can do, both in `unit`.

    For many tenants and for a change, the limit is the value with the fewest tenants or chunks. For recall,
    the value is the mean.
    """

    name: str
    value: float
    unit: str
    limit: float | None
    min: float
    p95: float

    @property
    def ratio(self) -> float | None:
        """The value divided by the limit."""
        return self.value / self.limit if self.limit else None


def measured(name: str, values: Sequence[float], unit: str, limits: Sequence[float] = ()) -> Measure:
    """The measure of repeated values, and of its limit's repeated values if it has a limit.

    Example: ("x", [3, 1, 2], "ms", [5, 4, 1]) -> value 2, limit 4, ratio 0.5, min 1, p95 3.
    """
    limit = statistics.median(limits) if limits else None
    return Measure(name, statistics.median(values), unit, limit, min(values), p95(values))


def p95(values: Iterable[float]) -> float:
    """The 95th percentile by nearest rank: 1 to 100 in any order -> 95."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * P95) - 1]


def as_json(measures: Sequence[Measure]) -> dict[str, Any]:
    """A run as `python -m tests.bench --json` prints it."""
    return {"measures": [asdict(measure) | {"ratio": measure.ratio} for measure in measures]}


def read_run(path: Path) -> list[Measure]:
    """The measures in a file that `python -m tests.bench --json` printed."""
    records = json.loads(path.read_text(encoding="utf-8"))["measures"]
    return [Measure(**{name: record[name] for name in Measure.__slots__}) for record in records]


def in_both(now: Sequence[Measure], earlier: Sequence[Measure]) -> list[tuple[Measure, Measure]]:
    """Pairs of this run's and the earlier run's measures of the same name and unit, in this run's order."""
    before = {(measure.name, measure.unit): measure for measure in earlier}
    return [
        (measure, before[measure.name, measure.unit])
        for measure in now
        if (measure.name, measure.unit) in before
    ]
