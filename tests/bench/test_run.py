"""Whole runs, on so little that the figures mean nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest

from rag.errors import RefdeskError
from tests.bench.rows import rows
from tests.bench.run import PARTS, run_bench
from tests.bench.stock import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.measure import Measure
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
def others() -> set[psutil.Process]:
    """Processes of other tests."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def measures(few_sentences: Path, lines: list[str], others: set[psutil.Process]) -> dict[str, Measure]:  # noqa: ARG001 looked up before
    """All parts but the start, which the part tables measures in the same way."""
    made = run(few_sentences, *(part for part in PARTS if part != "start"), say=lines.append)
    assert len({one.name for one in made}) == len(made)
    return {one.name: one for one in made}


def test_every_figure_has_its_name_and_its_unit(measures: dict[str, Measure]) -> None:
    assert {name: one.unit for name, one in measures.items()} == {
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
        **{f"change/{count}/cpu{told}": "ms" for count in (20, 40) for told in TOLD},
        **{f"change/{count}/written{told}": "bytes" for count in (20, 40) for told in TOLD},
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


def test_every_figure_is_positive_and_lies_between_its_own_bounds(measures: dict[str, Measure]) -> None:
    figures = [one for name, one in measures.items() if name not in ON_TOP]
    assert not [one for one in figures if not 0 < one.min <= one.value <= one.p95]


def test_only_what_nothing_limits_has_no_ratio(measures: dict[str, Measure]) -> None:
    without = {name for name, one in measures.items() if one.ratio is None}
    nothing = {"ingest/embed", "ingest/unchanged", "ingest/peak memory"}
    nothing |= ON_TOP | {f"change/20/{what}{told}" for what in ("cpu", "written") for told in TOLD}
    nothing |= {
        name for size in SEARCHED for name in (f"search/{size}/hits of ten", f"disk/{size}/per chunk")
    }
    assert without == nothing | {"access/worst filter", "access/refused filter"}


def test_many_searches_over_stdio_are_measured_against_the_library(measures: dict[str, Measure]) -> None:
    assert measures["concurrency/16/stdio"].limit == measures["concurrency/16/library"].value


def test_a_reply_weighs_more_than_the_texts_in_it(measures: dict[str, Measure]) -> None:
    reply = measures["search/20/reply of ten"]
    assert reply.limit
    assert reply.limit > 1000
    assert reply.value > reply.limit
    assert 1 <= measures["search/20/hits of ten"].value <= 10


def test_every_row_of_the_published_table_has_a_measure(measures: dict[str, Measure]) -> None:
    assert {one.measure for one in rows(SMALL)} - measures.keys() == {
        "start/first answer",
        "start/first search",
    }


def test_many_tenants_are_measured_against_the_fewest(measures: dict[str, Measure]) -> None:
    assert measures["tables/3/first search"].limit == measures["tables/1/first search"].value


def test_steps_are_measured_against_the_embedder_alone(measures: dict[str, Measure]) -> None:
    for step in ("read", "write", "whole run"):
        assert measures[f"ingest/{step}"].limit == measures["ingest/embed"].value


def test_without_a_vector_index_everything_is_found(measures: dict[str, Measure]) -> None:
    assert [measures[f"index/40/recall@20{which}"].value for which in FILTERS] == [1, 1, 1, 1]


def test_it_says_what_it_is_doing(measures: dict[str, Measure], lines: list[str]) -> None:
    assert measures
    assert "making a collection of 40 chunks" in lines
    assert "searching, 16 at once" in lines
    assert "making a database of 3 tenants" in lines


def test_it_leaves_nothing_behind(
    measures: dict[str, Measure], lines: list[str], others: set[psutil.Process]
) -> None:
    assert measures
    folder = Path(lines[0].removeprefix("working in "))
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()
    assert set(psutil.Process().children(recursive=True)) <= others


def test_after_an_error_it_leaves_nothing_either(few_sentences: Path) -> None:
    progress: list[str] = []

    def stop_at_ingestion(line: str) -> None:
        progress.append(line)
        if line.startswith("ingesting"):
            (Path(progress[0].removeprefix("working in ")) / "settings.toml").write_text("nonsense = 1")

    with pytest.raises(RefdeskError, match="refdesk-admin ingest failed with exit code 2"):
        run(few_sentences, "ingestion", say=stop_at_ingestion)
    assert not Path(progress[0].removeprefix("working in ")).exists()


def test_a_run_that_is_told_to_end_ends_its_server_and_removes_its_folder(scripts: Scripts) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench", "search"],
        cwd=Path(__file__).parents[2],
        env=scripts.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        killer = threading.Timer(AT_MOST_SECONDS, process.kill)
        killer.start()
        assert process.stderr
        folder = Path(process.stderr.readline().partition("working in ")[2].strip())
        assert folder.is_dir()
        assert any(line.endswith("searching in mode dense\n") for line in process.stderr)
        servers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)  # which it takes as Ctrl-C
        out, rest = process.communicate()
        killer.cancel()
    assert servers
    assert psutil.wait_procs(servers, timeout=AT_MOST_SECONDS)[1] == []
    assert process.returncode == 1
    assert not folder.exists()
    assert "Traceback" not in rest
    assert out == ""
