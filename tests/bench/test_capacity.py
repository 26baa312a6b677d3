"""The arithmetic of a plan, by cases that were computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.bench.capacity import (
    CACHE_ROOM,
    HTTP_CHUNKS,
    OUR_RUN,
    Load,
    Rows,
    plan,
)
from rag.bench.stock import Sizes
from rag.store.reader import CACHE_ROOM as STORE_ROOM

if TYPE_CHECKING:
    from rag.bench.capacity import Figure

MEASURED = {
    "disk/4000/per chunk": 5000.0,
    "disk/60000/per chunk": 2000.0,
    "memory/4000/working": 300.0,
    "memory/60000/working": 500.0,
    "search/4000/hybrid/cpu/library": 8.0,
    "http/cpu on top/modern": 2.0,
    "http/16 at once/modern": 80.0,
    "ingest/embed": 100.0,
    "ingest/write": 1000.0,
    "ingest/index": 9000.0,
}
PRICES = {
    "gb-month": 0.02,
    "million-requests": 0.4,
    "replica-month": 50.0,
    "machine-hour": 2.0,
    "accelerator-hour": 1.0,
}
LOAD = Load(894_000, 1, 10)  # 2,700,000 chunks


def figures(
    load: Load = LOAD,
    rows: dict[str, float] = MEASURED,
    prices: dict[str, float] = PRICES,
    accelerator: str = "l4",
) -> dict[str, Figure]:
    return {one.name: one for one in plan(load, Rows(rows), prices, accelerator)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunks", 2_700_000),
        ("storage", 5.4e9),  # 2,700,000 × 2,000
        ("memory of a replica", 2_758_350_000),  # 300 MB + 2,700,000 × 1.5 × 607
        ("CPU of a search", 213.55341),  # 8 × (1 + 9.4 × 2,696,000 / 996,000) + 2
        ("replicas", 4),  # 80 × 10.453 / 213.55 = 3.92 a second each; 10 / 3.92 = 2.6, so 3, and one more
        ("requests to a bucket", 3_521_520_000),  # 10 × 2,628,000 s × 134
        ("embedding on this machine", 7.5),  # 27,000 s
        ("embedding on the accelerator", 2.53623188),  # 2,700,000 × 210 / 62,100 s
        ("writing and indexing", 3000 / 3600),  # 2,700 s + 300 s
        ("cost of storage", 0.108),
        ("cost of requests to a bucket", 1408.608),
        ("cost of replicas", 200),
        ("cost a month", 1608.716),
        ("cost of embedding on this machine", 15),
        ("cost of embedding on the accelerator", 2.53623188),
    ],
)
def test_a_plan_is_what_one_computes_by_hand(name: str, value: float) -> None:
    assert figures()[name].value == pytest.approx(value)


def test_a_collection_whose_rows_fit_into_memory_asks_the_bucket_less() -> None:
    found = figures(Load(894_000, 1, 10, collections=23))["requests to a bucket"]  # 117,391 chunks each
    assert found.value == pytest.approx(105_120_000)  # 10 × 2,628,000 s × 4
    assert "with rows in memory" in found.how
    assert "through the engine" in figures()["requests to a bucket"].how


def test_a_search_asks_one_of_the_collections_and_a_replica_holds_all() -> None:
    million = figures(Load(894_000_000 / 2700, 1, 10))
    assert million["CPU of a search"].value == pytest.approx(8 * 10.4 + 2)
    spread = figures(Load(894_000_000 / 2700 * 5, 1, 10, collections=5))
    assert spread["CPU of a search"].value == pytest.approx(8 * 10.4 + 2)
    assert spread["memory of a replica"].value == pytest.approx(300e6 + 5e6 * 1.5 * 607)


def test_no_search_is_cheaper_than_the_cheapest_that_was_measured() -> None:
    assert figures(Load(1, 1, 1))["CPU of a search"].value == 10


def test_two_replicas_are_the_fewest_because_one_may_fail() -> None:
    assert figures(Load(1, 1, 0.001))["replicas"].value == 2


def test_beyond_what_was_measured_it_says_so() -> None:
    words = "nothing was measured beyond a million"
    assert words in figures()["CPU of a search"].how
    assert words not in figures(Load(1000, 1, 1))["CPU of a search"].how


@pytest.mark.parametrize(
    ("row", "unknown"),
    [
        ("disk/", {"storage", "cost of storage"}),
        ("memory/", {"memory of a replica"}),
        ("search/4000", {"CPU of a search", "replicas", "cost of replicas"}),
        ("http/cpu", {"CPU of a search", "replicas", "cost of replicas"}),
        ("http/16", {"replicas", "cost of replicas"}),
        ("ingest/embed", {"embedding on this machine", "cost of embedding on this machine"}),
        ("ingest/index", {"writing and indexing"}),
    ],
)
def test_what_depends_on_a_row_that_is_missing_is_not_computed(row: str, unknown: set[str]) -> None:
    rows = {name: value for name, value in MEASURED.items() if not name.startswith(row)}
    made = figures(rows=rows)
    assert {name for name, one in made.items() if one.value is None} == unknown
    assert all(made[name].how.startswith("not known: ") for name in unknown)


def test_without_prices_there_is_no_money_and_with_some_it_says_which_are_missing() -> None:
    assert not [name for name in figures(prices={}) if "cost" in name]
    some = figures(prices={"gb-month": 0.02})
    assert some["cost a month"].value == pytest.approx(0.108)
    assert some["cost a month"].how == "without requests to a bucket, replicas"
    assert some["cost of replicas"].how == "not known: no --price replica-month=…"
    nothing = figures(prices={"machine-hour": 2})
    assert "cost a month" not in nothing
    assert nothing["cost of embedding on this machine"].value == 15


def test_a_price_of_nothing_is_a_price() -> None:
    assert figures(prices={"gb-month": 0.0})["cost of storage"].value == 0


def test_what_it_takes_from_other_modules_is_what_they_say() -> None:
    assert CACHE_ROOM == STORE_ROOM
    assert Sizes().collection == HTTP_CHUNKS


def test_our_own_run_has_every_row_that_a_plan_needs() -> None:
    assert all(one.value is not None for one in figures(rows=dict(OUR_RUN)).values())
