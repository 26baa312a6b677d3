"""The rows of the table "Measured" in rag/evaluate/measuring.md: which measures it shows, in which words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.index import SHARES
from tests.bench.remote import ERAS
from tests.bench.search import MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.stock import Sizes

OVER = {"library": "in the library", "stdio": "over stdio"}


@dataclass(frozen=True, slots=True)
class Row:
    """A measure by its name, what it is in words, and what it should reach: a ratio (×) or the value."""

    measure: str
    what: str
    aim: str = ""


def rows(sizes: Sizes) -> tuple[Row, ...]:
    """The rows of a run with these sizes, in order."""
    return (
        Row("start/first answer", "start to the first answer, vs. a bare server", "≤ 1.08 ×"),
        Row("start/first search", "first search after it, vs. the bare server's", "≤ 250 ms"),
        *(row for size in sizes.searched for row in _search(size)),
        Row("search/second collection", "hybrid search with a second collection of one passage, vs. without"),
        Row("search/second collection/cpu", "its CPU"),
        Row("get_source/stdio", "`get_source` over stdio, vs. the engine's own calls", "< 50 ms"),
        Row("get_source/5 MB/stdio", "a window of a 5 MB document", "< 50 ms"),
        Row("concurrency/16/library", "16 searches at once in the library, vs. the engine"),
        Row("concurrency/16/stdio", "16 searches at once over stdio, vs. the library", "≥ 130 a second"),
        *(row for era in ERAS for row in _http(era)),
        *(row for size in sizes.searched for row in _memory(size)),
        *_ingestion(),
        *(row for size in sizes.changed for row in _change(size, min(sizes.changed))),
        *(row for size in sizes.index for row in _index(size)),
        *(
            Row(
                f"access/search {share}",
                f"hybrid search with rights and a filter that keeps {share}",
                "≤ 1.25 ×",
            )
            for share in SHARES
        ),
        Row("access/worst filter", "the slowest filter that is accepted", "< 1 s"),
        Row("access/refused filter", "one that is rejected", "< 50 ms"),
        *(
            Row(
                f"tables/{max(sizes.tenants)}/{what}",
                f"{what} of one tenant among {max(sizes.tenants):,}",
                "≤ 1.2 ×",
            )
            for what in ("search", "start", "first search")
        ),
    )


def _search(size: int) -> Iterator[Row]:
    time, cpu = {4_000: ("≤ 9 ms", "≤ 10 ms"), 60_000: ("≤ 12 ms", "≤ 14 ms")}.get(size, ("", ""))
    for mode in MODES:
        callers = OVER if mode == "hybrid" else ["stdio"]
        for by in callers:
            aimed = mode == "hybrid" and by == "stdio"
            name = f"search/{size}/{mode}"
            what = f"{mode} search of {size:,} chunks {OVER[by]}, vs. the embedder and the engine"
            yield Row(f"{name}/{by}", what, time if aimed else "")
            yield Row(f"{name}/cpu/{by}", "its CPU", cpu if aimed else "")
    yield Row(
        f"search/{size}/reply of ten",
        "bytes of a reply with up to ten hits, vs. their texts",
        "≤ 9,000 bytes",
    )
    yield Row(f"search/{size}/hits of ten", "hits in it")


def _http(era: str) -> Iterator[Row]:
    yield Row(
        f"http/cpu on top/{era}", f"CPU of a search over HTTP, {era} era, on top of the library's", "≤ 1 ms"
    )
    yield Row(
        f"http/16 at once/{era}", f"16 searches at once over HTTP, {era} era, vs. the library", "≥ 0.8 ×"
    )


def _memory(size: int) -> Iterator[Row]:
    what = f"memory of a server of {size:,} chunks"
    yield Row(f"memory/{size}/idle", f"{what}, idle, vs. a bare server with the engine", "≤ 200 MB")
    yield Row(f"memory/{size}/working", "and after searches", "< 300 MB")


def _ingestion() -> Iterator[Row]:
    yield Row(
        "ingest/whole run", "ingestion, including start and indexes, vs. the embedder alone", "≥ 0.95 ×"
    )
    for step in ("read", "parse", "chunk", "write", "index"):
        yield Row(f"ingest/{step}", f"its step {step}, vs. the embedder alone")
    yield Row("ingest/unchanged", "ingesting the same files again, unchanged")
    yield Row("ingest/peak memory", "peak memory of an ingestion", "< 500 MB")
    yield Row("disk/per chunk", "disk per chunk, vs. its text and vector")


def _change(size: int, smallest: int) -> Iterator[Row]:
    limit = f", vs. {smallest:,}" if size != smallest else ""
    what = f"of a changed document among {size:,} chunks{limit}"
    yield Row(f"change/{size}/cpu", f"CPU {what}", "≤ 1,200 ms")
    yield Row(f"change/{size}/cpu/mean", "its mean, compactions included", "≤ 1,200 ms")
    yield Row(f"change/{size}/written", f"bytes written {what}", "≤ 1,000,000 bytes")
    yield Row(f"change/{size}/written/mean", "their mean, compactions included", "≤ 1,000,000 bytes")


def _index(size: int) -> Iterator[Row]:
    for suffix in ("", *(f"/access and filter {share}" for share in SHARES)):
        which = suffix.removeprefix("/access and filter ")
        under = f" under rights and a filter that keeps {which}" if which else ""
        yield Row(
            f"index/{size}/recall@20{suffix}",
            f"recall@20 of dense search of {size:,} chunks{under}",
            "≥ 0.98",
        )
        yield Row(f"index/{size}/search{suffix}", "the same searches, vs. exact search")
