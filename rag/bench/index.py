"""What the approximate index finds of what exact search finds, and how much sooner."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from rag.bench.access import GUEST, SHARES, keeping
from rag.bench.corpus import QUESTIONS
from rag.bench.engine import TENANT, open_engine
from rag.bench.measure import interleaved, measured
from rag.bench.stock import FIELDS, stocked
from rag.filters.parse import parse
from rag.search.view import View
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from rag.bench.engine import Engine
    from rag.bench.measure import Measure
    from rag.bench.stock import Bench
    from rag.store.reader import CollectionReader

FOUND = 20  # chunks that are compared
TIMEOUT_SECONDS = 60

Answers = dict[str, list[str]]
"""Ids by query."""


async def measure_index(bench: Bench) -> list[Measure]:
    """Recall and time of the dense list of all chunks, and of what a guest may see of ever fewer."""
    measures = []
    for size in bench.sizes.index:
        data = await stocked(bench, size)
        name = "index" if size == bench.sizes.index[0] else f"index of {size} chunks"
        measures += await _measured(bench, data, size, name)
    return measures


async def _measured(bench: Bench, data: Path, size: int, name: str) -> list[Measure]:
    engine = await open_engine(data, bench.embedder)
    reader = Reader(data, timeout_seconds=TIMEOUT_SECONDS)
    (collection,) = await reader.collections(TENANT)
    table = await reader.open(collection)
    vectors = dict(zip(QUESTIONS, await bench.embedder.embed(QUESTIONS, "query"), strict=True))
    measures = []
    for suffix, where in _predicates(table, size).items():
        bench.say(f"comparing the vector index with exact search{suffix.replace('/', ', ')}")
        found: dict[str, Answers] = {"index": {}, "exact": {}}
        calls = _calls(engine, table, vectors, where, found)
        took = await interleaved(calls, QUESTIONS, len(QUESTIONS))
        shares = [recall(found["index"][query], found["exact"][query]) for query in QUESTIONS]
        shown = measured(f"{name}/recall@{FOUND}{suffix}", shares, "share", [1.0])
        measures += [
            replace(shown, value=statistics.fmean(shares)),
            measured(f"{name}/search{suffix}", took["index"], "ms", took["exact"]),
        ]
    return measures


def _calls(
    engine: Engine,
    table: CollectionReader,
    vectors: Mapping[str, npt.NDArray[np.float32]],
    where: str,
    found: Mapping[str, Answers],
) -> dict[str, Callable[[str], Awaitable[None]]]:
    """Both ways to search; each notes what it found."""

    async def index(query: str) -> None:
        ranking = await table.dense(vectors[query], FOUND, where)
        found["index"][query] = [one.stored.id for one in ranking]

    async def exact(query: str) -> None:
        found["exact"][query] = await engine.exact(vectors[query], FOUND, where)

    return {"index": index, "exact": exact}


def recall(found: list[str], exact: list[str]) -> float:
    """The share of the exact answer that was found: (["a", "x"], ["a", "b"]) -> 0.5; of nothing, all."""
    return len(set(found) & set(exact)) / len(exact) if exact else 1.0


def _predicates(table: CollectionReader, chunks: int) -> dict[str, str]:
    """Predicates by what they add to a measure's name: none, and access with filters that keep ever less."""
    predicates = {"": "(true)"}
    for name, share in SHARES.items():
        tree = parse(keeping(share, chunks), FIELDS)
        predicates[f"/access and filter {name}"] = View(table, GUEST, tree).where
    return predicates
