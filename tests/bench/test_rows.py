"""What `python -m tests.bench` prints; the table "Measured" of rag/evaluate/measuring.md is that, pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import rag.evaluate
from tests.bench.__main__ import (
    MARKDOWN,
    bench,
    comparison_table,
    markdown_table,
    measured_with,
    measures_table,
)
from tests.bench.measure import Measure
from tests.bench.rows import Row, rows
from tests.bench.run import PARTS
from tests.bench.stock import LARGE, Sizes

pytestmark = pytest.mark.slow

PAGE = (Path(rag.evaluate.__file__).parent / "measuring.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Measured\n")[2].partition("\n## ")[0]
HEAD = f"| {' | '.join(MARKDOWN)} |"
NUMBER = r"-?[\d,]*\d(?:\.\d+)?"
MEASURES = [
    Measure("search/hybrid/stdio", 12.341, "ms", 10, 9.73, 1234.5),
    Measure("disk", 5700.4, "bytes", None, 5700.4, 5700.4),
]
UNITS = {"ms", "s", "MB", "bytes", "hits", "share", "chunks/s", "searches/s"}


@pytest.fixture(scope="module")
def cells() -> list[list[str]]:
    """The cells of each row of the table."""
    lines = SECTION[SECTION.index(HEAD) :].splitlines()
    table = lines[: lines.index("")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_it_has_the_rows_of_a_run_in_its_words_and_no_others(cells: list[list[str]]) -> None:
    shown = [(what, measure, aim) for what, measure, _, _, _, aim in cells]
    assert shown in [
        [(row.what, f"`{row.measure}`", row.aim) for row in rows(sizes)] for sizes in (Sizes(), LARGE)
    ]


def test_its_figures_have_the_form_of_the_command_and_a_spread_around_them(cells: list[list[str]]) -> None:
    for _, measure, value, spread, ratio, _ in cells:
        figure = re.fullmatch(rf"({NUMBER}) (\S+)", value)
        ends = re.fullmatch(rf"({NUMBER}) to ({NUMBER})", spread)
        assert figure, measure
        assert ends, measure
        assert figure[2] in UNITS
        assert re.fullmatch(rf"(?:{NUMBER} ×)?", ratio), measure
        assert number(ends[1]) <= number(figure[1]) <= number(ends[2]), measure


def test_it_says_when_and_by_which_command_it_was_measured() -> None:
    assert re.search(
        r"^Measured on \d{4}-\d\d-\d\d by `python -m tests.bench(?: --large)?` in \d+ minutes, "
        r"on \d+ \S+ cores with Python 3\.\d+\.\d+:$",
        SECTION,
        re.MULTILINE,
    )


def test_the_command_prints_it_in_the_same_form() -> None:
    assert re.fullmatch(
        r"Measured on [0-9-]{10} by `python -m tests.bench` in 7 minutes, on \d+ \S+ cores with Python .+:",
        measured_with("python -m tests.bench", 7 * 60 + 20),
    )


def test_a_row_has_its_words_its_measure_figure_spread_ratio_and_aim() -> None:
    measures = [
        Measure("a", 12.3456, "ms", 10, 9.5, 1234),
        Measure("not shown", 1, "ms", None, 1, 1),
        Measure("b", 5700, "bytes", None, 5700, 5700),
    ]
    shown = (Row("b", "disk"), Row("missing", "not measured in this run"), Row("a", "search", "≤ 9 ms"))
    assert markdown_table(shown, measures).splitlines() == [
        HEAD,
        "| --- | --- | --- | --- | --- | --- |",
        "| disk | `b` | 5,700 bytes | 5,700 to 5,700 |  |  |",
        "| search | `a` | 12.35 ms | 9.500 to 1,234 | 1.235 × | ≤ 9 ms |",
    ]


@pytest.mark.parametrize("sizes", [Sizes(), LARGE])
def test_no_measure_has_two_rows(sizes: Sizes) -> None:
    names = [row.measure for row in rows(sizes)]
    assert len(set(names)) == len(names) > 60


def test_a_large_run_has_rows_of_its_own() -> None:
    more = {row.measure for row in rows(LARGE)} - {row.measure for row in rows(Sizes())}
    assert {"search/60000/hybrid/stdio", "memory/60000/working", "index/1000000/recall@20"} <= more


def test_figures_stand_in_columns_with_four_digits() -> None:
    assert measures_table(MEASURES).splitlines() == [
        "NAME                 MEDIAN    MIN    P95  UNIT   LIMIT  RATIO",
        "search/hybrid/stdio   12.34  9.730  1,234  ms     10.00  1.234",
        "disk                  5,700  5,700  5,700  bytes",
    ]


def test_a_comparison_shows_what_both_runs_have_and_their_ratio() -> None:
    earlier = [Measure("disk", 2850.2, "bytes", None, 1, 1), Measure("gone", 1, "ms", None, 1, 1)]
    assert comparison_table(MEASURES, earlier).splitlines() == [
        "NAME  EARLIER    NOW  UNIT   NOW/EARLIER",
        "disk    2,850  5,700  bytes        2.000",
    ]
    assert comparison_table(MEASURES, []) == "The earlier run has none of these measures."


def test_its_rows_are_printed_in_markdown_and_as_json_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def measured(parts: list[str], **_how: object) -> list[Measure]:
        assert parts == ["start"]
        return [Measure("start/first answer", 700, "ms", 500, 600, 800), *MEASURES]

    monkeypatch.setattr("tests.bench.__main__.run_bench", measured)
    page = CliRunner().invoke(bench, ["start", "--markdown"])
    head, empty, *table = page.stdout.splitlines()
    assert "by `python -m tests.bench start` in 0 minutes" in head
    assert empty == ""
    assert [line.split("|")[2].strip() for line in table] == ["measure", "---", "`start/first answer`"]
    (tmp_path / "before.json").write_text(CliRunner().invoke(bench, ["start", "--json"]).stdout)
    compared = CliRunner().invoke(bench, ["start", "--compare", str(tmp_path / "before.json")])
    assert re.search(r"disk +5,700 +5,700 +bytes +1\.000", compared.stdout)


def test_what_is_no_part_and_two_forms_at_once_are_refused() -> None:
    unknown = CliRunner().invoke(bench, ["star"])
    assert unknown.exit_code == CliRunner().invoke(bench, ["--json", "--markdown"]).exit_code == 2
    assert all(part in unknown.stderr for part in PARTS)
