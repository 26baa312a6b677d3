"""Recency: part of a hit's score decays exponentially with the age of its document."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit
    from rag.config.profiles import MissingDate

DAY = timedelta(days=1)


def decay(age_days: float, half_life_days: float) -> float:
    """The factor, in (0, 1], after `age_days` with a half-life of `half_life_days` (> 0); 1 for future dates.

    Example: 60 days at a half-life of 30 -> 0.25.
    """
    return float(0.5 ** (max(0.0, age_days) / half_life_days))


def aged(score: float, factor: float, *, weight: float) -> float:
    """`score` after its share `weight` (in [0, 1]) is multiplied by `factor`; negative scores don't change.

    Example: 0.8 with factor 0.25 and weight 0.5 -> 0.8 * 0.5 + 0.8 * 0.5 * 0.25 = 0.5.
    """
    return score if score < 0 else score * (1 - weight) + score * weight * factor


def by_recency(
    hits: Sequence[Hit],
    *,
    now: datetime,
    half_life_days: float,
    weight: float,
    missing: MissingDate,
    field: str = "",
) -> list[Hit]:
    """`hits` with their scores aged by date, best first; ties stay in the given order.

    The date is that of the declared `field`, or the source's own date if `field` is empty.

    Raises:
        ConfigurationError: a hit has no date, and `missing` is "error".
    """
    factors = [_factor(hit, now, half_life_days, missing, field) for hit in hits]
    new = [
        replace(hit, score=aged(hit.score, factor, weight=weight))
        for hit, factor in zip(hits, factors, strict=True)
    ]
    return sorted(new, key=lambda hit: -hit.score)


def _factor(hit: Hit, now: datetime, half_life_days: float, missing: MissingDate, field: str) -> float:
    date = hit.fields.get(field) if field else hit.source.date
    if isinstance(date, datetime):
        return decay((now - date) / DAY, half_life_days)
    match missing:
        case "ignore":
            return 1.0
        case "penalize":
            return 0.0
        case "error":
            raise ConfigurationError(
                f"The stage recency found no date for {hit.chunk.id}. Give its source a date, "
                'or set missing = "ignore" or "penalize" for the stage.'
            )
