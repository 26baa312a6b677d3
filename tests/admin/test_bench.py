"""What `refdesk-admin bench` prints; tests/bench tests the measuring itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rag.admin.bench import bench_command, comparison_table, measures_table
from rag.bench.measure import Measure
from rag.bench.run import PARTS
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

MEASURES = [
    Measure("search/hybrid/stdio", 12.341, "ms", 10, 9.73, 1234.5),
    Measure("disk", 5700.4, "bytes", None, 5700.4, 5700.4),
]


@pytest.fixture
def nothing_set(tmp_path: Path) -> str:
    """A settings file that sets nothing."""
    (tmp_path / "desk.toml").touch()
    return str(tmp_path / "desk.toml")


def called(*arguments: str) -> Result:
    return CliRunner().invoke(bench_command, arguments)


def test_figures_stand_in_columns_with_four_digits() -> None:
    assert measures_table(MEASURES).splitlines() == [
        "NAME                 MEDIAN    MIN    P95  UNIT   LIMIT  RATIO",
        "search/hybrid/stdio   12.34  9.730  1,234  ms     10.00  1.234",
        "disk                  5,700  5,700  5,700  bytes",
    ]


def test_a_comparison_shows_both_runs_and_their_ratio() -> None:
    earlier = [Measure("disk", 2850.2, "bytes", None, 1, 1), Measure("gone", 1, "ms", None, 1, 1)]
    assert comparison_table(MEASURES, earlier).splitlines() == [
        "NAME  EARLIER    NOW  UNIT   NOW/EARLIER",
        "disk    2,850  5,700  bytes        2.000",
    ]


def test_a_comparison_of_nothing_says_so() -> None:
    assert comparison_table(MEASURES, []) == "The earlier run has none of these measures."


def test_an_unknown_part_is_refused_and_the_parts_are_named() -> None:
    result = called("star")
    assert result.exit_code == 2
    assert "'star' is not one of" in result.stderr
    assert all(part in result.stderr for part in PARTS)


def test_a_file_that_is_no_run_is_refused_before_anything_is_measured(nothing_set: str) -> None:
    result = called("--config", nothing_set, "--compare", nothing_set)
    assert isinstance(result.exception, ConfigurationError)
    assert "--compare takes the output of refdesk-admin bench --json" in str(result.exception)
    assert "working in" not in result.stderr


def test_its_help_names_every_part() -> None:
    text = " ".join(called("--help").stdout.split())
    assert all(part in text for part in PARTS)
