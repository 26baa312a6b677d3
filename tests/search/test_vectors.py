"""A search without vectors, because the model fails, or with vectors that only some collections have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.answers import Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import EmbedderIdentity, Principal
from rag.errors import ConfigurationError, ProviderError
from rag.search.desk import Desk
from rag.search.query_vectors import HURRIED_SECONDS
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from rag.answers import Answer
    from rag.corpus import Vectors
    from rag.models.embed import Embedder, TextKind
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ME = Principal("default")
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
OPERATORS = ProviderError("The endpoint http://10.0.0.7 failed.", for_caller="The embedding model is away.")


@dataclass
class Remote:
    """The bag of words, as if it were behind an endpoint that fails or hangs when told to."""

    bag: Embedder
    fails: bool = False
    hangs: bool = False
    asked: int = 0

    @property
    def identity(self) -> EmbedderIdentity:
        return replace(self.bag.identity, provider="openai", dimension=0)

    @property
    def window(self) -> int:
        return self.bag.window

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self.bag.token_spans(text)

    def vocabulary_share(self, text: str) -> float:
        return self.bag.vocabulary_share(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        self.asked += 1
        if self.hangs:
            await anyio.sleep_forever()
        if self.fails:
            raise OPERATORS
        return await self.bag.embed(texts, kind)


@dataclass(frozen=True)
class Clocks:
    """Three collections: two of the remote model, and one of another. Each has two sources."""

    shelf: Shelf
    model: Remote

    async def search(
        self, mode: Mode, /, *collections: str, query: str = "pendulum clock", **settings: object
    ) -> Answer:
        reader = DeskReader(self.shelf.data, timeout_seconds=15)
        desk = Desk(reader, self.model, SearchSettings.model_validate(settings))
        return await desk.search(ME, SearchRequest(query, mode=mode, collections=collections or None))


@pytest.fixture
async def clocks(shelf: Shelf, small_desk: ModuleType) -> Clocks:
    model = Remote(small_desk.BagOfWords())
    ours = replace(model.identity, dimension=small_desk.DIMENSION)
    for name, identity in {"a": ours, "b": ours, "other": replace(ours, model="another")}.items():
        made = await ensure_collection(shelf.data, "default", name, identity)
        async with open_writer(shelf.data, made) as writer:
            await writer.replace(
                [
                    small_desk.new_source(writer, f"clock {name}", "a pendulum clock"),
                    small_desk.new_source(writer, f"dial {name}", "shadows on a dial"),
                ]
            )
    return Clocks(shelf, model)


def titles(answer: Answer) -> set[str]:
    return {hit.source.title for hit in answer.hits}


async def test_without_its_model_hybrid_finds_what_sparse_finds_and_says_so(clocks: Clocks) -> None:
    whole = await clocks.search("hybrid", "a")
    assert (titles(whole), whole.degraded, whole.notes) == ({"clock a", "dial a"}, (), ())
    clocks.model.fails = True
    answer = await clocks.search("hybrid", "a")
    assert (titles(answer), answer.degraded) == ({"clock a"}, ("dense",))
    assert [hit.similarity for hit in answer.hits] == [None]
    assert "by words alone" in answer.notes[0]
    assert "10.0.0.7" not in str(answer)
    assert [step.status for step in answer.steps if step.name == "embed"] == ["failed"]


async def test_without_its_model_sparse_finds_the_same_in_the_same_order(clocks: Clocks) -> None:
    whole = await clocks.search("sparse", "a", "b")
    clocks.model.fails = True
    answer = await clocks.search("sparse", "a", "b")
    assert [(hit.chunk.id, hit.score) for hit in answer.hits] == [
        (hit.chunk.id, hit.score) for hit in whole.hits
    ]
    assert whole.degraded == ()
    assert answer.degraded == ("similarity",)


async def test_without_its_model_dense_fails_and_tells_operator_and_caller_different_things(
    clocks: Clocks,
) -> None:
    assert titles(await clocks.search("dense", "a")) == {"clock a", "dial a"}
    clocks.model.fails = True
    with pytest.raises(ProviderError, match=r"10\.0\.0\.7") as raised:
        await clocks.search("dense", "a")
    assert raised.value.for_caller.startswith("The embedding model is away. There is no search by meaning")
    assert raised.value.for_caller.endswith("or search in mode sparse.")
    with pytest.raises(ProviderError) as raised:
        await clocks.search("dense", "a", mode="dense", overrides=[])
    assert "mode sparse" not in raised.value.for_caller


async def test_an_operator_may_want_an_error_rather_than_words_alone(clocks: Clocks) -> None:
    clocks.model.fails = True
    with pytest.raises(ProviderError):
        await clocks.search("hybrid", "a", degrade=False)
    assert titles(await clocks.search("sparse", "a", degrade=False)) == {"clock a"}


@pytest.mark.slow
async def test_a_model_that_hangs_is_waited_for_a_second_in_a_search_that_can_do_without(
    clocks: Clocks,
) -> None:
    clocks.model.hangs = True
    began = anyio.current_time()
    with anyio.fail_after(10 * HURRIED_SECONDS):
        answer = await clocks.search("hybrid", "a")
    assert anyio.current_time() - began >= HURRIED_SECONDS
    assert answer.degraded == ("dense",)


async def test_thresholds_of_similarity_let_through_what_has_none_and_say_so(clocks: Clocks) -> None:
    limits = {"min_similarity": 0.99, "min_evidence": 0.99, "weak_evidence": "no hits"}
    assert (await clocks.search("sparse", "a", query="pendulum", thresholds=limits)).hits == ()
    clocks.model.fails = True
    answer = await clocks.search("sparse", "a", query="pendulum", thresholds=limits)
    assert titles(answer) == {"clock a"}
    assert "the thresholds for them don't apply" in " ".join(answer.notes)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("stage", [{"stage": "compress"}, {"stage": "diversify"}, {"stage": "neighbors"}])
async def test_stages_work_without_vectors(clocks: Clocks, stage: dict[str, object], *, fails: bool) -> None:
    clocks.model.fails = fails
    answer = await clocks.search("hybrid", stages=[stage])
    assert titles(answer) >= {"clock a", "clock b", "clock other"}
    assert answer.degraded == ("dense",)


async def test_a_model_that_fails_between_the_query_and_the_sentences_leaves_the_passages_whole(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = Remote.embed

    async def queries_only(model: Remote, texts: Sequence[str], kind: TextKind) -> Vectors:
        model.fails = kind == "document"
        return await embed(model, texts, kind)

    monkeypatch.setattr(Remote, "embed", queries_only)
    answer = await clocks.search("dense", "a", stages=[{"stage": "compress"}])
    assert titles(answer) == {"clock a", "dial a"}
    assert answer.degraded == ("compress",)
    assert answer.notes == ("The passages were not compressed (The embedding model is away).",)


async def test_a_collection_of_another_model_is_searched_by_words_beside_the_others(clocks: Clocks) -> None:
    answer = await clocks.search("hybrid")
    assert titles(answer) == {"clock a", "clock b", "clock other", "dial a", "dial b"}
    assert answer.degraded == ("dense",)
    (note,) = answer.notes
    assert note == "Searched by words alone, because another embedding model made their vectors: other."
    for hit in answer.hits:
        assert (hit.similarity is None) == (hit.source.collection == "other")


async def test_in_mode_sparse_a_collection_of_another_model_lacks_similarities_only(clocks: Clocks) -> None:
    answer = await clocks.search("sparse")
    assert titles(answer) == {"clock a", "clock b", "clock other"}
    assert answer.degraded == ("similarity",)
    assert (await clocks.search("sparse", "a")).degraded == ()


async def test_mode_dense_leaves_a_collection_of_another_model_out_unless_it_is_named(clocks: Clocks) -> None:
    answer = await clocks.search("dense")
    assert titles(answer) == {"clock a", "clock b", "dial a", "dial b"}
    assert answer.degraded == ("dense",)
    assert answer.notes[0].startswith(
        "Not searched, because another embedding model made their vectors: other"
    )
    with pytest.raises(ConfigurationError, match="refdesk-admin collection rebuild other") as raised:
        await clocks.search("dense", "a", "other")
    assert "'other' can't be searched in mode dense" in raised.value.for_caller
    assert "refdesk-admin" not in raised.value.for_caller
    assert titles(await clocks.search("hybrid", "other")) == {"clock other"}


async def test_a_tenant_whose_collections_are_all_of_another_model_is_searched_by_words(
    clocks: Clocks,
) -> None:
    bag = clocks.model.bag
    clocks.model.bag = replace(bag, identity=replace(bag.identity, model="a third"))  # type: ignore[type-var]
    answer = await clocks.search("hybrid")
    assert titles(answer) == {"clock a", "clock b", "clock other"}
    assert clocks.model.asked == 0
    nothing = await clocks.search("dense")
    assert (nothing.hits, nothing.degraded) == ((), ("dense",))
    assert "Not searched" in nothing.notes[0]


@pytest.mark.parametrize("mode", MODES)
async def test_an_empty_answer_without_vectors_is_explained_like_any_other(
    clocks: Clocks, mode: Mode
) -> None:
    clocks.model.fails = mode != "dense"
    answer = await clocks.search(mode, query="quokka", thresholds={"min_similarity": 0.99})
    assert answer.hits == ()
    assert len(answer.notes) >= 2
    assert "mode hybrid" not in answer.notes[-1] or mode == "sparse"
