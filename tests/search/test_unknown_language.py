"""A search in a language of which the embedding model knows no word: it goes by words alone, and says so."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from rag.answers import Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.models.embed import WrappedEmbedder
from rag.models.tokenizer import BUILTIN_MODEL, Tokens
from rag.search.desk import Desk
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Answer
    from rag.corpus import Vectors
    from rag.models.embed import Embedder, TextKind
    from rag.store.read.stored_rows import Ranking
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ME = Principal("default")
HINDI = "समय घड़ी"  # "time clock"
TEXTS = {
    "hindi": "घड़ी समय बताती है",
    "dial": "सूर्य की छाया और समय",
    "english": "a pendulum clock",
    "other": "a sundial",
}
TOLD = "Searched by words alone, because the embedding model knows no word of the query: documents."


@cache
def tokens() -> Tokens:
    return Tokens(BUILTIN_MODEL / "tokenizer.json")


class English(WrappedEmbedder):
    """The bag of words with the vocabulary of the built-in model."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    def vocabulary_share(self, text: str) -> float:
        return tokens().vocabulary_share(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        return await self.inner.embed(texts, kind)


@pytest.fixture
async def desk(shelf: Shelf) -> Shelf:
    await shelf.put_all(TEXTS)
    return shelf


async def ask(shelf: Shelf, query: str, mode: Mode = "hybrid", **settings: object) -> Answer:
    reader = DeskReader(shelf.data, timeout_seconds=15)
    search = SearchSettings.model_validate(settings)
    return await Desk(reader, English(shelf.small.BagOfWords()), search).search(
        ME, SearchRequest(query, mode=mode), trace=True
    )


def lists(answer: Answer) -> set[str]:
    assert answer.trace
    return {one.list for listings in answer.trace.listings.values() for one in listings}


def warnings(answer: Answer) -> list[str]:
    return [warning for step in answer.steps for warning in step.warnings]


async def test_the_engine_is_not_asked_for_a_dense_list_that_would_count_for_nothing(
    desk: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, dense = [], CollectionReader.dense

    async def noted(self: CollectionReader, *given: object, **named: object) -> Ranking:
        asked.append(self.collection.name)
        return await dense(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(CollectionReader, "dense", noted)
    answer = await ask(desk, HINDI)
    assert (asked, lists(answer), warnings(answer)) == ([], {"sparse"}, [TOLD])
    assert (answer.degraded, answer.notes) == ((), ())
    by_words = await ask(desk, HINDI, "sparse")
    assert [hit.chunk.id for hit in answer.hits] == [hit.chunk.id for hit in by_words.hits]
    assert [hit.source.title for hit in answer.hits] == ["hindi", "dial"]
    half_known = await ask(desk, f"clock {HINDI}")
    assert (asked, lists(half_known), warnings(half_known)) == (["documents"], {"dense", "sparse"}, [])


async def test_its_hits_have_similarities_and_thresholds_apply_to_them(desk: Shelf) -> None:
    answer = await ask(desk, HINDI)
    similarities = [hit.similarity for hit in answer.hits]
    assert all(similarities)
    assert similarities == [hit.similarity for hit in (await ask(desk, HINDI, "sparse")).hits]
    near = await ask(desk, HINDI, thresholds={"min_similarity": max(filter(None, similarities)) - 0.01})
    assert [hit.source.title for hit in near.hits] == ["hindi"]


async def test_mode_dense_is_kept_to_and_a_note_says_what_that_is_worth(desk: Shelf) -> None:
    answer = await ask(desk, HINDI, "dense")
    assert len(answer.hits) == len(TEXTS)
    assert "The embedding model knows no word of the query" in answer.notes[0]
    assert (await ask(desk, "clock", "dense")).notes == ()


async def test_the_other_fusions_weigh_the_lists_as_the_settings_say(desk: Shelf) -> None:
    answer = await ask(desk, HINDI, fusion={"method": "rrf"})
    assert (lists(answer), warnings(answer)) == ({"dense", "sparse"}, [])


async def test_where_nothing_is_found_the_note_says_why(desk: Shelf) -> None:
    answer = await ask(desk, "मौसम")  # "weather"
    assert answer.hits == ()
    (note,) = answer.notes
    assert note == (
        "No passage contains a word of the query. The embedding model knows no word of the query, so there "
        "was no search by meaning. Use other words."
    )
    assert (await ask(desk, "weather")).hits


async def test_a_filter_is_to_blame_only_for_what_is_found_by_words_without_it(desk: Shelf) -> None:
    reader = DeskReader(desk.data, timeout_seconds=15)
    filtered = Desk(reader, English(desk.small.BagOfWords()), SearchSettings())
    nowhere = {"path": {"$prefix": "nowhere/"}}
    for query, blamed in ((HINDI, True), ("मौसम", False), ("weather", True)):
        answer = await filtered.search(ME, SearchRequest(query, filter=nowhere))
        assert answer.hits == ()
        assert ("The filter excludes all results" in answer.notes[0]) is blamed


async def test_a_source_is_missed_by_words_alone(desk: Shelf) -> None:
    reader = DeskReader(desk.data, timeout_seconds=15)
    stored = await ask(desk, "english", "dense")
    source = next(hit.source.id for hit in stored.hits if hit.source.title == "english")
    _, fate = await Desk(reader, English(desk.small.BagOfWords()), SearchSettings()).why_not(
        ME, SearchRequest(HINDI), source
    )
    assert fate.reason == (
        "None of its passages is among the first 50 of a list. The embedding model knows no word of the "
        "query, so there was no search by meaning. It contains no word of the query."
    )
