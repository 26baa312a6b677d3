"""`refdesk-admin plan`: what a desk of a given size needs."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import command, echo, print_json
from rag.bench.capacity import ACCELERATORS, OUR_RUN, PRICES, Load, Rows, plan
from rag.bench.measure import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.bench.capacity import Figure
    from rag.config.settings import Settings

MOST = 1e12  # of anything; what is more is a slip of the finger
THOUSANDS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}
BYTES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
OURS = (
    "Speeds are those of refdesk's own run on two shared cores. For this machine: refdesk-admin bench search "
    "http memory ingestion --json > bench.json, and then plan --bench bench.json."
)


def number(text: str) -> float:
    """A number above 0: "10M" -> 10,000,000."""
    written = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([kmb]?)", text.strip().lower())
    if not written:
        raise click.BadParameter(f"{text!r} is not a number like 250, 1.5, 20k or 10M.")
    value = float(written[1].replace("_", "")) * THOUSANDS[written[2]]
    if not 0 < value <= MOST:
        raise click.BadParameter(f"{text} is not above 0 and at most 10^12.")
    return value


def price(text: str) -> tuple[str, float]:
    """What a price is for, and the amount: "gb-month=0.02" -> ("gb-month", 0.02)."""
    what, _, amount = text.partition("=")
    if what not in PRICES:
        raise click.BadParameter(f"{what!r} has no price here; there are {', '.join(PRICES)}.")
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", amount):
        raise click.BadParameter(f"{text!r} is no price like {what}=0.02.")
    return what, float(amount)


@command("plan", of_tenant=False, on_bucket=True)
@click.option("--documents", type=number, required=True, metavar="N", help="How many documents, like 10M.")
@click.option("--pages", type=number, default="3", metavar="N", help="Pages of a document. Default: 3.")
@click.option(
    "--queries-per-second", "searches", type=number, required=True, metavar="N", help="At the busiest time."
)
@click.option(
    "--collections",
    type=click.IntRange(1, 1_000_000),
    default=1,
    metavar="N",
    help="Over how many collections the documents are spread; a search asks one. Default: 1.",
)
@click.option(
    "--bench",
    "measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Figures of this machine: the output of bench --json.",
)
@click.option("--accelerator", type=click.Choice(list(ACCELERATORS)), help="Also embed on this one.")
@click.option(
    "--price",
    "prices",
    type=price,
    multiple=True,
    metavar="WHAT=AMOUNT",
    help=f"A price, in any currency: {', '.join(PRICES)}. Repeatable.",
)
async def plan_command(  # noqa: PLR0913 one parameter an option
    _settings: Settings,
    *,
    documents: float,
    pages: float,
    searches: float,
    collections: int,
    measured: Path | None,
    accelerator: str | None,
    prices: Sequence[tuple[str, float]],
    as_json: bool,
) -> None:
    """Compute what a desk of a given size needs.

    Storage, memory, replicas, hours of embedding, requests and, by your prices, money. It only computes: each
    figure says which measured figures it comes from, and what isn't known is not computed. Read the figures
    as orders of magnitude, and measure with your own documents before you buy.
    """
    rows = Rows({one.name: one.value for one in read_run(measured)} if measured else OUR_RUN)
    figures = plan(Load(documents, pages, searches, collections), rows, dict(prices), accelerator or "")
    if as_json:
        print_json(
            {"measured": str(measured) if measured else None, "figures": [asdict(one) for one in figures]}
        )
        return
    for one in figures:
        echo(f"{one.name}: {shown(one)}")
        echo(f"    {one.how}")
    if not measured:
        echo(f"\n{OURS}")


def shown(figure: Figure) -> str:
    """A figure for people: 2.74e11 bytes -> "274 GB"; "?" if it isn't known."""
    value = figure.value
    if value is None:
        return "?"
    if figure.unit == "bytes":
        unit, size = next((one for one in BYTES if value >= one[1]), BYTES[-1])
        return f"{_rounded(value / size)} {unit}"
    return f"{_rounded(value)} {figure.unit}".rstrip()


def _rounded(value: float) -> str:
    """Three digits, with all before the point: 1234.5 -> "1,234"; 0.01234 -> "0.0123"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 has three digits
