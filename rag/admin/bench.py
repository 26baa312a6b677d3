"""`refdesk-admin bench`."""

from __future__ import annotations

import signal
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import command, echo, print_json
from rag.bench.earlier import as_json as run_as_json
from rag.bench.earlier import changes, read_run
from rag.bench.run import PARTS, run_bench
from rag.bench.stock import LARGE, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.bench.measure import Measure
    from rag.config.settings import Settings

WIDTH = 100  # of running text
CORPUS = Path(__file__).with_name("demo_corpus")
MEANING = (
    "RATIO is the median divided by LIMIT, what this machine can do at best: the engine and the embedder "
    "without the program around them, a server that does nothing else, exact search, for what grows the "
    "smallest size, or for what is held after a while the beginning. Of times it is best near 1 or below, of "
    "rates near 1 or above. Of recall, the mean is shown for the median."
)


@command("bench", of_tenant=False)
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice(list(PARTS)))
@click.option("--large", is_flag=True, help="A million chunks, too: seven minutes and 6 GB of disk more.")
@click.option(
    "--soak",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="MINUTES",
    help="Let the part soak last so long, and measure nothing else unless it is named.",
)
@click.option(
    "--compare",
    "earlier",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Set it against an earlier run: what bench --json printed on this machine.",
)
async def bench_command(
    _settings: Settings,
    *,
    parts: tuple[str, ...],
    large: bool,
    soak: float,
    earlier: Path | None,
    as_json: bool,
) -> None:
    """Measure how fast refdesk is, against its own limits.

    PARTs are start, search, reading, concurrency, http, soak, memory, ingestion, growth, index, access and
    tables; all of them by default, which takes some six minutes. Close other programs meanwhile.

    soak serves clients of all kinds over HTTP while documents come and go, and shows what the server holds at
    the end, against what it held when it was warm. A run of minutes says more than its usual seconds.

    It makes collections of its own in a temporary folder (about 1 GB; TMPDIR says where) and removes them
    at the end. Your documents and settings are not used.
    """
    before = read_run(earlier) if earlier else []
    signal.signal(signal.SIGTERM, _interrupt)
    sizes = replace(LARGE if large else Sizes(), soak_seconds=60 * soak)
    measures = await run_bench(chosen(parts, soak), corpus=CORPUS, sizes=sizes, say=_clock())
    if as_json:
        print_json(run_as_json(measures))
    else:
        echo(measures_table(measures))
        echo(f"\n{textwrap.fill(MEANING, WIDTH)}")
    if earlier:
        echo(f"\n{changes_table(measures, before)}", err=as_json)


def chosen(parts: Sequence[str], soak: float) -> list[str]:
    """The parts that are named, in their order; without a name the part soak if it is to last, else all."""
    named = {*parts, "soak"} if soak else set(parts)
    return [part for part in PARTS if part in named] or list(PARTS)


def _interrupt(*_: object) -> None:
    """End as at Ctrl-C, cleaning up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell's script starts it with &
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _clock() -> Callable[[str], None]:
    """What prints a line of progress, with the seconds since now."""
    began = time.monotonic()
    return lambda line: echo(f"{time.monotonic() - began:4.0f} s  {line}", err=True)


def measures_table(measures: Sequence[Measure]) -> str:
    """A run for people."""
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


def changes_table(now: Sequence[Measure], earlier: Sequence[Measure]) -> str:
    """What both runs measured, for people; NOW/EARLIER is the ratio of the two."""
    rows = [
        (one.name, _number(then.value), _number(one.value), one.unit, _number(one.value / then.value))
        for one, then in changes(now, earlier)
        if then.value
    ]
    if not rows:
        return "The earlier run measured none of this."
    return _table([("NAME", "EARLIER", "NOW", "UNIT", "NOW/EARLIER"), *rows])


def _number(value: float | None) -> str:
    """With four digits: 1234.5 -> "1,234", 1.23456 -> "1.235", None -> ""."""
    if value is None:
        return ""
    digits_before = len(str(int(value)))
    return f"{value:,.{max(0, 4 - digits_before)}f}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows in columns, the first row their headings; names and units to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {rows[0].index("NAME"), rows[0].index("UNIT")}
    lines = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
