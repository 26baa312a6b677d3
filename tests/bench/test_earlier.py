from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.bench.earlier import as_json, changes, read_run
from rag.bench.measure import Measure, measured
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

FAST = measured("search", [1.0, 2.0, 4.0], "ms", [1.0])
DISK = measured("disk", [5.0], "MB")
RECORD = as_json([FAST])["measures"][0]


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
        str(error.value)
        == f"{file} is no earlier run; --compare takes what refdesk-admin bench --json printed."
    )


def test_a_file_that_is_no_text_is_refused_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is no earlier run"):
        read_run(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_can_t_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_run(tmp_path / name)
    assert str(error.value).startswith(f"The earlier run {tmp_path / name} can't be read: ")


def test_what_both_runs_measured_is_compared_in_the_order_of_this_one() -> None:
    earlier = [DISK, Measure("gone", 1, "ms", None, 1, 1), Measure("search", 8, "ms", 1, 1, 1)]
    new = Measure("new", 1, "ms", None, 1, 1)
    assert changes([new, FAST, DISK], earlier) == [(FAST, earlier[2]), (DISK, DISK)]


def test_figures_in_other_units_are_not_compared() -> None:
    assert changes([FAST], [Measure("search", 8, "s", 1, 1, 1)]) == []
