"""Searches without vectors, with vectors of only some collections, and by one that the request brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Answer, Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, EmbedderIdentity, Principal, Vectors
from rag.errors import ConfigurationError, InvalidRequestError, ProviderError
from rag.models.embed import Embedder, TextKind
from rag.search.desk import Desk
from rag.search.query_vectors import HURRIED_SECONDS
from rag.search.search_plan import NEEDS_QUERY, unit_vector
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import ME, Shelf, title_set, titles

pytestmark = pytest.mark.anyio
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
OPERATORS = ProviderError("The endpoint http://10.0.0.7 failed.", for_caller="The embedding model is away.")


@dataclass
class Remote:
    """The bag of words, as if it were behind an endpoint that fails or hangs when told to."""

    bag: Embedder
    fails: bool = False
    hangs: bool = False
    calls: int = 0

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
        self.calls += 1
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

    def desk(self, **settings: object) -> Desk:
        reader = DeskReader(self.shelf.data, timeout_seconds=15)
        return Desk(reader, self.model, SearchSettings.model_validate(settings))

    async def search(
        self, mode: Mode, /, *collections: str, query: str = "pendulum clock", **settings: object
    ) -> Answer:
        request = SearchRequest(query, mode=mode, collections=collections or None)
        return await self.desk(**settings).search(ME, request)


@pytest.fixture
async def clocks(shelf: Shelf, small_desk: ModuleType) -> Clocks:
    model = Remote(small_desk.BagOfWords())
    ours = replace(model.identity, dimension=small_desk.DIMENSION)
    for name, identity in {"a": ours, "b": ours, "other": replace(ours, model="another")}.items():
        collection = await ensure_collection(shelf.data, "default", name, identity)
        async with open_writer(shelf.data, collection) as writer:
            await writer.replace(
                [
                    small_desk.new_source(writer, f"clock {name}", "a pendulum clock"),
                    small_desk.new_source(writer, f"dial {name}", "shadows on a dial"),
                ]
            )
    return Clocks(shelf, model)


@pytest.mark.slow
async def test_without_its_model_hybrid_finds_what_sparse_finds_and_says_so(clocks: Clocks) -> None:
    whole = await clocks.search("hybrid", "a")
    assert (title_set(whole), whole.degraded, whole.notes) == ({"clock a", "dial a"}, (), ())
    clocks.model.fails = True
    answer = await clocks.search("hybrid", "a")
    assert (title_set(answer), answer.degraded) == ({"clock a"}, ("dense",))
    assert [hit.similarity for hit in answer.hits] == [None]
    assert "by words alone" in answer.notes[0]
    assert "10.0.0.7" not in str(answer)
    assert [step.status for step in answer.steps if step.name == "embed"] == ["failed"]


@pytest.mark.slow
async def test_without_its_model_sparse_finds_the_same_in_the_same_order(clocks: Clocks) -> None:
    whole = await clocks.search("sparse", "a", "b")
    clocks.model.fails = True
    answer = await clocks.search("sparse", "a", "b")
    assert [(hit.chunk.id, hit.score) for hit in answer.hits] == [
        (hit.chunk.id, hit.score) for hit in whole.hits
    ]
    assert whole.degraded == ()
    assert answer.degraded == ("similarity",)


@pytest.mark.slow
async def test_without_its_model_dense_fails_and_tells_operator_and_caller_different_things(
    clocks: Clocks,
) -> None:
    assert title_set(await clocks.search("dense", "a")) == {"clock a", "dial a"}
    clocks.model.fails = True
    with pytest.raises(ProviderError, match=r"10\.0\.0\.7") as raised:
        await clocks.search("dense", "a")
    assert raised.value.for_caller.startswith("The embedding model is away. There is no search by meaning")
    assert "or search in mode sparse." in raised.value.for_caller
    with pytest.raises(ProviderError) as raised:
        await clocks.search("dense", "a", mode="dense", overrides=[])
    assert "mode sparse" not in raised.value.for_caller


@pytest.mark.slow
async def test_an_operator_may_want_an_error_rather_than_words_alone(clocks: Clocks) -> None:
    clocks.model.fails = True
    with pytest.raises(ProviderError):
        await clocks.search("hybrid", "a", degrade=False)
    assert title_set(await clocks.search("sparse", "a", degrade=False)) == {"clock a"}


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


@pytest.mark.slow
async def test_thresholds_of_similarity_let_through_what_has_none_and_say_so(clocks: Clocks) -> None:
    limits = {"min_similarity": 0.99, "min_evidence": 0.99, "weak_evidence": "no hits"}
    assert (await clocks.search("sparse", "a", query="pendulum", thresholds=limits)).hits == ()
    clocks.model.fails = True
    answer = await clocks.search("sparse", "a", query="pendulum", thresholds=limits)
    assert title_set(answer) == {"clock a"}
    assert "the thresholds for them don't apply" in " ".join(answer.notes)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("stage", [{"stage": "compress"}, {"stage": "diversify"}, {"stage": "neighbors"}])
async def test_stages_work_without_vectors(clocks: Clocks, stage: dict[str, object], *, fails: bool) -> None:
    clocks.model.fails = fails
    answer = await clocks.search("hybrid", stages=[stage])
    assert title_set(answer) >= {"clock a", "clock b", "clock other"}
    assert answer.degraded == ("dense",)


@pytest.mark.slow
async def test_a_model_that_fails_between_the_query_and_the_sentences_leaves_the_passages_whole(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = Remote.embed

    async def queries_only(model: Remote, texts: Sequence[str], kind: TextKind) -> Vectors:
        model.fails = kind == "document"
        return await embed(model, texts, kind)

    monkeypatch.setattr(Remote, "embed", queries_only)
    answer = await clocks.search("dense", "a", stages=[{"stage": "compress"}])
    assert title_set(answer) == {"clock a", "dial a"}
    assert answer.degraded == ("compress",)
    assert answer.notes == ("The passages were not compressed (The embedding model is away).",)


@pytest.mark.slow
async def test_a_collection_of_another_model_is_searched_by_words_beside_the_others(clocks: Clocks) -> None:
    answer = await clocks.search("hybrid")
    assert title_set(answer) == {"clock a", "clock b", "clock other", "dial a", "dial b"}
    assert answer.degraded == ("dense",)
    (note,) = answer.notes
    assert note == "Searched by words alone, because another embedding model made their vectors: other."
    for hit in answer.hits:
        assert (hit.similarity is None) == (hit.source.collection == "other")


@pytest.mark.slow
async def test_in_mode_sparse_a_collection_of_another_model_lacks_similarities_only(clocks: Clocks) -> None:
    answer = await clocks.search("sparse")
    assert title_set(answer) == {"clock a", "clock b", "clock other"}
    assert answer.degraded == ("similarity",)
    assert (await clocks.search("sparse", "a")).degraded == ()


@pytest.mark.slow
async def test_mode_dense_leaves_a_collection_of_another_model_out_unless_it_is_named(clocks: Clocks) -> None:
    answer = await clocks.search("dense")
    assert title_set(answer) == {"clock a", "clock b", "dial a", "dial b"}
    assert answer.degraded == ("dense",)
    assert answer.notes[0].startswith(
        "Not searched, because another embedding model made their vectors: other"
    )
    with pytest.raises(ConfigurationError, match="refdesk-admin collection rebuild other") as raised:
        await clocks.search("dense", "a", "other")
    assert "'other' can't be searched by meaning" in raised.value.for_caller
    assert "refdesk-admin" not in raised.value.for_caller
    assert title_set(await clocks.search("hybrid", "other")) == {"clock other"}


@pytest.mark.slow
async def test_what_is_related_to_a_passage_is_compared_by_its_own_model(clocks: Clocks) -> None:
    desk = clocks.desk()
    seeds = {hit.source.title: hit.source.id for hit in (await clocks.search("sparse")).hits}
    answer = await desk.search(ME, SearchRequest(related=seeds["clock a"]))
    assert title_set(answer) == {"clock b", "dial a", "dial b"}
    assert answer.notes[0].startswith(
        "Not searched, because another embedding model made their vectors: other"
    )
    answer = await desk.search(ME, SearchRequest("clock", related=seeds["clock a"]))
    assert title_set(answer) == {"clock b", "dial a", "dial b", "clock other"}
    assert title_set(await desk.search(ME, SearchRequest(related=seeds["clock other"]))) == {"dial other"}
    of_other = SearchRequest("clock", related=seeds["clock other"], collections=("a",))
    assert title_set(await desk.search(ME, of_other)) == {"clock a"}


@pytest.mark.slow
async def test_a_tenant_whose_collections_are_all_of_another_model_is_searched_by_words(
    clocks: Clocks,
) -> None:
    bag = clocks.model.bag
    clocks.model.bag = replace(bag, identity=replace(bag.identity, model="a third"))  # type: ignore[type-var]
    answer = await clocks.search("hybrid")
    assert title_set(answer) == {"clock a", "clock b", "clock other"}
    assert clocks.model.calls == 0
    nothing = await clocks.search("dense")
    assert (nothing.hits, nothing.degraded) == ((), ("dense",))
    assert "Not searched" in nothing.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_an_empty_answer_without_vectors_is_explained_like_any_other(
    clocks: Clocks, mode: Mode
) -> None:
    clocks.model.fails = mode != "dense"
    answer = await clocks.search(mode, query="quokka", thresholds={"min_similarity": 0.99})
    assert answer.hits == ()
    assert len(answer.notes) >= 2
    assert "mode hybrid" not in answer.notes[-1] or mode == "sparse"


Search: TypeAlias = "Callable[..., Awaitable[Answer]]"

ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
DIMENSION = 32


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=9).filter(any))
def test_a_vector_of_any_length_becomes_one_of_unit_length_in_its_direction(numbers: list[float]) -> None:
    unit = unit_vector(numbers)
    assert unit.dtype == np.float32
    assert np.linalg.norm(unit.astype(float)) == pytest.approx(1, abs=1e-6)
    largest = max(abs(number) for number in numbers)
    smaller = np.array(numbers) / largest
    assert unit == pytest.approx(smaller / np.linalg.norm(smaller), abs=1e-6)


@pytest.mark.parametrize(
    ("numbers", "saying"),
    [
        ([], "from 1 to 8192 numbers, not 0"),
        ([0.1] * 8193, "not 8193"),
        ([0.0, -0.0], "all zeros"),
        ([1.0, nan], "finite"),
        ([1.0, inf], "finite"),
        (["1", "2"], "list of numbers"),
        ([[1.0], [2.0]], "list of numbers"),
        ([[1.0], [2.0, 3.0]], "list of numbers"),
        ([True, False], "list of numbers"),
        ([None, 1.0], "list of numbers"),
        ("123", "list of numbers"),
        ([10**400, 1], "list of numbers"),
    ],
)
def test_what_is_no_direction_is_refused(numbers: Any, saying: str) -> None:  # noqa: ANN401 anything
    with pytest.raises(InvalidRequestError, match=saying):
        unit_vector(numbers)


class Uncalled:
    """An embedder that nobody may ask for vectors."""

    def __init__(self, small: ModuleType) -> None:
        self.identity = small.BagOfWords().identity
        self.window = 256

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [(0, len(text))]

    def vocabulary_share(self, text: str) -> float:
        raise AssertionError(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        raise AssertionError((texts, kind))


@pytest.fixture(scope="module")
def shelves(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collections clocks (one source for ann alone) and snow of one model, other of another, and short."""
    data: Path = tmp_path_factory.mktemp("given") / "data"
    anyio.run(_fill, data, small_desk)
    return data


