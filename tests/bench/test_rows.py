"""The table "Measured" of rag/evaluate/measuring.md is what `refdesk-admin bench --markdown` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rag.evaluate
from rag.admin.bench import MARKDOWN, markdown_table, measured_with
from rag.bench.measure import Measure
from rag.bench.rows import Row, rows
from rag.bench.stock import LARGE, Sizes

PAGE = (Path(rag.evaluate.__file__).parent / "measuring.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Measured\n")[2].partition("\n## ")[0]
HEAD = f"| {' | '.join(MARKDOWN)} |"
NUMBER = r"-?[\d,]*\d(?:\.\d+)?"
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
        r"^Measured on \d{4}-\d\d-\d\d by `refdesk-admin bench(?: --large)?` in \d+ minutes, "
        r"on \d+ \S+ cores with Python 3\.\d+\.\d+:$",
        SECTION,
        re.MULTILINE,
    )


def test_the_command_prints_it_in_the_same_form() -> None:
    assert re.fullmatch(
        r"Measured on [0-9-]{10} by `refdesk-admin bench` in 7 minutes, on \d+ \S+ cores with Python .+:",
        measured_with("refdesk-admin bench", 7 * 60 + 20),
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
