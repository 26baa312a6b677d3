"""Whole runs, on so little that the figures mean nothing, and the rows that they print."""

from __future__ import annotations

import re
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest
from click.testing import CliRunner

import rag.evaluate
from rag.errors import RefdeskError
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
from tests.bench.run import PARTS, run_bench
from tests.bench.stock import LARGE, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

SMALL = Sizes(
    searches=2,
    starts=1,
    rounds=1,
    small=10,
    collection=20,
    index=(40,),
    tenants=(1, 3),
    tenant=20,
    files=1,
    changes=2,
    book=20,
)
AT_MOST_SECONDS = 300  # for what takes ten seconds on an idle machine
SEARCHED = (10, 20)
MODES = ("dense", "sparse", "hybrid")
CALLERS = ("library", "stdio")
STEPS = ("read", "parse", "chunk", "embed", "write", "index", "whole run")
SHARES = ("50 %", "1 %", "0.01 %")
ERAS = ("legacy", "modern")
ON_TOP = {f"http/cpu on top/{era}" for era in ERAS}  # less than 0 at times
FILTERS = ("", *(f"/access and filter {share}" for share in SHARES))
TOLD = ("", "/mean", "/worst")  # of the changes of documents


def run(corpus: Path, *parts: str, say: Callable[[str], None]) -> list[Measure]:
    return anyio.run(partial(run_bench, parts, corpus=corpus, sizes=SMALL, say=say))


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What the run said."""
    return []


@pytest.fixture(scope="module")
def earlier() -> set[psutil.Process]:
    """Processes of other tests."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def measures(few_sentences: Path, lines: list[str], earlier: set[psutil.Process]) -> dict[str, Measure]:  # noqa: ARG001 looked up before
    """All parts but the start, which the part tables measures in the same way: 40 s of CPU, so at night."""
    measured = run(few_sentences, *(part for part in PARTS if part != "start"), say=lines.append)
    assert len({measure.name for measure in measured}) == len(measured)
    return {measure.name: measure for measure in measured}


@pytest.mark.nightly
def test_every_figure_has_its_name_and_its_unit(measures: dict[str, Measure]) -> None:
    assert {name: measure.unit for name, measure in measures.items()} == {
        **{
            f"search/{size}/{mode}{what}/{caller}": "ms"
            for size in SEARCHED
            for mode in MODES
            for what in ("", "/cpu")
            for caller in CALLERS
        },
        **{f"search/{size}/reply of ten": "bytes" for size in SEARCHED},
        **{f"search/{size}/hits of ten": "hits" for size in SEARCHED},
        "search/second collection": "ms",
        "search/second collection/cpu": "ms",
        **{f"get_source{which}/{caller}": "ms" for which in ("", "/5 MB") for caller in CALLERS},
        **{f"concurrency/{level}/{caller}": "searches/s" for level in (1, 4, 16) for caller in CALLERS},
        **{f"http/{what}/{era}": "ms" for what in ("search", "cpu", "cpu on top") for era in ERAS},
        **{f"http/16 at once/{era}": "searches/s" for era in ERAS},
        **{f"memory/{size}/{state}": "MB" for size in SEARCHED for state in ("idle", "working")},
        **{f"ingest/{step}": "chunks/s" for step in STEPS},
        "ingest/unchanged": "s",
        **{f"change/{count}/cpu{statistic}": "ms" for count in (20, 40) for statistic in TOLD},
        **{f"change/{count}/written{statistic}": "bytes" for count in (20, 40) for statistic in TOLD},
        "ingest/peak memory": "MB",
        "disk/per chunk": "bytes",
        **{f"disk/{size}/per chunk": "bytes" for size in SEARCHED},
        **{f"index/40/recall@20{which}": "share" for which in FILTERS},
        **{f"index/40/search{which}": "ms" for which in FILTERS},
        **{f"access/search {share}": "ms" for share in SHARES},
        "access/worst filter": "ms",
        "access/refused filter": "ms",
        **{
            f"tables/{count}/{what}": "ms" for count in (1, 3) for what in ("search", "start", "first search")
        },
    }


@pytest.mark.nightly
def test_every_figure_is_positive_and_lies_between_its_own_bounds(measures: dict[str, Measure]) -> None:
    figures = [measure for name, measure in measures.items() if name not in ON_TOP]
    assert not [measure for measure in figures if not 0 < measure.min <= measure.value <= measure.p95]


@pytest.mark.nightly
def test_only_what_nothing_limits_has_no_ratio(measures: dict[str, Measure]) -> None:
    without = {name for name, measure in measures.items() if measure.ratio is None}
    nothing = {"ingest/embed", "ingest/unchanged", "ingest/peak memory"}
    nothing |= ON_TOP | {f"change/20/{what}{statistic}" for what in ("cpu", "written") for statistic in TOLD}
    nothing |= {
        name for size in SEARCHED for name in (f"search/{size}/hits of ten", f"disk/{size}/per chunk")
    }
    assert without == nothing | {"access/worst filter", "access/refused filter"}


@pytest.mark.nightly
def test_many_searches_over_stdio_are_measured_against_the_library(measures: dict[str, Measure]) -> None:
    assert measures["concurrency/16/stdio"].limit == measures["concurrency/16/library"].value


