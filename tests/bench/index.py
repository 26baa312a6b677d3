"""The vector index against exact search, and searches under access rights and filters against plain ones."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.errors import InvalidRequestError
from rag.filters.grammar import MAX_ALL_CHARS, MAX_LEAVES, MAX_VALUES, parse_filter
from rag.search.view import View
from rag.store.read.desk_reader import DeskReader
from tests.bench.corpus import QUESTIONS
from tests.bench.engine import TENANT, open_engine
from tests.bench.measure import measured
from tests.bench.search import PRINCIPAL, desk_on
from tests.bench.stock import DENIED_GROUP, FIELDS, SOURCE_CHUNKS, TAGS, stocked
from tests.bench.timing import interleaved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from rag.search.desk import Desk
    from rag.store.read.collection_reader import CollectionReader
    from tests.bench.engine import Engine
    from tests.bench.measure import Measure
    from tests.bench.stock import Bench

FOUND = 20  # chunks that are compared
TIMEOUT_SECONDS = 60

GUEST = Principal(TENANT, "ann", frozenset({DENIED_GROUP, "board", "staff"}))
"""A user with a few groups, who may see nine sources of ten."""

SHARES = {"50 %": 0.5, "1 %": 0.01, "0.01 %": 0.0001}
Filter = dict[str, object]
Answers = dict[str, list[str]]
"""Ids by query."""


async def measure_index(bench: Bench) -> list[Measure]:
    """Recall and time of dense search: of all chunks, and under access rights and ever narrower filters."""
    measures = []
    for size in bench.sizes.index:
        measures += await _measured(bench, await stocked(bench, size), size)
    return measures


async def _measured(bench: Bench, data: Path, size: int) -> list[Measure]:
    engine = await open_engine(data, bench.embedder)
    reader = DeskReader(data, timeout_seconds=TIMEOUT_SECONDS, index_cache_bytes=SearchSettings().most_cached)
    (collection,) = await reader.collections(TENANT)
    table = await reader.open(collection)
    vectors = dict(zip(QUESTIONS, await bench.embedder.embed(QUESTIONS, "query"), strict=True))
    measures = []
    for suffix, where in _predicates(table, size).items():
        bench.say(f"comparing the vector index with exact search{suffix.replace('/', ', ')}")
        answers: dict[str, Answers] = {"index": {}, "exact": {}}
        calls = _calls(engine, table, vectors, where, answers)
        took = await interleaved(calls, QUESTIONS, len(QUESTIONS))
        shares = [recall(answers["index"][query], answers["exact"][query]) for query in QUESTIONS]
        recalls = measured(f"index/{size}/recall@{FOUND}{suffix}", shares, "share", [1.0])
        measures += [
            replace(recalls, value=statistics.fmean(shares)),
            measured(f"index/{size}/search{suffix}", took["index"], "ms", took["exact"]),
        ]
    return measures


def _calls(
    engine: Engine,
    table: CollectionReader,
    vectors: Mapping[str, npt.NDArray[np.float32]],
    where: str,
    answers: Mapping[str, Answers],
) -> dict[str, Callable[[str], Awaitable[None]]]:
    """Search by the index and exact search. Each records its ids in `answers`."""

    async def index(query: str) -> None:
        ranking = await table.dense(vectors[query], FOUND, where)
        answers["index"][query] = [hit.stored.id for hit in ranking]

    async def exact(query: str) -> None:
        answers["exact"][query] = await engine.exact(vectors[query], FOUND, where)

    return {"index": index, "exact": exact}


def recall(ids: list[str], exact: list[str]) -> float:
    """The share of the exact ids that was found: (["a", "x"], ["a", "b"]) -> 0.5; 1 if there are none."""
    return len(set(ids) & set(exact)) / len(exact) if exact else 1.0


def _predicates(table: CollectionReader, chunks: int) -> dict[str, str]:
    """Predicates by the suffix of their measures' names: none, and access rights with each filter."""
    predicates = {"": "(true)"}
    for name, share in SHARES.items():
        tree = parse_filter(keeping(share, chunks), FIELDS)
        predicates[f"/access and filter {name}"] = View(table, GUEST, tree).where
    return predicates


def keeping(share: float, chunks: int) -> Filter:
    """A filter of two conditions that this share of a stocked collection's sources satisfies."""
    sources = max(1, round(chunks // SOURCE_CHUNKS * share))
    return {"number": {"$lt": sources}, "tags": {"$in": list(TAGS)}}


def worst() -> Filter:
    """The slowest filter allowed: the maximum of conditions, values and characters, and no index helps."""
    length = MAX_ALL_CHARS // (MAX_LEAVES * MAX_VALUES)
    values = [f"{at:x<{length}}" for at in range(MAX_VALUES - 1)]
    return {"$and": [{"tags": {"$nin": [*values, str(at)]}} for at in range(MAX_LEAVES)]}


async def measure_access(bench: Bench) -> list[Measure]:
    """A guest's hybrid searches with ever narrower filters, against unrestricted ones."""
    chunks = bench.sizes.index[0]
    desk = desk_on(bench, await stocked(bench, chunks))
    bench.say("searching under access rights and filters")
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
