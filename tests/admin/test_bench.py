"""`refdesk-admin bench`: the documents of a desk, searched as somebody may; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.admin.bench_command import LONGEST, sentence, timing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


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
