"""What searches of a desk in a bucket cost: requests to the store, each of which takes 25 ms longer."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.home import Bucket
from rag.search.desk import Desk
from rag.store.care.bucket_moves import copy_to_bucket
from rag.store.read.desk_reader import DeskReader
from tests import nginx
from tests.bench.corpus import QUESTIONS
from tests.bench.index import SHARES, keeping
from tests.bench.search import PRINCIPAL
from tests.bench.stock import stocked
from tests.bucket import object_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.bench.stock import Bench
    from tests.bucket import ObjectStore

DELAY_SECONDS = 0.025
SEARCHES, BEFORE = 24, 6
BOUND_SECONDS = 1000  # looking for changes is no part of this
KINDS: Mapping[str, Mapping[str, Any]] = {
    "hybrid": {},
    "dense": {"mode": "dense"},
    "sparse": {"mode": "sparse"},
    "hybrid, 1 % by a filter": {"filter": SHARES["1 %"]},
}
HEADING = """| searches | first: requests | ms | warm: requests | ms, median | ms, best |
|---|---|---|---|---|---|"""


class _Way(NamedTuple):
    """How a bucket is read."""

    name: str
    options: Mapping[str, str]
    memory_bytes: int
    is_warmed: bool = True


async def measure_bucket(bench: Bench, chunks: int) -> AsyncIterator[str]:
    """Lines of a table: first and warm searches, warmed before or not, with rows in memory or without.

    At the end the same through a cache on this machine, if nginx is installed.
    """
    data = await stocked(bench, chunks)
    settings = SearchSettings()
    yield HEADING
    with ExitStack() as around:
        store = around.enter_context(object_store())
        os.environ.update(store.environment)
        options = {"endpoint": store.endpoint, "region": "us-east-1", "allow_http": "true"}
        await copy_to_bucket(data, Bucket(store.uri, options))
        store.slow = DELAY_SECONDS
        ways = [
            _Way("rows in memory", options, settings.bytes_in_memory),
            _Way("rows in memory, not warmed", options, settings.bytes_in_memory, is_warmed=False),
            _Way("engine", options, 0),
        ]
        if nginx.PROGRAM:
            folder = Path(around.enter_context(tempfile.TemporaryDirectory()))
            cache = around.enter_context(nginx.in_front_of(store, folder))
            through = options | {"endpoint": cache, "skip_signature": "true"}
            ways += [
                _Way("cache, rows in memory", through, settings.bytes_in_memory),
                _Way("cache, engine", through, 0),
            ]
        for way in ways:
            for kind in KINDS:
                bucket = Bucket(store.uri, way.options, consistency_seconds=BOUND_SECONDS)
                reader = DeskReader(
                    bucket,
                    timeout_seconds=60,
                    index_cache_bytes=settings.most_cached,
                    memory_bytes=way.memory_bytes,
                )
                if way.is_warmed:
                    await reader.warm()
                costs = await _costs(Desk(reader, bench.embedder, settings), store, _asked(kind, chunks))
                yield f"| {way.name}: {kind} | {costs} |"
                await reader.close()


def _asked(kind: str, chunks: int) -> dict[str, Any]:
    arguments = dict(KINDS[kind])
    return arguments | ({"filter": keeping(arguments["filter"], chunks)} if "filter" in arguments else {})


async def _costs(desk: Desk, store: ObjectStore, arguments: Mapping[str, Any]) -> str:
    async def searched(query: str) -> tuple[int, float]:
        store.requests.clear()
        began = time.perf_counter()
        await desk.search(PRINCIPAL, SearchRequest(query, **arguments))
        return store.requests.total(), 1000 * (time.perf_counter() - began)

    first = await searched(QUESTIONS[0])
    for number in range(BEFORE):
        await searched(QUESTIONS[number])
        await anyio.sleep(0.6)  # rows are copied behind searches
    warm = [await searched(f"{QUESTIONS[at % len(QUESTIONS)]} {at}") for at in range(SEARCHES)]
    requests, times = zip(*warm, strict=True)
    usual = f"{statistics.median(requests):.0f} | {statistics.median(times):.0f} | {min(times):.0f}"
    return f"{first[0]} | {first[1]:.0f} | {usual}"
