"""The last check before anything leaves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable

import anyio
import pytest

from rag.corpus import DEFAULT_EMBEDDER
from rag.runtime import concurrently
from rag.search.recall import SLACK, Candidate, Meaning, Query, admit
from rag.search.view import View
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import StoredSource
from tests.search.conftest import ME, Shelf
from tests.tables import table_of

pytestmark = pytest.mark.anyio


def _candidates(table: CollectionReader, ids: Iterable[str]) -> list[Candidate]:
    view = View(table, ME)
    return [Candidate(id_, 1 - place / 1000, view) for place, id_ in enumerate(ids)]


def _silent(_sources: int) -> None:
    """The lists here are made up, so what the gate keeps back says nothing."""


async def _admitted(shelf: Shelf, candidates: list[Candidate], limit: int) -> list[str]:
    (vector,) = shelf.small.vectors(["pendulum"])
    query = Query("pendulum", {DEFAULT_EMBEDDER: Meaning(vector)}, ())
    return [hit.chunk.text for hit in await admit(candidates, query, limit, _silent)]


@pytest.mark.slow
async def test_what_has_no_source_or_another_version_than_its_source_is_left_out(shelf: Shelf) -> None:
    gone = await shelf.put("gone", "removed meanwhile")
    shrunk = await shelf.put("shrunk", "first", "second")
    await shelf.put("shrunk", "first anew")
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.remove([gone.id])
    candidates = _candidates(
        await table_of(shelf.data), [f"{gone.id}/0", "unknown/0", f"{shrunk.id}/1", f"{shrunk.id}/0"]
    )
    assert await _admitted(shelf, candidates, 9) == ["first anew"]


async def test_however_many_candidates_are_stale_the_readable_ones_behind_them_are_found(
    shelf: Shelf,
) -> None:
    source = await shelf.put("a", *(f"text {n}" for n in range(5)))
    stale = [f"stale/{number}" for number in range(10 * SLACK)]
    candidates = _candidates(await table_of(shelf.data), [*stale, *(f"{source.id}/{n}" for n in range(5))])
    assert await _admitted(shelf, candidates, 3) == ["text 0", "text 1", "text 2"]
    assert await _admitted(shelf, candidates, 50) == [f"text {n}" for n in range(5)]
    assert await _admitted(shelf, [], 50) == []


@pytest.mark.slow
async def test_a_source_that_is_replaced_between_reading_chunks_and_source_is_not_lost(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await shelf.put("a", "pendulum one", "pendulum two")
    sources = CollectionReader.sources
    times: list[int] = []

    async def overtaken(table: CollectionReader, ids: Iterable[str]) -> dict[str, StoredSource]:
        if len(times) < 2:
            times.append(len(times) + 1)
            await shelf.put("a", f"version {len(times)}", f"also {len(times)}")
        return await sources(table, ids)

    candidates = _candidates(await table_of(shelf.data), [f"{source.id}/0", f"{source.id}/1"])
    monkeypatch.setattr(CollectionReader, "sources", overtaken)
    assert await _admitted(shelf, candidates, 9) == ["version 2", "also 2"]


async def test_a_source_replaced_between_two_fetches_is_shown_in_one_version(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await shelf.put("a", *(f"old {n}" for n in range(4)))
    stale = [f"stale/{number}" for number in range(20)]
    table = await table_of(shelf.data)
    candidates = _candidates(table, [f"{source.id}/0", f"{source.id}/1", *stale, f"{source.id}/2"])
    chunks = CollectionReader.chunks
    fetches: list[int] = []

    async def overtaken(table: CollectionReader, ids: list[str], where: str) -> object:
        fetches.append(len(ids))
        if len(fetches) == 2:
            await shelf.put("a", *(f"new {n}" for n in range(4)))
        return await chunks(table, ids, where)

    monkeypatch.setattr(CollectionReader, "chunks", overtaken)
    assert await _admitted(shelf, candidates, 4) == ["new 0", "new 1", "new 2"]


async def test_results_of_concurrent_calls_keep_their_order() -> None:
    turn = anyio.Event()

    async def last() -> str:
        await turn.wait()
        return "a"

    async def first() -> str:
        turn.set()
        return "b"

    assert await concurrently([last, first]) == ["a", "b"]
    assert await concurrently([]) == []


async def test_concurrent_calls_share_a_task_until_one_of_them_waits() -> None:
    turn = anyio.Event()

    async def task() -> int:
        return anyio.get_current_task().id

    async def waiting() -> int:
        await turn.wait()
        return await task()

    async def last() -> int:
        turn.set()
        return await task()

    *at_once, waited, after, end = await concurrently([task, task, waiting, task, last])
    assert len({*at_once, waited}) == 1
    assert after == end != waited


async def test_what_concurrent_calls_return_is_freed_with_the_last_reference_to_it() -> None:
    async def result() -> set[str]:
        return {"of a search, which takes megabytes"}

    gc.collect()
    gc.disable()
    try:
        references = [weakref.ref(of_call) for of_call in await concurrently([result, result])]
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


async def test_the_first_failure_is_raised_as_it_is_and_the_others_are_cancelled() -> None:
    ends: list[str] = []

    async def waiting() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ends.append("cancelled")

    async def failing() -> None:
        raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        await concurrently([waiting, failing, waiting])
    assert ends == ["cancelled"] * 2
