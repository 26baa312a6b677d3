"""refdesk's own benchmark: each figure beside the best that this machine can do.

`python -m tests.bench [PART]…` runs the parts in a temporary folder, which it deletes at the end. All of them
take about seven minutes and 1 GB under TMPDIR; close other programs meanwhile.
"""

from __future__ import annotations

import os
import platform
import signal
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

import rag.admin
from rag.admin.terminal import echo, print_json
from rag.report import table
from tests.bench.measure import as_json as run_as_json
from tests.bench.measure import in_both, read_run
from tests.bench.rows import rows
from tests.bench.run import PARTS, run_bench
from tests.bench.stock import LARGE, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.measure import Measure
    from tests.bench.rows import Row

WIDTH = 100  # of running text
CORPUS = Path(rag.admin.__file__).with_name("demo_corpus")
LEGEND = (
    "RATIO is MEDIAN divided by LIMIT. LIMIT is the best this machine can do: the engine and the embedder "
    "alone, a minimal server, exact search, for many searches over stdio the library, for a reply its texts, "
    "or, for several collections, many tenants and a change, the fewest collections, tenants or chunks. "
    "Times are best near a ratio of 1 or below, rates near 1 or above. For recall, MEDIAN shows the mean."
)
MARKDOWN = ["what", "measure", "median", "least to 95th percentile", "vs. its limit", "aim"]
TEXT_COLUMNS = frozenset({"NAME", "UNIT"})


@click.command("python -m tests.bench", help=__doc__)
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice(list(PARTS)))
@click.option(
    "--large",
    is_flag=True,
    help="Also search 60,000 chunks, and the index with a million (several more minutes, 6 GB of disk).",
)
@click.option(
    "--texts",
    default=CORPUS,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Make the collections of the sentences of these files, in place of the demo's.",
)
@click.option(
    "--compare",
    "earlier",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare with an earlier run on this machine: what --json printed.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table in words, in Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    *,
    parts: tuple[str, ...],
    large: bool,
    texts: Path,
    earlier: Path | None,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Measure these parts, or all, and print what was measured."""
    if as_markdown and as_json:
        raise click.UsageError("Give only one of --markdown and --json.")
    before = read_run(earlier) if earlier else []
    signal.signal(signal.SIGTERM, _interrupt)
    began, sizes = time.monotonic(), LARGE if large else Sizes()
    chosen = [part for part in PARTS if part in parts] or list(PARTS)
    measures = anyio.run(lambda: run_bench(chosen, corpus=texts, sizes=sizes, say=_stopwatch()))
    if as_json:
        print_json(run_as_json(measures))
    elif as_markdown:
        called = " ".join(("python -m tests.bench", *parts, *(["--large"] if large else [])))
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
            measure.name,
            *map(_number, (measure.value, measure.min, measure.p95)),
            measure.unit,
            *map(_number, (measure.limit, measure.ratio)),
        )
        for measure in measures
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
    by_name = {measure.name: measure for measure in measures}
    lines = [_cells(row, by_name[row.measure]) for row in rows if row.measure in by_name]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [MARKDOWN, ["---"] * len(MARKDOWN), *lines])


def _cells(row: Row, measure: Measure) -> list[str]:
    ratio = f"{_number(measure.ratio)} ×" if measure.ratio is not None else ""
    spread = f"{_number(measure.min)} to {_number(measure.p95)}"
    return [row.what, f"`{measure.name}`", f"{_number(measure.value)} {measure.unit}", spread, ratio, row.aim]


def comparison_table(now: Sequence[Measure], earlier: Sequence[Measure]) -> str:
    """The measures that both runs have, as a table."""
    rows = [
        (new.name, _number(before.value), _number(new.value), new.unit, _number(new.value / before.value))
        for new, before in in_both(now, earlier)
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


if __name__ == "__main__":
    bench()
