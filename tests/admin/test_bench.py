"""What `refdesk-admin bench` prints; tests/bench tests the measuring itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import rag.admin.bench
from rag.admin.bench import bench_command, comparison_table, measures_table
from rag.bench.measure import Measure
from rag.bench.run import PARTS
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from click.testing import Result

    from rag.config.settings import Settings

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
    assert "Give the output of refdesk-admin bench --json" in str(result.exception)
    assert "working in" not in result.stderr


def test_its_help_names_every_part() -> None:
    text = " ".join(called("--help").stdout.split())
    assert all(part in text for part in PARTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--markdown", "--json"), "Give only one of --markdown and --json."),
        (("search", "--real", "."), "--real goes with no PARTs"),
        (("--large", "--real", "."), "--real goes with no PARTs"),
        (("--markdown", "--real", "."), "--real goes with no PARTs"),
        (("--real", "nowhere"), "Directory 'nowhere' does not exist."),
        (("--real", "desk.toml"), "Directory 'desk.toml' is a file."),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_anything_is_measured(
    nothing_set: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(Path(nothing_set).parent)
    result = called("--config", nothing_set, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "working in" not in result.stderr


def test_it_prints_the_rows_of_what_was_measured_in_markdown(
    nothing_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured(parts: list[str], **_how: object) -> list[Measure]:
        assert parts == ["start"]
        return [Measure("start/first answer", 700, "ms", 500, 600, 800), *MEASURES]

    monkeypatch.setattr(rag.admin.bench, "run_bench", measured)
    head, empty, *table = called("--config", nothing_set, "start", "--markdown").stdout.splitlines()
    assert head.startswith("Measured on ")
    assert "by `refdesk-admin bench start` in 0 minutes" in head
    assert empty == ""
    assert [line.split("|")[2].strip() for line in table] == ["measure", "---", "`start/first answer`"]


def test_own_documents_are_measured_with_the_settings_and_compared(
    nothing_set: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def measured(
        folder: Path, settings: Settings, _environment: object, **_how: object
    ) -> list[Measure]:
        assert folder == tmp_path
        assert settings.ingest.archives
        return MEASURES

    Path(nothing_set).write_text("[ingest]\narchives = true\n")
    monkeypatch.setattr(rag.admin.bench, "run_real", measured)
    made = called("--config", nothing_set, "--real", str(tmp_path), "--json")
    (tmp_path / "before.json").write_text(made.stdout)
    result = called(
        "--config", nothing_set, "--real", str(tmp_path), "--compare", str(tmp_path / "before.json")
    )
    assert "disk                  5,700" in result.stdout
    assert re.search(r"disk +5,700 +5,700 +bytes +1\.000", result.stdout)
