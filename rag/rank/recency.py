"""Newer documents before older ones."""

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
    """What is left of 1 after `age_days` if half is left after `half_life_days` (above 0); 1 for the future.

    Example: 60 days at a half-life of 30 -> 0.25.
    """
    return float(0.5 ** (max(0.0, age_days) / half_life_days))


def aged(score: float, left: float, *, weight: float) -> float:
    """`score` of which the share `weight` (in [0, 1]) decays to `left` of itself; one below 0 stays.

    Example: 0.8 with a quarter left at weight 0.5 -> 0.8 * 0.5 + 0.8 * 0.5 * 0.25 = 0.5.
    """
    return score if score < 0 else score * (1 - weight) + score * weight * left


def by_recency(
    hits: Sequence[Hit],
    *,
    now: datetime,
    half_life_days: float,
    weight: float,
    missing: MissingDate,
    field: str = "",
) -> list[Hit]:
    """`hits` with their scores aged by their source's date, best first; equals in the order given.

    The date is what the declared `field` says, or without one what the source states of itself.

    Raises:
        ConfigurationError: a hit has no date, and `missing` is "error".
    """
    left = [_left(hit, now, half_life_days, missing, field) for hit in hits]
    new = [
        replace(hit, score=aged(hit.score, share, weight=weight))
        for hit, share in zip(hits, left, strict=True)
    ]
    return sorted(new, key=lambda hit: -hit.score)


def _left(hit: Hit, now: datetime, half_life_days: float, missing: MissingDate, field: str) -> float:
    """What is left of the part of a hit's score that ages."""
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
                f"{hit.chunk.id} has no date to rank it by: give its source one, "
                "or let undated hits be ignored or penalized."
            )