async def _fill(data: Path, small: ModuleType) -> None:
    bag = small.BagOfWords().identity
    for name, identity in {
        "clocks": bag,
        "snow": bag,
        "other": replace(bag, model="another"),
        "short": EmbedderIdentity("tests", "short", 3),
    }.items():
        collection = await ensure_collection(data, "default", name, identity)
        async with open_writer(data, collection) as writer:
            sources = [
                small.new_source(writer, f"{title} {name}", text, access=access)
                for title, text, access in (
                    ("open", f"A pendulum of {name}. It ticks.", Access("tenant")),
                    (
                        "ann's",
                        f"A pendulum and {name}. It rests.",
                        Access("restricted", frozenset({"user:ann"})),
                    ),
                )
            ]
            if identity.dimension != DIMENSION:
                three = np.eye(3, dtype=np.float32)
                sources = [replace(source, vectors=three[at : at + 1]) for at, source in enumerate(sources)]
            await writer.replace(sources)


@pytest.fixture
def search(shelves: Path, small_desk: ModuleType) -> Search:
    async def searched(
        query: str = "",
        *collections: str,
        principal: Principal = ANN,
        settings: object = None,
        **request: Any,  # noqa: ANN401 of a request
    ) -> Answer:
        reader = DeskReader(shelves, timeout_seconds=15)
        desk = Desk(reader, Uncalled(small_desk), SearchSettings.model_validate(settings or {}))
        if "vector" not in request:
            request["vector"] = (3 * small_desk.vectors(["A pendulum of clocks. It ticks."])[0]).tolist()
        return await desk.search(principal, SearchRequest(query, collections=collections or None, **request))

    return searched


