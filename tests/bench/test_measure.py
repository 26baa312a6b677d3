from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.errors import ConfigurationError
from tests.bench.measure import Measure, as_json, in_both, measured, p95, read_run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

FAST = measured("search", [1.0, 2.0, 4.0], "ms", [1.0])
DISK = measured("disk", [5.0], "MB")
RECORD = as_json([FAST])["measures"][0]


def test_a_measure_is_the_median_its_limit_the_limit_s_and_its_ratio_what_the_two_make() -> None:
    measure = measured("x", [3, 1, 2], "ms", [5, 4, 1])
    assert (measure.value, measure.min, measure.p95) == (2, 1, 3)
    assert (measure.limit, measure.ratio) == (4, 0.5)


@pytest.mark.parametrize("limits", [[], [0.0]])
def test_without_a_limit_there_is_no_ratio(limits: list[float]) -> None:
    assert measured("x", [3], "ms", limits).ratio is None


def test_of_an_even_number_of_values_the_median_lies_between_two() -> None:
    assert measured("x", [4, 1, 2, 9], "ms").value == 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [(range(1, 101), 95), (range(100, 0, -1), 95), (range(1, 21), 19), (range(1, 20), 19), ([7], 7)],
)
def test_ninety_five_in_a_hundred_values_do_not_exceed_p95(values: range | list[int], expected: int) -> None:
    assert p95(values) == expected


def test_a_run_as_json_names_these_keys_and_no_others() -> None:
    assert as_json([FAST, DISK]) == {
        "measures": [
            {
                "name": "search",
                "value": 2.0,
                "unit": "ms",
                "limit": 1.0,
                "ratio": 2.0,
                "min": 1.0,
                "p95": 4.0,
            },
            {
                "name": "disk",
                "value": 5.0,
                "unit": "MB",
                "limit": None,
                "ratio": None,
                "min": 5.0,
                "p95": 5.0,
            },
        ]
    }


def test_what_was_printed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(as_json([FAST, DISK])))
    assert read_run(tmp_path / "run.json") == [FAST, DISK]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"measures": 3}',
        '{"measures": [], "more": 1}',
        json.dumps({"measures": [RECORD | {"value": "fast"}]}),
        json.dumps({"measures": [RECORD | {"more": 1}]}),
        json.dumps({"measures": [{key: RECORD[key] for key in RECORD if key != "p95"}]}),
    ],
)
def test_anything_else_is_refused_and_the_message_says_what_is_wanted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_run(file)
    assert (
        str(error.value) == f"{file} is not a benchmark run. Give the output of python -m tests.bench --json."
    )


def test_a_file_that_is_no_text_is_refused_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not a benchmark run"):
        read_run(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_can_t_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_run(tmp_path / name)
    assert str(error.value).startswith(f"Cannot read the benchmark run {tmp_path / name}: ")


def test_what_both_runs_measured_is_compared_in_the_order_of_this_one() -> None:
    earlier = [DISK, Measure("gone", 1, "ms", None, 1, 1), Measure("search", 8, "ms", 1, 1, 1)]
    new = Measure("new", 1, "ms", None, 1, 1)
    assert in_both([new, FAST, DISK], earlier) == [(FAST, earlier[2]), (DISK, DISK)]


def test_figures_in_other_units_are_not_compared() -> None:
    assert in_both([FAST], [Measure("search", 8, "s", 1, 1, 1)]) == []
