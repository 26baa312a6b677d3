"""`refdesk-admin bench`."""

from __future__ import annotations

import os
import platform
import signal
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import command, echo, print_json
from rag.bench.measure import as_json as run_as_json
from rag.bench.measure import in_both, read_run
from rag.bench.real import run_real
from rag.bench.rows import rows
from rag.bench.run import PARTS, run_bench
from rag.bench.stock import LARGE, Sizes
from rag.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.bench.measure import Measure
    from rag.bench.rows import Row
    from rag.config.settings import Settings

WIDTH = 100  # of running text
CORPUS = Path(__file__).with_name("demo_corpus")
LEGEND = (
    "RATIO is MEDIAN divided by LIMIT. LIMIT is the best this machine can do: the engine and the embedder "
    "alone, a minimal server, exact search, for many searches over stdio the library, for a reply its texts, "
    "or, for several collections, many tenants and a change, the fewest collections, tenants or chunks. "
    "Times are best near a ratio of 1 or below, rates near 1 or above. For recall, MEDIAN shows the mean."
)
MARKDOWN = ["what", "measure", "median", "least to 95th percentile", "vs. its limit", "aim"]
TEXT_COLUMNS = frozenset({"NAME", "UNIT"})


@command("bench", of_tenant=False, on_bucket=True)
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice(list(PARTS)))
@click.option(
    "--large",
    is_flag=True,
    help="Also search 60,000 chunks, and the index with a million (several more minutes, 6 GB of disk).",
)
@click.option(
    "--real",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Measure on the documents of a folder instead, with questions taken from them.",
)
@click.option(
    "--compare",
    "earlier",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with an earlier run on this machine: the output of bench --json.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table in words, in Markdown.")
async def bench_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    parts: tuple[str, ...],
    large: bool,
    folder: Path | None,
    earlier: Path | None,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Measure how fast refdesk is on this machine.

    Each figure is shown next to its limit: the best this machine can do. PARTs are start, search, reading,
    concurrency, http, memory, ingestion, change, index, access and tables. By default all of them run, which
    takes about seven minutes. Close other programs meanwhile.

    The benchmark uses collections of its own in a temporary folder (about 1 GB, under TMPDIR) and deletes
    them at the end. It does not touch your documents and settings.

    --real ingests the documents of FOLDER into the temporary folder, by your settings in [embedder], [ingest]
    and [chunking], and measures start, search, memory and ingestion. FOLDER stays as it is. A remote embedder
    gets all texts and may cost money.
    """
    if folder and (parts or large or as_markdown):
        raise click.UsageError("--real goes with no PARTs, and with neither --large nor --markdown.")
    if as_markdown and as_json:
        raise click.UsageError("Give only one of --markdown and --json.")
    before = read_run(earlier) if earlier else []
    signal.signal(signal.SIGTERM, _interrupt)
    began, sizes = time.monotonic(), LARGE if large else Sizes()
    if folder:
        measures = await run_real(folder, settings, os.environ, sizes=sizes, say=_stopwatch())
    else:
        chosen = [part for part in PARTS if part in parts] or list(PARTS)
        measures = await run_bench(chosen, corpus=CORPUS, sizes=sizes, say=_stopwatch())
    if as_json:
        print_json(run_as_json(measures))
    elif as_markdown:
        called = " ".join(("refdesk-admin bench", *parts, *(["--large"] if large else [])))
        echo(measured_with(called, time.monotonic() - began))
        echo(f"\n{markdown_table(rows(sizes), measures)}")
    else:
        echo(measures_table(measures))
        echo(f"\n{textwrap.fill(LEGEND, WIDTH)}")
    if earlier:
        echo(f"\n{comparison_table(measures, before)}", err=as_json or as_markdown)


def _interrupt(*_: object) -> None:
    """End like Ctrl-C, with clean-up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell script's background job
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _stopwatch() -> Callable[[str], None]:
    """A function that prints a line of progress with the seconds since now."""
    began = time.monotonic()
    return lambda line: echo(f"{time.monotonic() - began:4.0f} s  {line}", err=True)


def measures_table(measures: Sequence[Measure]) -> str:
    """A run as a table."""
    rows = [
        (
            one.name,
            *map(_number, (one.value, one.min, one.p95)),
            one.unit,
            *map(_number, (one.limit, one.ratio)),
        )
        for one in measures
    ]
    return _table([("NAME", "MEDIAN", "MIN", "P95", "UNIT", "LIMIT", "RATIO"), *rows])


def measured_with(called: str, seconds: float) -> str:
    """When, where and how a run was made, in a sentence."""
    machine = f"{os.cpu_count()} {platform.machine()} cores with Python {platform.python_version()}"
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} by `{called}` in {seconds / 60:.0f} minutes, on {machine}:"
    )


def markdown_table(rows: Sequence[Row], measures: Sequence[Measure]) -> str:
    """The rows of which there are measures, with their figures, in Markdown."""
    found = {one.name: one for one in measures}
    lines = [_cells(row, found[row.measure]) for row in rows if row.measure in found]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [MARKDOWN, ["---"] * len(MARKDOWN), *lines])


def _cells(row: Row, one: Measure) -> list[str]:
    ratio = f"{_number(one.ratio)} ×" if one.ratio is not None else ""
    spread = f"{_number(one.min)} to {_number(one.p95)}"
    return [row.what, f"`{one.name}`", f"{_number(one.value)} {one.unit}", spread, ratio, row.aim]


def comparison_table(now: Sequence[Measure], earlier: Sequence[Measure]) -> str:
    """The measures that both runs have, as a table."""
    rows = [
        (one.name, _number(before.value), _number(one.value), one.unit, _number(one.value / before.value))
        for one, before in in_both(now, earlier)
        if before.value
    ]
    if not rows:
        return "The earlier run has none of these measures."
    return _table([("NAME", "EARLIER", "NOW", "UNIT", "NOW/EARLIER"), *rows])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(table(rows, right=set(rows[0]) - TEXT_COLUMNS))


def _number(value: float | None) -> str:
    """With four digits: 1234.5 -> "1,234", 1.23456 -> "1.235", None -> ""."""
    if value is None:
        return ""
    digits_before = len(str(int(value)))
    return f"{value:,.{max(0, 4 - digits_before)}f}"