@pytest.mark.slow
async def test_a_vector_alone_finds_what_is_nearest_without_a_model(search: Search) -> None:
    answer = await search("", "clocks", "snow")
    assert titles(answer)[0] == "open clocks"
    assert answer.hits[0].similarity == pytest.approx(1, abs=1e-6)
    assert len(answer.hits) == 4
    assert (answer.notes, answer.degraded) == ((), ())


@pytest.mark.slow
async def test_beside_a_query_the_words_count_as_well(search: Search) -> None:
    answer = await search("rests", "clocks", "snow", mode="hybrid")
    assert titles(answer)[0] == "ann's clocks"
    assert all(hit.similarity is not None for hit in answer.hits)
    words = await search("rests", "clocks", mode="sparse")
    assert titles(words) == ["ann's clocks"]
    assert words.hits[0].similarity is not None


async def test_a_vector_finds_only_what_its_principal_may_read(search: Search) -> None:
    assert set(titles(await search("", "clocks"))) == {"open clocks", "ann's clocks"}
    assert titles(await search("", "clocks", principal=BOB)) == ["open clocks"]
    assert titles(await search("", "clocks", filter=None, limit=1, principal=BOB)) == ["open clocks"]


async def test_thresholds_apply_to_it(search: Search) -> None:
    near = await search("", "clocks", "snow", settings={"thresholds": {"min_similarity": 0.99}})
    assert titles(near) == ["open clocks"]
    weak = await search("", "snow", settings={"thresholds": {"min_evidence": 0.999}})
    assert weak.notes == (UNGROUNDED,)


