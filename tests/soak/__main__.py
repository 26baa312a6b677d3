"""Load runs for developers: `python -m tests.soak soak 30` and `python -m tests.soak growth 1000 10000`.

`soak` serves mixed requests over HTTP for so many minutes while documents change. `growth` compares searches
of collections of these sizes, and `bucket` has one in a bucket whose answers take 25 ms longer. All use a
temporary folder and print their measures as a table.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from tests.bench.__main__ import CORPUS, measures_table
from tests.bench.run import workbench
from tests.bench.stock import Sizes
from tests.soak.bucket import measure_bucket
from tests.soak.soak import measure_growth, measure_soak

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.bench.measure import Measure
    from tests.bench.stock import Bench


@click.group(help=__doc__)
def load_runs() -> None:
    """The runs."""


@load_runs.command()
@click.argument("minutes", type=float, default=0.5)
def soak(minutes: float) -> None:
    """Serve mixed requests for so many minutes."""
    anyio.run(_measured, partial(measure_soak, seconds=60 * minutes))


@load_runs.command()
@click.argument("sizes", type=int, nargs=-1, required=True)
def growth(sizes: tuple[int, ...]) -> None:
    """Search collections of so many chunks each."""
    anyio.run(_measured, partial(measure_growth, sizes=sizes))


@load_runs.command()
@click.argument("chunks", type=int, default=10_000)
def bucket(chunks: int) -> None:
    """Search a collection of so many chunks in a bucket."""
    anyio.run(_in_bucket, chunks)


async def _in_bucket(chunks: int) -> None:
    async with workbench(CORPUS, Sizes(), partial(click.echo, err=True)) as bench:
        async for line in measure_bucket(bench, chunks):
            click.echo(line)


async def _measured(measure: Callable[[Bench], Awaitable[list[Measure]]]) -> None:
    async with workbench(CORPUS, Sizes(), partial(click.echo, err=True)) as bench:
        click.echo(measures_table(await measure(bench)))


if __name__ == "__main__":
    load_runs()
