"""Of hits only the sentences that answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rag.answers import Excerpt, Hit
from rag.config.profiles import CompressStage
from rag.corpus import DEFAULT_EMBEDDER, Principal
from rag.models.embed import Embedders
from rag.search.recall import Meaning, Query
from rag.search.stages.detail import compress_hits
from rag.search.stages.surroundings import with_neighbors
from rag.search.view import View
from rag.store.read.desk_reader import DeskReader
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.corpus import Vectors
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ME = Principal("default")
CLOCKS = "Clocks err. Cats sleep. A clock ticks."
DOGS = "Dogs bark. The sun sets late."


async def _views(shelf: Shelf) -> dict[str, View]:
    reader = DeskReader(shelf.data, timeout_seconds=15)
    return {one.name: View(await reader.open(one), ME) for one in await reader.collections("default")}


async def _all_hits(views: Mapping[str, View]) -> list[Hit]:
    """Every chunk of every source as a hit."""
    hits: list[Hit] = []
    for view in views.values():
        for stored in await view.table.all_sources():
            chunks = await view.table.chunks_between(stored, 0, stored.source.chunk_count, view.where)
            hits += [Hit(chunk, stored.source, 1 - len(hits) / 100, 0.5) for chunk in chunks]
    return hits


async def _compressed(
    shelf: Shelf,
    hits: Sequence[Hit],
    views: Mapping[str, View],
    query: str,
    *,
    like: str = "nothing of this kind",
    **options: object,
) -> list[Hit]:
    """What is left of the hits; all excerpts are word for word what stands there."""
    stage = CompressStage.model_validate({"stage": "compress", "threshold": 0.9} | options)
    (vector,) = shelf.small.vectors([like])
    asked = Query(query, {DEFAULT_EMBEDDER: Meaning(vector)}, tuple(views.values()))
    embedders = Embedders({DEFAULT_EMBEDDER: shelf.small.BagOfWords()})
    kept, failures = await compress_hits(hits, stage, asked, embedders)
    assert not failures
    for hit in kept:
        found = await views[hit.source.collection].table.text(hit.source.id)
        assert found
        assert hit.excerpts
        assert all(found[2][one.start : one.end] == one.text for one in hit.excerpts)
    return kept


def _texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


async def test_the_sentences_with_words_of_the_query_stay_and_hits_without_any_go(shelf: Shelf) -> None:
    await shelf.put("a", DOGS, CLOCKS, "Cats again.", "The clock stopped.")
    views = await _views(shelf)
    hits = await _all_hits(views)
    kept = await _compressed(shelf, hits, views, "Which clocks?")
    assert _texts(kept) == ["Clocks err. … A clock ticks.", "The clock stopped."]
    assert [replace(hit, excerpts=()) for hit in kept] == [hits[1], hits[3]]
    start = len(DOGS) + 2
    assert kept[0].excerpts == (
        Excerpt(start, start + 11, "Clocks err."),
        Excerpt(start + 24, start + 38, "A clock ticks."),
    )
    assert await _compressed(shelf, hits, views, "moon") == []
    assert await _compressed(shelf, [], views, "moon") == []


async def test_a_sentence_without_a_word_of_the_query_stays_for_its_meaning(shelf: Shelf) -> None:
    await shelf.put("a", CLOCKS, DOGS)
    views = await _views(shelf)
    hits = await _all_hits(views)
    assert _texts(await _compressed(shelf, hits, views, "moon", like="dogs bark.")) == ["Dogs bark."]
    kept = await _compressed(shelf, hits, views, "clock", like="dogs bark.")
    assert _texts(kept) == ["Clocks err. … A clock ticks.", "Dogs bark."]
    assert await _compressed(shelf, hits, views, "moon", like="dogs bark loudly", threshold=1) == []


async def test_the_best_sentences_stay_where_room_is_short(shelf: Shelf) -> None:
    await shelf.put("a", " ".join([*["Clocks err often enough."] * 3, CLOCKS]))
    views = await _views(shelf)
    hits = await _all_hits(views)
    wanted = "a clock ticks."
    kept = await _compressed(shelf, hits, views, "clock", like=wanted, max_chars=50)
    assert _texts(kept)[0].endswith("A clock ticks.")
    assert len(kept[0].text) < 60 < len(hits[0].text)
    assert len(_texts(await _compressed(shelf, hits, views, "clock", like=wanted))[0]) > 90


async def test_of_what_a_stage_before_shows_the_sentences_that_answer_stay(shelf: Shelf) -> None:
    await shelf.put("a", "Before it.", CLOCKS, DOGS, "A clock stops.", "Clocks far away.")
    views = await _views(shelf)
    near = await with_neighbors((await _all_hits(views))[2:3], 1, views)
    (kept,) = await _compressed(shelf, near, views, "clock")
    assert kept.text == "Clocks err. … A clock ticks. … A clock stops."
    assert kept.chunk.text == DOGS
    assert await _compressed(shelf, [kept], views, "clock") == [kept]
    (fewer,) = await _compressed(shelf, [kept], views, "ticks")
    assert fewer.excerpts == kept.excerpts[1:2]


async def test_stop_words_are_those_of_the_collections_language(shelf: Shelf) -> None:
    identity = shelf.small.BagOfWords().identity
    await ensure_collection(shelf.data, "default", "deutsch", identity, language="German")
    await ensure_collection(shelf.data, "default", "english", identity, language="English")
    for name in ("deutsch", "english"):
        await shelf.put("a", "Die Sonne scheint. Der Mond.", collection=name)
    views = await _views(shelf)
    kept = await _compressed(shelf, await _all_hits(views), views, "die mond")
    assert [(hit.source.collection, hit.text) for hit in kept] == [
        ("deutsch", "Der Mond."),
        ("english", "Die Sonne scheint. Der Mond."),
    ]


async def test_all_sentences_are_embedded_as_documents_in_one_batch_and_each_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("a", CLOCKS, f"{CLOCKS} {DOGS}")
    views = await _views(shelf)
    hits = await _all_hits(views)
    batches: list[tuple[list[str], str]] = []

    async def seen(_embedder: object, texts: Sequence[str], kind: str) -> Vectors:
        batches.append((list(texts), kind))
        vectors: Vectors = shelf.small.vectors(texts)
        return vectors

    monkeypatch.setattr(shelf.small.BagOfWords, "embed", seen)
    assert len(await _compressed(shelf, hits, views, "clock")) == 2
    assert batches == [
        (["Clocks err.", "Cats sleep.", "A clock ticks.", "Dogs bark.", "The sun sets late."], "document")
    ]
    assert await _compressed(shelf, [], views, "clock") == []
    assert len(batches) == 1