async def test_a_vector_is_compared_with_vectors_of_its_own_length_only(search: Search) -> None:
    three = await search(vector=[0, 0, 2])
    assert titles(three)[0] in {"open short", "ann's short"}
    assert {hit.source.collection for hit in three.hits} == {"short"}
    (note,) = three.notes
    assert note.startswith("Not searched, because they have no vectors as long as the one given: ")
    hybrid = await search("pendulum", vector=[0, 1, 0], mode="hybrid")
    assert {hit.source.collection for hit in hybrid.hits if hit.similarity is None} == {
        "clocks",
        "other",
        "snow",
    }
    with pytest.raises(InvalidRequestError, match=r"has 3 dimensions; .* have others: clocks: 32"):
        await search("", "short", "clocks", vector=[0, 1, 0])
    with pytest.raises(InvalidRequestError, match="has 2 dimensions"):
        await search(vector=[1, 1])


async def test_a_vector_can_be_of_one_model_only(search: Search) -> None:
    with pytest.raises(InvalidRequestError, match="Several models made the vectors with 32 dimensions"):
        await search("", "clocks", "other")
    assert len((await search("", "other")).hits) == 2


async def test_a_mode_that_cannot_be_is_refused(search: Search) -> None:
    for mode in ("hybrid", "sparse"):
        with pytest.raises(InvalidRequestError, match=NEEDS_QUERY.format(mode)):
            await search("  ", mode=mode)
    with pytest.raises(InvalidRequestError, match="Give a query"):
        await search("", vector=None)


async def test_what_would_call_the_model_is_skipped_and_the_reply_says_so(search: Search) -> None:
    stages = [{"stage": "compress"}, {"stage": "diversify"}, {"stage": "neighbors"}]
    answer = await search("pendulum", "clocks", settings={"stages": stages})
    assert answer.notes == ("These stages were skipped, because the request brings a vector: compress.",)
    assert len(answer.hits) == 2
    snippets = await search("", "clocks", detail="snippet")
    assert {hit.text for hit in snippets.hits} == {"A pendulum of clocks.", "A pendulum and clocks."}
    assert "first sentences" in snippets.notes[0]
