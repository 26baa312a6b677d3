"""`refdesk-admin plan`; tests/bench/test_capacity.py has its arithmetic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.admin.plan import shown
from rag.bench.capacity import Figure
from rag.bench.measure import as_json, measured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk, Inside

ASKED = ("plan", "--documents", "10M", "--pages", "3", "--queries-per-second", "50")


def test_a_plan_is_printed_with_where_each_figure_is_from(desk: Desk) -> None:
    run = desk.run(*ASKED, "--accelerator", "l4", "--price", "gb-month=0.023", "--price", "replica-month=80")
    lines = run.stdout.splitlines()
    assert lines[0] == "chunks: 90,604,027"
    assert lines[1] == "    2,700 characters a page, 894 a chunk"
    names = [line.partition(":")[0] for line in lines if line and not line.startswith(" ")]
    assert {"storage", "memory of a replica", "replicas", "embedding on this machine"} <= {*names}
    assert {"embedding on the accelerator", "requests to a bucket", "cost a month"} <= {*names}
    assert "NVIDIA L4" in run.stdout
    assert "refdesk's own run" in run.stdout
    assert not desk.data.exists()


def test_a_plan_by_this_machine_s_figures(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(as_json([measured("ingest/embed", [100], "chunks/s")])))
    found = desk.json(
        "plan", "--documents", "894k", "--pages", "1", "--queries-per-second", "1", "--bench", file
    )
    assert found["measured"] == str(file)
    by_name = {one["name"]: one for one in found["figures"]}
    assert by_name["embedding on this machine"]["value"] == 7.5
    assert by_name["storage"]["value"] is None
    assert by_name["storage"]["how"].startswith("not known: no row disk/…/per chunk; run refdesk-admin bench")


@pytest.mark.parametrize("number", ["0", "-1", "1e15", "2000B", "ten", "", "1,000", "nan", "inf", "1.M", "²"])
@pytest.mark.parametrize("option", ["--documents", "--pages", "--queries-per-second"])
def test_what_is_no_number_of_that_is_refused(inside: Inside, option: str, number: str) -> None:
    given = {"--documents": "10", "--pages": "3", "--queries-per-second": "1"} | {option: number}
    arguments = [part for pair in given.items() for part in pair]
    assert option in inside.run("plan", *arguments, code=2).stderr


@pytest.mark.parametrize("number", ["1", "0.001", "1_000", "2.5k", "1000B"])
def test_what_is_a_number_is_taken(inside: Inside, number: str) -> None:
    inside.run("plan", "--documents", number, "--queries-per-second", number)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--price", "gold=3"), "'gold' has no price here; there are gb-month,"),
        (("--price", "gb-month"), "'gb-month' is no price like gb-month=0.02"),
        (("--price", "gb-month=-1"), "is no price like"),
        (("--price", "gb-month=nan"), "is no price like"),
        (("--collections", "0"), "0 is not in the range"),
        (("--accelerator", "abacus"), "'abacus' is not one of 'l4'"),
        (("--bench", "nowhere.json"), "Cannot read the benchmark run nowhere.json"),
        (("--bench", __file__), "is not a benchmark run"),
    ],
)
def test_misuse_is_said_in_words(inside: Inside, arguments: tuple[str, ...], words: str) -> None:
    run = inside.run(*ASKED, *arguments, code=2)
    assert words in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (Figure("a", 2.74e11, "bytes", ""), "274 GB"),
        (Figure("a", 5e17, "bytes", ""), "500 PB"),
        (Figure("a", 1000, "bytes", ""), "0.001 MB"),
        (Figure("a", 5, "", ""), "5"),
        (Figure("a", 1234.5, "hours", ""), "1,234 hours"),
        (Figure("a", None, "hours", ""), "?"),
    ],
)
def test_figures_are_shown_with_three_digits(figure: Figure, words: str) -> None:
    assert shown(figure) == words
