"""What searches of a desk in a bucket cost: requests to the store, each of which takes 25 ms longer."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import anyio

from rag.answers import SearchRequest
from rag.bench.corpus import QUESTIONS
from rag.bench.index import SHARES, keeping
from rag.bench.search import PRINCIPAL
from rag.bench.stock import stocked
from rag.config.settings import SearchSettings
from rag.home import Bucket
from rag.search.desk import Desk
from rag.store.bucket_copy import copy_to_bucket
from rag.store.reader import Reader
from tests.bucket import object_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from rag.bench.stock import Bench
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


async def measure_bucket(bench: Bench, chunks: int) -> AsyncIterator[str]:
    """Lines of a table: first and warm searches, warmed before or not, with rows in memory or without."""
    data = await stocked(bench, chunks)
    settings = SearchSettings()
    yield HEADING
    with object_store() as store:
        os.environ.update(store.environment)
        options = {"endpoint": store.endpoint, "region": "us-east-1", "allow_http": "true"}
        await copy_to_bucket(data, Bucket(store.uri, options))
        store.slow = DELAY_SECONDS
        for is_warmed, memory in [
            (True, settings.bytes_in_memory),
            (False, settings.bytes_in_memory),
            (True, 0),
        ]:
            for kind in KINDS:
                reader = Reader(
                    Bucket(store.uri, options, consistency_seconds=BOUND_SECONDS),
                    timeout_seconds=60,
                    index_cache_bytes=settings.most_cached,
                    memory_bytes=memory,
                )
                if is_warmed:
                    await reader.warm()
                named = (
                    f"{'rows in memory' if memory else 'engine'}{'' if is_warmed else ', not warmed'}: {kind}"
                )
                costs = await _costs(Desk(reader, bench.embedder, settings), store, _asked(kind, chunks))
                yield f"| {named} | {costs} |"
                await reader.close()


def _asked(kind: str, chunks: int) -> dict[str, Any]:
    asked = dict(KINDS[kind])
    return asked | ({"filter": keeping(asked["filter"], chunks)} if "filter" in asked else {})


async def _costs(desk: Desk, store: ObjectStore, asked: Mapping[str, Any]) -> str:
    async def searched(query: str) -> tuple[int, float]:
        store.requests.clear()
        began = time.perf_counter()
        await desk.search(PRINCIPAL, SearchRequest(query, **asked))
        return store.requests.total(), 1000 * (time.perf_counter() - began)

    first = await searched(QUESTIONS[0])
    for number in range(BEFORE):
        await searched(QUESTIONS[number])
        await anyio.sleep(0.6)  # rows are copied behind searches
    warm = [await searched(f"{QUESTIONS[at % len(QUESTIONS)]} {at}") for at in range(SEARCHES)]
    requests, times = zip(*warm, strict=True)
    usual = f"{statistics.median(requests):.0f} | {statistics.median(times):.0f} | {min(times):.0f}"
    return f"{first[0]} | {first[1]:.0f} | {usual}"