@pytest.mark.nightly
def test_a_reply_weighs_more_than_the_texts_in_it(measures: dict[str, Measure]) -> None:
    reply = measures["search/20/reply of ten"]
    assert reply.limit
    assert reply.limit > 1000
    assert reply.value > reply.limit
    assert 1 <= measures["search/20/hits of ten"].value <= 10


@pytest.mark.nightly
def test_every_row_of_the_published_table_has_a_measure(measures: dict[str, Measure]) -> None:
    assert {row.measure for row in rows(SMALL)} - measures.keys() == {
        "start/first answer",
        "start/first search",
    }


@pytest.mark.nightly
def test_many_tenants_are_measured_against_the_fewest(measures: dict[str, Measure]) -> None:
    assert measures["tables/3/first search"].limit == measures["tables/1/first search"].value


@pytest.mark.nightly
def test_steps_are_measured_against_the_embedder_alone(measures: dict[str, Measure]) -> None:
    for step in ("read", "write", "whole run"):
        assert measures[f"ingest/{step}"].limit == measures["ingest/embed"].value


@pytest.mark.nightly
def test_without_a_vector_index_everything_is_found(measures: dict[str, Measure]) -> None:
    assert [measures[f"index/40/recall@20{which}"].value for which in FILTERS] == [1, 1, 1, 1]


@pytest.mark.nightly
def test_a_run_says_what_it_is_doing(measures: dict[str, Measure], lines: list[str]) -> None:
    assert measures
    assert "making a collection of 40 chunks" in lines
    assert "searching, 16 at once" in lines
    assert "making a database of 3 tenants" in lines


@pytest.mark.nightly
def test_a_run_leaves_nothing_behind(
    measures: dict[str, Measure], lines: list[str], earlier: set[psutil.Process]
) -> None:
    assert measures
    folder = Path(lines[0].removeprefix("working in "))
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()
    assert set(psutil.Process().children(recursive=True)) <= earlier


def test_a_run_that_fails_leaves_nothing_behind(few_sentences: Path) -> None:
    progress: list[str] = []

    def stop_at_ingestion(line: str) -> None:
        progress.append(line)
        if line.startswith("ingesting"):
            (Path(progress[0].removeprefix("working in ")) / "settings.toml").write_text("nonsense = 1")

    with pytest.raises(RefdeskError, match="refdesk-admin ingest failed with exit code 2"):
        run(few_sentences, "ingestion", say=stop_at_ingestion)
    assert not Path(progress[0].removeprefix("working in ")).exists()


BENCH = """
import functools, sys
from tests.bench import __main__ as command
command.Sizes = functools.partial(command.Sizes, small=100)
command.bench(["search", "--texts", *sys.argv[1:]])
"""


def test_a_run_that_is_told_to_end_ends_its_server_and_removes_its_folder(
    scripts: Scripts, few_sentences: Path
) -> None:
    bench = (sys.executable, "-c", BENCH, few_sentences)
    with scripts.process(*bench, cwd=Path(__file__).parents[2]) as process:
        assert process.stderr
        folder = Path(process.stderr.readline().partition("working in ")[2].strip())
        assert folder.is_dir()
        assert any(line.endswith("searching in mode dense\n") for line in process.stderr)
        servers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)  # which it takes as Ctrl-C
        out, errors = process.communicate()
    assert servers
    assert psutil.wait_procs(servers, timeout=AT_MOST_SECONDS)[1] == []
    assert process.returncode == 1
    assert not folder.exists()
    assert "Traceback" not in errors
    assert out == ""


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


def test_the_published_table_has_the_rows_of_a_run_in_its_words_and_no_others(cells: list[list[str]]) -> None:
    written = [(what, measure, aim) for what, measure, _, _, _, aim in cells]
    assert written in [
        [(row.what, f"`{row.measure}`", row.aim) for row in rows(sizes)] for sizes in (Sizes(), LARGE)
    ]


def test_the_published_figures_have_the_form_of_the_command_and_a_spread_around_them(
    cells: list[list[str]],
) -> None:
    for _, measure, value, spread, ratio, _ in cells:
        figure = re.fullmatch(rf"({NUMBER}) (\S+)", value)
        ends = re.fullmatch(rf"({NUMBER}) to ({NUMBER})", spread)
        assert figure, measure
        assert ends, measure
        assert figure[2] in UNITS
        assert re.fullmatch(rf"(?:{NUMBER} ×)?", ratio), measure
        assert number(ends[1]) <= number(figure[1]) <= number(ends[2]), measure


def test_the_published_table_says_when_and_by_which_command_it_was_measured() -> None:
    assert re.search(
        r"^Measured on \d{4}-\d\d-\d\d by `python -m tests.bench(?: --large)?` in \d+ minutes, "
        r"on \d+ \S+ cores with Python 3\.\d+\.\d+:$",
        SECTION,
        re.MULTILINE,
    )


def test_the_command_says_in_the_same_form_when_it_measured() -> None:
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
    row_specs = (Row("b", "disk"), Row("missing", "not measured in this run"), Row("a", "search", "≤ 9 ms"))
    assert markdown_table(row_specs, measures).splitlines() == [
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
