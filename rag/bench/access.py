"""What it costs to look only at what one may see and asked for: access and filter, against neither."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from rag.answers import SearchRequest
from rag.bench.corpus import QUESTIONS
from rag.bench.engine import TENANT
from rag.bench.measure import interleaved, measured
from rag.bench.search import PRINCIPAL, desk_on
from rag.bench.stock import DENIED_GROUP, SOURCE_CHUNKS, TAGS, stocked
from rag.corpus import Principal
from rag.errors import InvalidRequestError
from rag.filters.parse import MAX_CHARS, MAX_LEAVES, MAX_VALUES

if TYPE_CHECKING:
    from rag.bench.measure import Measure
    from rag.bench.stock import Bench
    from rag.search.desk import Desk

GUEST = Principal(TENANT, "ann", frozenset({DENIED_GROUP, "board", "staff"}))
"""Somebody with a few groups, who sees nine sources of ten."""

SHARES = {"50 %": 0.5, "1 %": 0.01, "0.01 %": 0.0001}
Filter = dict[str, object]


def keeping(share: float, chunks: int) -> Filter:
    """A filter of two conditions that such a share of a stocked collection's sources satisfies."""
    sources = max(1, round(chunks // SOURCE_CHUNKS * share))
    return {"number": {"$lt": sources}, "tags": {"$in": list(TAGS)}}


def worst() -> Filter:
    """The slowest filter that is allowed: as many conditions, values and characters, no index serves them."""
    values = [f"{at:x<{MAX_CHARS}}" for at in range(MAX_VALUES - 1)]
    return {"$and": [{"tags": {"$nin": [*values, str(at)]}} for at in range(MAX_LEAVES)]}


async def measure_access(bench: Bench) -> list[Measure]:
    """Hybrid searches of a guest, with filters that keep ever fewer sources, against one of everything."""
    chunks = bench.sizes.index[0]
    desk = desk_on(bench, await stocked(bench, chunks))
    bench.say("searching what one may see and asked for")
    searches = {"all": partial(_search, desk, PRINCIPAL, None)}
    for name, share in SHARES.items():
        searches[name] = partial(_search, desk, GUEST, keeping(share, chunks))
    took = await interleaved(searches, QUESTIONS, bench.sizes.searches)
    measures = [measured(f"access/search {name}", took[name], "ms", took["all"]) for name in SHARES]
    refused: Filter = {"$and": [worst(), worst()]}
    for name, filter_ in [("worst filter", worst()), ("refused filter", refused)]:
        times = [await _timed(desk, filter_) for _ in range(bench.sizes.rounds + 1)]
        measures.append(measured(f"access/{name}", times[1:], "ms"))
    return measures


async def _search(desk: Desk, principal: Principal, filter_: Filter | None, query: str) -> None:
    await desk.search(principal, SearchRequest(query, filter=filter_))


async def _timed(desk: Desk, filter_: Filter) -> float:
    began = time.perf_counter()
    with suppress(InvalidRequestError):
        await _search(desk, GUEST, filter_, QUESTIONS[0])
    return (time.perf_counter() - began) * 1000
