"""`refdesk-admin plan`: what a desk of a given size needs: storage, memory, CPU, replicas and hours.

The constants below are measurements, most of them in the table "Measured" of rag/evaluate/measuring.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from rag.admin.command_line import command
from rag.admin.terminal import print_result
from rag.config.settings import Settings

MOST = 1e12  # of anything; more is a typing mistake
THOUSANDS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}
BYTES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6))

PAGE_CHARACTERS = 2_700
"""A page of A4 in English, in letters of 10 points: rag/ingest/README.md, "What OCR reads"."""

CHUNK_CHARACTERS = 894
"""Of a chunk: `refdesk-admin ingest --estimate` on the published set chunking_eval (353,225 characters)."""

INDEX_BYTES, CACHE_ROOM = 607, 1.5
"""Of the indexes of a chunk of a million, and how much cache they need for their size."""

IN_MEMORY_CHUNKS, REQUESTS_IN_MEMORY, REQUESTS_OF_ENGINE = 90_000, 4, 134
"""The chunks that the default of search.memory_bytes holds; requests of a warm search with and without:
rag/store/README.md, "What a search costs in a bucket"."""

SMALL_CHUNKS, SMALL_CPU, MILLION_GROWTH = 4_000, 11.07, 10.4
"""Milliseconds of CPU of a hybrid search of `SMALL_CHUNKS`, and the factor for a million chunks through the
engine (114 ms; 88 to 93 later, see rag/store/README.md)."""

MEASURED_CHUNKS = 1_000_000
"""The largest collection whose searches were measured."""

DISK_BYTES, SERVER_BYTES, HTTP_CPU = 5_484, 316.9e6, 6.594
"""Bytes of a chunk after an ingestion of 60,000 (2026-11-24, not in the table); memory of a server
with few chunks; milliseconds of HTTP a search."""

HTTP_CHUNKS, HTTP_RATE = 10_000, 70.70
"""Searches a second over HTTP, 16 at once, of `HTTP_CHUNKS`."""

EMBEDDED, WRITTEN, INDEXED = 127.9, 3_284, 15_809
"""Chunks a second; the embedder alone is the limit of the row `ingest/whole run`."""

OURS = (
    "Speeds were measured with the built-in model on two shared cores (rag/evaluate/measuring.md). "
    "refdesk-admin bench measures searches on this machine, and refdesk-admin ingest --estimate what an "
    "ingestion takes."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a plan, and how it is computed."""

    name: str
    value: float
    unit: str
    how: str


def number(text: str) -> float:
    """A number above 0: "10M" -> 10,000,000."""
    match = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([kmb]?)", text.strip().lower())
    if not match:
        raise click.BadParameter(f"{text!r} is not a number like 250, 1.5, 20k or 10M.")
    value = float(match[1].replace("_", "")) * THOUSANDS[match[2]]
    if not 0 < value <= MOST:
        raise click.BadParameter(f"{text} is not above 0 and at most 10^12.")
    return value


@command("plan", of_tenant=False)
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
async def plan_command(
    _settings: Settings, *, documents: float, pages: float, searches: float, collections: int
) -> None:
    """Compute what a desk of a given size needs.

    Storage, memory, CPU, replicas, requests to a bucket and hours of ingestion. It only computes: each figure
    says which measured figures it comes from. Read the figures as orders of magnitude, and measure with your
    own documents before you buy.
    """
    figures = plan(documents * pages * PAGE_CHARACTERS / CHUNK_CHARACTERS, searches, collections)
    print_result(
        {"figures": [asdict(figure) for figure in figures]},
        *(f"{figure.name}: {figure_text(figure)}\n    {figure.how}" for figure in figures),
        f"\n{next_step(figures[0].value / collections)}",
        f"\n{OURS}",
    )


