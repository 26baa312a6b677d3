"""`refdesk-admin bench`."""

from __future__ import annotations

import signal
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import command, echo, print_json
from rag.bench.measure import as_json as run_as_json
from rag.bench.measure import in_both, read_run
from rag.bench.run import PARTS, run_bench
from rag.bench.stock import LARGE, Sizes
from rag.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.bench.measure import Measure
    from rag.config.settings import Settings

WIDTH = 100  # of running text
CORPUS = Path(__file__).with_name("demo_corpus")
LEGEND = (
    "RATIO is MEDIAN divided by LIMIT. LIMIT is the best this machine can do: the engine and the embedder "
    "alone, a minimal server, exact search, or, for many tenants and for a change, the fewest tenants or "
    "chunks. Times are best near a ratio of 1 or below, rates near 1 or above. For recall, MEDIAN shows the "
    "mean."
)
TEXT_COLUMNS = frozenset({"NAME", "UNIT"})


@command("bench", of_tenant=False)
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice(list(PARTS)))
@click.option(
    "--large",
    is_flag=True,
    help="Measure the index with a million chunks, too (several more minutes, 6 GB of disk).",
)
@click.option(
    "--compare",
    "earlier",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with an earlier run on this machine: the output of bench --json.",
)
async def bench_command(
    _settings: Settings, *, parts: tuple[str, ...], large: bool, earlier: Path | None, as_json: bool
) -> None:
    """Measure how fast refdesk is on this machine.

    Each figure is shown next to its limit: the best this machine can do. PARTs are start, search, reading,
    concurrency, http, memory, ingestion, change, index, access and tables. By default all of them run, which
    takes about five minutes. Close other programs meanwhile.

    The benchmark uses collections of its own in a temporary folder (about 1 GB, under TMPDIR) and deletes
    them at the end. It does not touch your documents and settings.
    """
    before = read_run(earlier) if earlier else []
    signal.signal(signal.SIGTERM, _interrupt)
    chosen = [part for part in PARTS if part in parts] or list(PARTS)
    measures = await run_bench(chosen, corpus=CORPUS, sizes=LARGE if large else Sizes(), say=_stopwatch())
    if as_json:
        print_json(run_as_json(measures))
    else:
        echo(measures_table(measures))
        echo(f"\n{textwrap.fill(LEGEND, WIDTH)}")
    if earlier:
        echo(f"\n{comparison_table(measures, before)}", err=as_json)


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
