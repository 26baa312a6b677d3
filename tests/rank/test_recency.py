"""Scores decay with the age of documents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Hit
from rag.corpus import Chunk, Source
from rag.errors import ConfigurationError
from rag.rank.fusion import aged_score, by_recency, decay

if TYPE_CHECKING:
    from rag.config.profiles import MissingDate

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SOURCE = Source("s", "documents", "file:///s", "S", "text/plain", "d", 1, 1, NOW)
SHARES = st.floats(0, 1)
AGES = st.floats(-1000, 100_000)
HALF_LIVES = st.floats(0.1, 10_000)


def _hit(name: str, score: float, age: float | None = None) -> Hit:
    date = None if age is None else NOW - timedelta(days=age)
    return Hit(Chunk(f"{name}/0", name, 0, 0, 1, "x"), replace(SOURCE, id=name, date=date), score, 0.5)


def _aged(*hits: Hit, weight: float = 0.5, missing: MissingDate = "ignore") -> list[tuple[str, Any]]:
    new = by_recency(hits, now=NOW, half_life_days=30, weight=weight, missing=missing)
    return [(hit.source.id, pytest.approx(hit.score)) for hit in new]


@pytest.mark.parametrize(("age", "left"), [(0, 1), (30, 0.5), (60, 0.25), (15, 0.70710678), (-5, 1)])
def test_half_is_left_after_each_half_life(age: float, left: float) -> None:
    assert decay(age, 30) == pytest.approx(left)


def test_the_weighted_share_of_a_score_decays() -> None:
    assert aged_score(0.8, 0.25, weight=0.5) == pytest.approx(0.5)
    assert aged_score(0.8, 0.25, weight=1) == pytest.approx(0.2)
    assert aged_score(-0.2, 0.25, weight=1) == -0.2


def test_hits_come_in_the_order_of_their_aged_scores() -> None:
    assert _aged(_hit("old", 0.8, 60), _hit("new", 0.7, 0)) == [("new", 0.7), ("old", 0.5)]


def test_age_counts_hours_and_the_zone_of_a_date_does_not_matter() -> None:
    assert _aged(_hit("h", 1, 0.5), weight=1) == [("h", 0.5 ** (0.5 / 30))]
    zoned = _hit("z", 1, 30)
    here = replace(zoned, source=replace(zoned.source, date=datetime.fromisoformat("2026-01-01T17:30+05:30")))
    assert _aged(here) == _aged(zoned)


def test_a_date_to_come_counts_as_today() -> None:
    assert _aged(_hit("tomorrow", 0.5, -1)) == [("tomorrow", 0.5)]


def test_a_hit_without_a_date_keeps_its_score_if_that_is_ignored() -> None:
    assert _aged(_hit("none", 0.6), _hit("old", 0.8, 60)) == [("none", 0.6), ("old", 0.5)]


def test_a_hit_without_a_date_counts_as_infinitely_old_if_that_is_penalized() -> None:
    assert _aged(_hit("none", 0.6), _hit("old", 0.8, 60), missing="penalize") == [("old", 0.5), ("none", 0.3)]


def test_a_hit_without_a_date_is_named_if_that_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^The stage recency found no date for none/0"):
        _aged(_hit("dated", 0.8, 60), _hit("none", 0.6), missing="error")
    assert _aged(_hit("dated", 0.8, 60), missing="error") == [("dated", 0.5)]


def test_equals_keep_their_order() -> None:
    assert [name for name, _ in _aged(*(_hit(name, 0.5, 3) for name in "cab"))] == ["c", "a", "b"]


@given(AGES, AGES, HALF_LIVES)
def test_the_older_never_has_more_left(age: float, other: float, half_life: float) -> None:
    assert 0 <= decay(max(age, other), half_life) <= decay(min(age, other), half_life) <= 1


@given(st.floats(-1, 1), SHARES, SHARES)
def test_a_score_never_grows_and_loses_no_more_than_its_weight(
    score: float, left: float, weight: float
) -> None:
    new = aged_score(score, left, weight=weight)
    assert new <= score + 1e-12
    assert new >= score * (1 - weight) - 1e-12 or score < 0
    assert aged_score(score, left, weight=0) == score


@given(st.lists(st.tuples(st.floats(-1, 1), st.none() | st.floats(-9, 9999)), max_size=8), SHARES)
def test_every_hit_comes_once_and_best_first(rows: list[tuple[float, float | None]], weight: float) -> None:
    hits = [_hit(f"{place}", score, age) for place, (score, age) in enumerate(rows)]
    new = by_recency(hits, now=NOW, half_life_days=30, weight=weight, missing="penalize")
    assert sorted(hit.chunk.id for hit in new) == sorted(hit.chunk.id for hit in hits)
    assert [hit.score for hit in new] == sorted((hit.score for hit in new), reverse=True)