def plan(chunks: float, searches_per_second: float, collections: int = 1) -> Sequence[Figure]:
    """The figures of a plan for this number of chunks in all, in collections of equal size."""
    each = chunks / collections
    rate = HTTP_RATE * search_cpu(HTTP_CHUNKS) / search_cpu(each)
    fits = each <= IN_MEMORY_CHUNKS
    requests = REQUESTS_IN_MEMORY if fits else REQUESTS_OF_ENGINE
    replicas = math.ceil(searches_per_second / rate) + 1
    # Requests with one key go to one replica, so each holds its share; while one is away, the others do.
    share = max(each, chunks / max(1, min(replicas - 1, collections)))
    how_read = (
        "with rows in memory" if fits else "through the engine; 0 behind an nginx that holds the collection"
    )
    beyond = "; nothing was measured beyond a million in a collection" if each > MEASURED_CHUNKS else ""
    return (
        Figure("chunks", chunks, "", f"{PAGE_CHARACTERS:,} characters a page, {CHUNK_CHARACTERS} a chunk"),
        Figure("storage", chunks * DISK_BYTES, "bytes", f"{DISK_BYTES:,} bytes a chunk after an ingestion"),
        Figure(
            "memory of a replica",
            SERVER_BYTES + CACHE_ROOM * INDEX_BYTES * share,
            "bytes",
            f"{SERVER_BYTES / 1e6:.0f} MB, and {CACHE_ROOM} × {INDEX_BYTES} bytes for indexes "
            f"(search.index_cache_bytes) of each of {share:,.0f} chunks: its share while another replica is "
            "away, if a collection's readers share a key and the proxy goes by it (server/running.md); "
            "rows in memory (search.memory_bytes) come on top",
        ),
        Figure(
            "CPU of a search",
            search_cpu(each),
            "ms",
            f"{SMALL_CPU:.1f} ms with {SMALL_CHUNKS:,} chunks, {MILLION_GROWTH} times as much with a "
            f"million, {HTTP_CPU:.1f} ms for HTTP{beyond}",
        ),
        Figure(
            "replicas",
            replicas,
            "",
            f"{HTTP_RATE:.1f} searches/s of {HTTP_CHUNKS:,} chunks, so {rate:,.3g} with this CPU; one more, "
            "so that one may fail",
        ),
        Figure(
            "requests to a bucket",
            searches_per_second * 730 * 3600 * requests,  # hours of a month, seconds of an hour
            "a month",
            f"{requests} a warm search {how_read}; none if the desk is a folder",
        ),
        Figure("embedding", chunks / EMBEDDED / 3600, "hours", f"{EMBEDDED:.0f} chunks/s on two cores"),
        Figure(
            "writing and indexing",
            (chunks / WRITTEN + chunks / INDEXED) / 3600,
            "hours",
            f"{WRITTEN:,} and {INDEXED:,} chunks/s",
        ),
    )


def next_step(chunks: float) -> str:
    """From which size of a collection on a search takes another way than with this number of chunks."""
    if chunks <= IN_MEMORY_CHUNKS:
        return (
            f"From {IN_MEMORY_CHUNKS:,} chunks in a collection on, its rows don't fit into the default of "
            "search.memory_bytes, and searches go through the engine. Raise it, or use more collections."
        )
    if chunks <= MEASURED_CHUNKS:
        return (
            f"From {MEASURED_CHUNKS:,} chunks in a collection on, nothing was measured. Use more collections."
        )
    return (
        f"A collection has more chunks than were measured ({MEASURED_CHUNKS:,}). Use "
        f"{math.ceil(chunks / MEASURED_CHUNKS):,} times as many collections, and the figures count."
    )


def search_cpu(chunks: float) -> float:
    """Milliseconds of CPU of a hybrid search over HTTP, linear in chunks: a search reads the whole index."""
    growth = (MILLION_GROWTH - 1) * max(0.0, chunks - SMALL_CHUNKS) / (MEASURED_CHUNKS - SMALL_CHUNKS)
    return SMALL_CPU * (1 + growth) + HTTP_CPU


def figure_text(figure: Figure) -> str:
    """A figure for people: 2.74e11 bytes -> "274 GB"."""
    if figure.unit == "bytes":
        unit, size = next((name_size for name_size in BYTES if figure.value >= name_size[1]), BYTES[-1])
        return f"{_three_digits(figure.value / size)} {unit}"
    return f"{_three_digits(figure.value)} {figure.unit}".rstrip()


def _three_digits(value: float) -> str:
    """Three digits, with all before the point: 1234.5 -> "1,234"; 0.01234 -> "0.0123"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 has three digits
