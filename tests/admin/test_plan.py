"""Figures of a desk: refdesk-admin plan by cases that were computed by hand, and bench, which measures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rag.evaluate
from rag.admin import plan_command as module
from rag.admin.demo_command import LONGEST, sentence, timing
from rag.admin.plan_command import CACHE_ROOM, HTTP_CHUNKS, Figure, figure_text, next_step, plan
from rag.store.read.desk_reader import CACHE_ROOM as STORE_ROOM
from tests.bench.stock import Sizes

if TYPE_CHECKING:
    from tests.admin.conftest import Desk, Inside


pytestmark = pytest.mark.slow


ASKED = ("plan", "--documents", "10M", "--pages", "3", "--queries-per-second", "50")
MEASURED = (Path(rag.evaluate.__file__).parent / "measuring.md").read_text(encoding="utf-8")
CPU = 11.07 + 6.594  # of a small collection


def figures(chunks: float, searches: float = 10, collections: int = 1) -> dict[str, Figure]:
    return {figure.name: figure for figure in plan(chunks, searches, collections)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunks", 2_700_000),
        ("storage", 2_700_000 * 5_484),
        ("memory of a replica", 316.9e6 + 2_700_000 * 1.5 * 607),
        ("CPU of a search", 11.07 * (1 + 9.4 * 2_696_000 / 996_000) + 6.594),
        ("replicas", 4),  # 70.7 × 18.29 / 299.3 = 4.32 a second each; 10 / 4.32 = 2.3, so 3, and one more
        ("requests to a bucket", 3_521_520_000),  # 10 × 2,628,000 s × 134
        ("embedding", 2_700_000 / 127.9 / 3600),
        ("writing and indexing", (2_700_000 / 3_284 + 2_700_000 / 15_809) / 3600),
    ],
)
def test_a_plan_is_what_one_computes_by_hand(name: str, value: float) -> None:
    assert figures(2_700_000)[name].value == pytest.approx(value)


def test_a_collection_whose_rows_fit_into_memory_asks_the_bucket_less() -> None:
    assert figures(2_700_000, collections=30)["requests to a bucket"].value == 10 * 2_628_000 * 4
    assert figures(2_700_000)["requests to a bucket"].value == 10 * 2_628_000 * 134


def test_a_search_asks_one_of_the_collections_and_replicas_share_them() -> None:
    million, spread = figures(1e6), figures(5e6, searches=20, collections=5)
    assert (
        spread["CPU of a search"].value
        == million["CPU of a search"].value
        == pytest.approx(11.07 * 10.4 + 6.594)
    )
    assert spread["replicas"].value == 3
    assert spread["memory of a replica"].value == pytest.approx(316.9e6 + 2.5e6 * 1.5 * 607)  # of two
    alone = figures(5e6, searches=0.1, collections=5)
    assert alone["memory of a replica"].value == pytest.approx(316.9e6 + 5e6 * 1.5 * 607)
    many = figures(5e6, searches=1000, collections=5)  # no collection is divided
    assert many["memory of a replica"].value == pytest.approx(316.9e6 + 1e6 * 1.5 * 607)


def test_no_search_is_cheaper_than_the_cheapest_that_was_measured() -> None:
    assert figures(3)["CPU of a search"].value == pytest.approx(CPU)


def test_two_replicas_are_the_fewest_because_one_may_fail() -> None:
    assert figures(3, 0.001)["replicas"].value == 2


@pytest.mark.parametrize(
    ("chunks", "begins"), [(1, "From 90,000"), (90_001, "From 1,000,000"), (2_500_000, "A collection has")]
)
def test_a_plan_says_where_a_search_takes_another_way(chunks: float, begins: str) -> None:
    assert next_step(chunks).startswith(begins)


def test_beyond_what_was_measured_it_says_so() -> None:
    words = "nothing was measured beyond a million"
    assert words in figures(1_000_001)["CPU of a search"].how
    assert words not in figures(1_000_000)["CPU of a search"].how


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("search/4000/hybrid/cpu/library", module.SMALL_CPU),
        ("http/cpu on top/modern", module.HTTP_CPU),
        ("http/16 at once/modern", module.HTTP_RATE),
        ("memory/4000/working", module.SERVER_BYTES / 1e6),
        ("ingest/write", module.WRITTEN),
        ("ingest/index", module.INDEXED),
    ],
)
def test_the_plan_s_constants_are_those_of_the_benchmark_s_page(row: str, value: float) -> None:
    cells = re.search(rf"^\|[^|]*\| `{re.escape(row)}` \| ([\d.,]+) ", MEASURED, re.MULTILINE)
    assert cells
    assert float(cells[1].replace(",", "")) == value


def test_the_plan_s_constants_are_those_of_the_modules() -> None:
    assert CACHE_ROOM == STORE_ROOM
    assert Sizes().collection == HTTP_CHUNKS


def test_a_plan_is_printed_with_where_each_figure_is_from(desk: Desk) -> None:
    run = desk.run(*ASKED)
    lines = run.stdout.splitlines()
    assert lines[:2] == ["chunks: 90,604,027", "    2,700 characters a page, 894 a chunk"]
    names = [line.partition(":")[0] for line in lines if line and not line.startswith(" ")]
    assert {"storage", "memory of a replica", "replicas", "requests to a bucket", "embedding"} <= {*names}
    assert "measuring.md" in run.stdout
    assert not desk.data.exists()


NO_AMOUNTS = ["0", "-1", "1e15", "2000B", "ten", "", "1,000", "nan", "inf", "1.M", "²"]


@pytest.mark.parametrize(
    ("option", "number"),
    [*(("--documents", number) for number in NO_AMOUNTS), ("--pages", "ten"), ("--queries-per-second", "0")],
)
def test_an_amount_that_is_no_number_is_refused(inside: Inside, option: str, number: str) -> None:
    options = {"--documents": "10", "--pages": "3", "--queries-per-second": "1"} | {option: number}
    arguments = [part for pair in options.items() for part in pair]
    assert option in inside.misuse("plan", *arguments)


@pytest.mark.parametrize("number", ["1", "0.001", "1_000", "2.5k", "1000B"])
def test_an_amount_may_have_underscores_and_a_unit(inside: Inside, number: str) -> None:
    inside.run("plan", "--documents", number, "--queries-per-second", number)


def test_no_collections_are_refused(inside: Inside) -> None:
    assert "--collections" in inside.misuse(*ASKED, "--collections", "0")


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (Figure("a", 2.74e11, "bytes", ""), "274 GB"),
        (Figure("a", 5e17, "bytes", ""), "500 PB"),
        (Figure("a", 1000, "bytes", ""), "0.001 MB"),
        (Figure("a", 5, "", ""), "5"),
        (Figure("a", 1234.5, "hours", ""), "1,234 hours"),
    ],
)
def test_figures_are_shown_with_three_digits(figure: Figure, words: str) -> None:
    assert figure_text(figure) == words


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*.lance*/**/*")
        if path.is_file()
    }


def test_start_and_search_are_measured_on_the_desk_s_documents_which_stay_as_they_are(
    clock_desk: Desk,
) -> None:
    before = state(clock_desk.data)
    measured = clock_desk.json("bench")
    assert measured["questions"] > 0
    assert [(row["name"], row["unit"]) for row in measured["timings"]] == [
        ("start to the list of tools", "ms"),
        ("first search", "ms"),
        ("search", "ms"),
        ("8 searches at once", "searches/s"),
    ]
    assert all(0 < row["least"] <= row["median"] <= row["p95"] for row in measured["timings"])
    assert before
    assert state(clock_desk.data) == before


def test_questions_of_ones_own_are_asked_and_the_figures_stand_in_columns(clock_desk: Desk) -> None:
    run = clock_desk.run("bench", "Who sold the time?")
    head, *rows = run.stdout.splitlines()
    assert head.split() == ["WHAT", "MEDIAN", "LEAST", "95TH", "PERCENTILE", "UNIT"]
    assert len(rows) == 4
    assert "1 question" in run.stderr


def test_who_may_see_nothing_is_told_how_to_ask_as_somebody_else(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("The clock of the tower was slow by a minute, so the train left.")
    desk.run("ingest", tmp_path / "a.md", "--visibility", "restricted", "--allow", "group:staff")
    assert desk.json("bench", "--group", "staff")["questions"] == 1
    refused = desk.run("bench", "--user", "eve", code=1)
    assert "--group" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Oh! The clock of the tower was slow by a minute. So?",
            "The clock of the tower was slow by a minute.",
        ),
        ("short\ntext", "short text"),
        ("word " * 100, ("word " * 20).strip()),
        ("字" * 300, "字" * LONGEST),
        ("x" * 300, "x" * LONGEST),
        (
            "Version 3.14 of the clock was the first to be right.",
            "Version 3.14 of the clock was the first to be right.",
        ),
    ],
)
def test_a_question_is_the_first_long_sentence_or_the_beginning(text: str, expected: str) -> None:
    assert sentence(text) == expected


@pytest.mark.parametrize(
    ("values", "p95"), [([3.0], 3.0), ([3.0, 1.0, 2.0], 3.0), ([float(n) for n in range(1, 101)], 95.0)]
)
def test_a_timing_has_the_median_the_least_and_the_95th_percentile(values: list[float], p95: float) -> None:
    figures = timing("search", values, "ms")
    assert (figures.least, figures.p95) == (min(values), p95)
    assert figures.least <= figures.median <= figures.p95
