"""What a desk of a given size needs: storage, memory, replicas, hours and money, from measured figures.

A figure is computed only if all that it depends on is known; otherwise it says what is missing. Rows are
those of `refdesk-admin bench`. Everything else that is assumed stands here, with where it was measured.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE_CHARACTERS = 2_700
"""A page of A4 in English, in letters of 10 points: rag/ingest/README.md, "What OCR reads"."""

CHUNK_CHARACTERS, CHUNK_TOKENS = 894, 210
"""Of a chunk: `refdesk-admin ingest --estimate` on the published set chunking_eval (353,225 characters)."""

INDEX_BYTES, CACHE_ROOM = 607, 1.5
"""Of the indexes of a chunk, and how much cache they need: rag/store/README.md, "A million chunks"."""

REQUESTS_IN_MEMORY, REQUESTS_OF_ENGINE = 4, 134
"""Of a warm hybrid search of 10,000 chunks: rag/store/README.md, "What a search costs in a bucket"."""

IN_MEMORY_CHUNKS = 120_000
"""What the default of search.memory_bytes holds, 200 MB: 60,000 chunks take 100 (the same page)."""

MEASURED_CHUNKS, GROWTH = 1_000_000, 10.4
"""A hybrid search among a million took 114 ms of CPU (rag/store/README.md), one among 4,000 took 11."""

MONTH_HOURS = 730
HTTP_CHUNKS = 10_000  # in the collection of the rows http/…: rag.bench.stock.Sizes.collection

OUR_RUN: Mapping[str, float] = {
    "disk/60000/per chunk": 5484,
    "memory/4000/working": 316.9,
    "search/4000/hybrid/cpu/library": 11.07,
    "http/cpu on top/modern": 6.594,
    "http/16 at once/modern": 70.70,
    "ingest/embed": 127.9,
    "ingest/write": 3284,
    "ingest/index": 15809,
}
"""Two shared cores: `refdesk-admin bench` on 2026-11-23, published in rag/evaluate/measuring.md (ingest/embed
is the limit of its whole run), and the disk by `refdesk-admin bench memory --large` on 2026-11-24."""

ACCELERATORS = {
    "l4": ("NVIDIA L4", 0.54 * 115_000),
    "mi210": ("AMD MI210", 0.75 * 115_000),
    "inf2": ("AWS Inferentia2 (inf2.xlarge, one core)", 0.11 * 115_000),
}
"""Tokens a second with BAAI/bge-large-en-v1.5: the best of github.com/michaelfeil/infinity,
docs/docs/benchmarking.md (commit 0d1c358), where a request has 115,000 tokens. Smaller models are faster."""

PRICES = {
    "gb-month": ("a GB of storage a month", 1e9),
    "million-requests": ("a million requests to the object store", 1e6),
    "replica-month": ("a replica a month", 1),
    "machine-hour": ("an hour of a machine that embeds", 1),
    "accelerator-hour": ("an hour of the accelerator", 1),
}
"""What can have a price, and how much of a figure it buys."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is planned for: documents of so many pages, spread over collections of which a search asks one."""

    documents: float
    pages: float
    searches_per_second: float
    collections: int = 1

    @property
    def chunks(self) -> float:
        """Of all documents. Example: 1,000 documents of 3 pages -> 9,060."""
        return self.documents * self.pages * PAGE_CHARACTERS / CHUNK_CHARACTERS


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a plan, None if it can't be computed, and how it comes about, or what is missing."""

    name: str
    value: float | None
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured rows by their names."""

    values: Mapping[str, float]

    def sizes(self, pattern: str) -> list[tuple[int, float]]:
        """Rows that are measured at several sizes, least first: "disk/{}/per chunk" -> [(4000, …), …]."""
        named = re.compile(re.escape(pattern).replace(re.escape("{}"), r"(\d+)"))
        found = [
            (int(match[1]), value) for name, value in self.values.items() if (match := named.fullmatch(name))
        ]
        return sorted(found)


def plan(load: Load, rows: Rows, prices: Mapping[str, float], accelerator: str = "") -> list[Figure]:
    """The figures of a plan, in order."""
    chunks = load.chunks
    sizes = f"{PAGE_CHARACTERS:,} characters a page, {CHUNK_CHARACTERS} a chunk"
    figures = [
        Figure("chunks", chunks, "", sizes),
        _storage(chunks, rows),
        _memory(chunks, rows),
        cpu := _search_cpu(chunks / load.collections, rows),
        _replicas(load, cpu, rows),
        _requests(load),
        _hours("embedding on this machine", chunks, rows, ("ingest/embed",)),
        *([_accelerated(chunks, accelerator)] if accelerator else []),
        _hours("writing and indexing", chunks, rows, ("ingest/write", "ingest/index")),
    ]
    return [*figures, *_money({one.name: one.value for one in figures}, prices)]


def _requests(load: Load) -> Figure:
    fits = load.chunks / load.collections <= IN_MEMORY_CHUNKS
    each = REQUESTS_IN_MEMORY if fits else REQUESTS_OF_ENGINE
    way = "with rows in memory" if fits else "through the engine; 0 behind an nginx that holds the collection"
    how = f"{each} a warm search in a bucket, counted in 10,000 chunks, {way}; none in a folder"
    month = load.searches_per_second * MONTH_HOURS * 3600
    return Figure("requests to a bucket", month * each, "a month", how)


def _storage(chunks: float, rows: Rows) -> Figure:
    measured = rows.sizes("disk/{}/per chunk")
    if not measured:
        return _unknown("storage", "bytes", "disk/…/per chunk", "memory")
    size, each = measured[-1]
    how = (
        f"row disk/{size}/per chunk: {each:,.0f} bytes right after an ingestion, with versions that go later"
    )
    return Figure("storage", chunks * each, "bytes", how)


def _memory(chunks: float, rows: Rows) -> Figure:
    measured = rows.sizes("memory/{}/working")
    if not measured:
        return _unknown("memory of a replica", "bytes", "memory/…/working", "memory")
    size, base = measured[0]
    how = (
        f"row memory/{size}/working: {base:,.0f} MB; {CACHE_ROOM} × {INDEX_BYTES} bytes a chunk for indexes "
        "(search.index_cache_bytes); rows in memory (search.memory_bytes) come on top"
    )
    return Figure("memory of a replica", base * 1e6 + CACHE_ROOM * INDEX_BYTES * chunks, "bytes", how)


def _search_cpu(chunks: float, rows: Rows) -> Figure:
    """The CPU of a hybrid search over HTTP. It grows by a straight line: a search reads all of an index."""
    name, pattern, http = "CPU of a search", "search/{}/hybrid/cpu/library", "http/cpu on top/modern"
    measured, on_top = rows.sizes(pattern), rows.values.get(http)
    if not measured or on_top is None:
        return _unknown(name, "ms", f"search/…/hybrid/cpu/library or {http}", "search http")
    least, first = measured[0]
    growth = 1 + (GROWTH - 1) * max(0.0, chunks - least) / (MEASURED_CHUNKS - least)
    beyond = "; nothing was measured beyond a million in a collection" if chunks > MEASURED_CHUNKS else ""
    how = (
        f"rows {pattern.format(least)}: {first:.1f} ms, and {http}: {on_top:.1f} ms; "
        f"{GROWTH} times as much for a million chunks (rag/store/README.md){beyond}"
    )
    return Figure(name, first * growth + on_top, "ms", how)


def _replicas(load: Load, cpu: Figure, rows: Rows) -> Figure:
    """Machines like the one that was measured, each with as many searches as its CPU allows, and one more."""
    name, row = "replicas", "http/16 at once/modern"
    rate, small = rows.values.get(row), _search_cpu(HTTP_CHUNKS, rows).value
    if rate is None or cpu.value is None or small is None:
        return _unknown(name, "", row, "search http")
    each = rate * small / cpu.value
    how = f"row {row}: {rate:,.1f} searches/s, so {each:,.3g} with this CPU; one more, so that one may fail"
    return Figure(name, math.ceil(load.searches_per_second / each) + 1, "", how)


def _hours(name: str, chunks: float, rows: Rows, needed: tuple[str, ...]) -> Figure:
    if not all(rows.values.get(row) for row in needed):
        return _unknown(name, "hours", " and ".join(needed), "ingestion")
    rates = [rows.values[row] for row in needed]
    how = ", ".join(f"row {row}: {rate:,.0f} chunks/s" for row, rate in zip(needed, rates, strict=True))
    return Figure(name, sum(chunks / rate for rate in rates) / 3600, "hours", how)


def _accelerated(chunks: float, name: str) -> Figure:
    called, rate = ACCELERATORS[name]
    how = (
        f"{called} with BAAI/bge-large-en-v1.5: {rate:,.0f} tokens/s (published by michaelfeil/infinity), "
        f"{CHUNK_TOKENS} tokens a chunk; of other models nothing is known here"
    )
    return Figure("embedding on the accelerator", chunks * CHUNK_TOKENS / rate / 3600, "hours", how)


def _unknown(name: str, unit: str, row: str, parts: str) -> Figure:
    return Figure(name, None, unit, f"not known: no row {row}; run refdesk-admin bench {parts} --json")


def _money(needed: Mapping[str, float | None], prices: Mapping[str, float]) -> Iterator[Figure]:
    """What is priced, and the sum of what comes every month. Without any price, nothing."""
    if not prices:
        return
    monthly = [
        _cost("storage", needed["storage"], "gb-month", prices),
        _cost("requests to a bucket", needed["requests to a bucket"], "million-requests", prices),
        _cost("replicas", needed["replicas"], "replica-month", prices),
    ]
    yield from monthly
    known = [one.value for one in monthly if one.value is not None]
    left = ", ".join(one.name.removeprefix("cost of ") for one in monthly if one.value is None)
    if known:
        yield Figure("cost a month", sum(known), "", f"without {left}" if left else "the sum of these")
    for what, price in (("this machine", "machine-hour"), ("the accelerator", "accelerator-hour")):
        if price in prices:
            yield _cost(f"embedding on {what}", needed.get(f"embedding on {what}"), price, prices, "once")


def _cost(
    name: str, amount: float | None, price: str, prices: Mapping[str, float], unit: str = "a month"
) -> Figure:
    given = prices.get(price)
    if amount is None or given is None:
        why = f"not known: no --price {price}=…" if given is None else f"not known: see {name}"
        return Figure(f"cost of {name}", None, unit, why)
    words, per = PRICES[price]
    return Figure(f"cost of {name}", amount / per * given, unit, f"{given:,.12g} for {words}")
