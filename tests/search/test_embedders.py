"""Collections whose vectors different models made: each is searched by its own, and fails alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import anyio
import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.config.model_settings import EmbedderSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Calibration, EmbedderIdentity, Principal, Vectors
from rag.errors import ConfigurationError, ProviderError
from rag.models.breaker import Breaker
from rag.models.embed import Embedder, Embedders, TextKind, open_embedders
from rag.runtime import concurrently
from rag.search.desk import NO_KEYS, Desk
from rag.search.query_vectors import NOT_SET_UP, OTHER_MODEL
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import change_collection, open_writer
from rag.store.write.make_collection import ensure_collection
from tests.endpoint import Endpoint, Reply

pytestmark = pytest.mark.anyio

ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
DIMENSION = 32
TEXTS = {"clock": "A pendulum clock. It needs oil.", "dial": "Shadows on a dial. Snow fell."}
ALPHA, BETA = (EmbedderIdentity("openai", model, DIMENSION) for model in ("alpha", "beta"))
QUERY = "pendulum clock"


@pytest.fixture(scope="module")
def shelves(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections english (of [embedder]) and german (of [embedders.german]), which bob can't read."""
    data: Path = tmp_path_factory.mktemp("embedders") / "data"
    anyio.run(_fill, data, small_desk)
    return data


async def _fill(data: Path, small: ModuleType) -> None:
    for name, identity, embedder_name, access in (
        ("english", ALPHA, "default", Access("tenant")),
        ("german", BETA, "german", Access("restricted", frozenset({"user:ann"}))),
    ):
        collection = await ensure_collection(data, "default", name, identity, embedder_name=embedder_name)
        async with open_writer(data, collection) as writer:
            sources = [
                small.new_source(writer, f"{key} {name}", text, access=access) for key, text in TEXTS.items()
            ]
            await writer.replace(sources)


@dataclass(frozen=True)
class Desks:
    """Opens desks on a data folder whose default model is at one endpoint and german at another."""

    data: Path
    default: Endpoint
    german: Endpoint
    honest: Callable[[dict[str, Any]], Reply]

    @asynccontextmanager
    async def open(
        self,
        search: dict[str, object] | None = None,
        tables: Mapping[str, object] | None = None,
        keys: Mapping[str, str] = NO_KEYS,
        **german: object,
    ) -> AsyncIterator[Desk]:
        """`german` are changes of its table, and `tables` are all tables instead."""
        table = {"provider": "openai", "model": "beta", "base_url": self.german.url} | german
        settings = {
            "data": self.data,
            "embedder": {"provider": "openai", "model": "alpha", "base_url": self.default.url},
            "embedders": {"german": table} if tables is None else tables,
            "search": search or {},
        }
        async with Desk.open(Settings.model_validate(settings), keys) as desk:
            yield desk

    async def search(self, request: SearchRequest | str = QUERY, **options: Any) -> Answer:  # noqa: ANN401 of open
        async with self.open(**options) as desk:
            return await desk.search(ANN, request)


@pytest.fixture
def desks(
    shelves: Path,
    small_desk: ModuleType,
    endpoints: ModuleType,
    provider: Endpoint,
    stranger: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> Desks:
    monkeypatch.setattr("rag.search.query_vectors.HURRIED_SECONDS", 10)  # the machine may be busy

    def honest(request: dict[str, Any]) -> Reply:
        reply: Reply = endpoints.embedded([row.tolist() for row in small_desk.vectors(request["input"])])
        return reply

    provider.script, stranger.script = [honest], [honest]
    return Desks(shelves, provider, stranger, honest)


def by_meaning(answer: Answer) -> set[str]:
    """The collections of the hits that have a similarity."""
    return {hit.source.collection for hit in answer.hits if hit.similarity is not None}


def covered(answer: Answer) -> set[str]:
    return {hit.source.collection for hit in answer.hits}


@pytest.mark.slow
async def test_a_search_of_two_models_asks_each_once_and_finds_by_meaning_in_both(desks: Desks) -> None:
    answer = await desks.search()
    assert by_meaning(answer) == {"english", "german"}
    assert len(answer.hits) == 4
    assert (answer.degraded, answer.notes) == ((), ())
    assert [request["input"] for request in desks.default.requests] == [[QUERY]]
    assert [request["input"] for request in desks.german.requests] == [[QUERY]]
    assert {request["model"] for request in desks.german.requests} == {"beta"}


async def test_opening_asks_no_model_and_a_search_only_those_of_its_collections(desks: Desks) -> None:
    async with desks.open() as desk:
        assert (desks.default.requests, desks.german.requests) == ([], [])
        await desk.search(ANN, SearchRequest(QUERY, collections=("english",)))
        assert (len(desks.default.requests), desks.german.requests) == (1, [])
        await desk.search(ANN, SearchRequest(QUERY, collections=("german",)))
        assert (len(desks.default.requests), len(desks.german.requests)) == (1, 1)


async def test_who_cannot_read_a_collection_does_not_send_queries_to_its_model(desks: Desks) -> None:
    async with desks.open() as desk:
        answer = await desk.search(BOB, QUERY)
        assert (covered(answer), desks.german.requests) == ({"english"}, [])
        await desk.search(ANN, QUERY)
        assert len(desks.german.requests) == 1


@pytest.mark.slow
async def test_the_key_of_one_model_is_not_sent_to_the_server_of_another(desks: Desks) -> None:
    keys = {"OPENAI_API_KEY": "sk-openai", "GERMAN_KEY": "sk-german"}
    headers: tuple[dict[str, str], ...]
    headers = ({}, {"api_key_env": "GERMAN_KEY"}, {"api_key_env": "OPENAI_API_KEY"})
    for german in headers:
        async with desks.open(None, None, keys, **german) as desk:
            assert by_meaning(await desk.search(ANN, QUERY)) == {"english", "german"}
    assert desks.german.keys == ["Bearer none", "Bearer sk-german", "Bearer sk-openai"]
    assert set(desks.default.keys) == {"Bearer sk-openai"}


async def test_a_model_that_fails_takes_the_meaning_from_its_own_collections_alone(
    desks: Desks, endpoints: ModuleType
) -> None:
    desks.german.script = [endpoints.Endpoint.failing(403)]
    async with desks.open() as desk:
        answer = await desk.search(ANN, QUERY)
        assert (covered(answer), by_meaning(answer)) == ({"english", "german"}, {"english"})
        assert answer.degraded == ("dense",)
        assert answer.notes == (
            "Searched by words alone, because their embedding model is not available just now: german.",
        )
        assert desk.breakers["embedding german"].fault
        assert desk.breakers["embedding"].fault is None
        sparse = await desk.search(ANN, SearchRequest(QUERY, mode="sparse"))
        assert (by_meaning(sparse), sparse.degraded) == ({"english"}, ("similarity",))
        dense = await desk.search(ANN, SearchRequest(QUERY, mode="dense"))
        assert (covered(dense), dense.degraded) == ({"english"}, ("dense",))
        assert "Not searched" in dense.notes[0]
        with pytest.raises(ProviderError):
            await desk.search(ANN, SearchRequest(QUERY, mode="dense", collections=("english", "german")))


async def test_without_any_of_its_models_a_search_goes_by_words(desks: Desks, endpoints: ModuleType) -> None:
    desks.german.script = desks.default.script = [endpoints.Endpoint.failing(403)]
    answer = await desks.search()
    assert (covered(answer), by_meaning(answer)) == ({"english", "german"}, set())
    assert "this search went by words alone" in answer.notes[0]
    with pytest.raises(ProviderError):
        await desks.search(SearchRequest(QUERY, mode="dense"))


async def test_an_operator_may_want_an_error_rather_than_words_for_some(
    desks: Desks, endpoints: ModuleType
) -> None:
    desks.german.script = [endpoints.Endpoint.failing(403)]
    with pytest.raises(ProviderError):
        await desks.search(search={"degrade": False})
    answer = await desks.search(SearchRequest(QUERY, collections=("english",)), search={"degrade": False})
    assert by_meaning(answer) == {"english"}


async def test_all_models_are_asked_at_the_same_time(desks: Desks) -> None:
    """Each answers only after the other was asked."""

    def after(later: Endpoint) -> Callable[[dict[str, Any]], Reply]:
        return lambda request: desks.honest(request) if later.asked.wait(5) else (500, {}, b"")

    desks.default.script, desks.german.script = [after(desks.german)], [after(desks.default)]
    assert by_meaning(await desks.search()) == {"english", "german"}


async def test_two_models_behind_one_endpoint_fail_apart(desks: Desks) -> None:
    def only_alpha(request: dict[str, Any]) -> Reply:
        return desks.honest(request) if request["model"] == "alpha" else (404, {}, b"")

    desks.default.script = [only_alpha]
    async with desks.open(base_url=desks.default.url) as desk:
        for _ in range(2):
            answer = await desk.search(ANN, QUERY)
            assert (by_meaning(answer), answer.degraded) == ({"english"}, ("dense",))
    assert [request["model"] for request in desks.default.requests].count("alpha") == 2


MEANINGFUL: tuple[Mode, ...] = ("hybrid", "dense")


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({}, NOT_SET_UP),
        ({"deutsch": {"provider": "openai", "model": "beta"}}, NOT_SET_UP),
        ({"german": {"provider": "openai", "model": "alpha", "base_url": "http://[::1]:9"}}, OTHER_MODEL),
        ({"german": {"provider": "builtin"}}, OTHER_MODEL),
        ({"german": {"provider": "openai", "model": "beta"}}, NOT_SET_UP),
        ({"german": {"provider": "onnx", "model": "/nowhere"}}, NOT_SET_UP),
    ],
    ids=["missing", "renamed", "swapped", "replaced", "without its key", "without its files"],
)
async def test_a_collection_whose_embedder_the_settings_lack_is_searched_by_words(
    desks: Desks, tables: Mapping[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await desks.search(tables=tables)
    assert (covered(answer), by_meaning(answer)) == ({"english", "german"}, {"english"})
    assert answer.degraded == ("dense",)
    (note,) = answer.notes
    assert note == f"Searched by words alone, because {why}: german."
    assert "refdesk-admin config check" in caplog.text
    with pytest.raises(ConfigurationError, match=r"\[embedders.german\]") as raised:
        await desks.search(SearchRequest(QUERY, mode="dense", collections=("german",)), tables=tables)
    assert "[embedders" not in raised.value.for_caller
    for mode in MEANINGFUL:
        with pytest.raises(ConfigurationError, match=r"\[embedders.german\]"):
            await desks.search(SearchRequest(QUERY, mode=mode), tables=tables, search={"degrade": False})


async def test_a_model_whose_vectors_have_another_length_is_as_one_that_fails(
    desks: Desks, endpoints: ModuleType
) -> None:
    desks.german.script = [lambda _request: endpoints.embedded([[1.0, 2.0]])]
    answer = await desks.search()
    assert (covered(answer), by_meaning(answer)) == ({"english", "german"}, {"english"})
    assert "not available just now: german" in answer.notes[0]


async def test_after_a_table_was_renamed_the_collection_follows_without_being_embedded_again(
    desks: Desks, tmp_path: Path
) -> None:
    data = shutil.copytree(desks.data, tmp_path / "copy")
    desks = replace(desks, data=data)
    tables = {"deutsch": {"provider": "openai", "model": "beta", "base_url": desks.german.url}}
    assert by_meaning(await desks.search(tables=tables)) == {"english"}
    await change_collection(data, "default", "german", partial(replace, embedder_name="deutsch"))
    assert by_meaning(await desks.search(tables=tables)) == {"english", "german"}


async def test_searches_that_come_together_load_a_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[object] = []

    def load(settings: object) -> Embedder:
        loads.append(settings)
        return cast("Embedder", object())

    monkeypatch.setattr("rag.models.embed._local", load)
    async with open_embedders(
        {"default": EmbedderSettings(), "german": EmbedderSettings()},
        {},
        {"default": Breaker(), "german": Breaker()},
        lambda _name: None,
    ) as embedders:
        assert len(loads) == 1
        first, second = await concurrently([partial(embedders.embedder, "german")] * 2)
        assert first is second is await embedders.embedder("german")
    assert len(loads) == 2


async def test_a_model_weighs_as_much_as_it_knows_of_the_query(desks: Desks, small_desk: ModuleType) -> None:
    @dataclass(frozen=True)
    class Knowing:
        """The bag of words, which knows a share of each text."""

        bag: Any
        identity: EmbedderIdentity
        share: float
        window: int = 256

        def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
            spans: Sequence[tuple[int, int]] = self.bag.token_spans(text)
            return spans

        def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 the protocol's
            return self.share

        async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
            vectors: Vectors = await self.bag.embed(texts, kind)
            return vectors

    bag = small_desk.BagOfWords()
    embedders = Embedders({"default": Knowing(bag, ALPHA, 1.0), "german": Knowing(bag, BETA, 0.25)})
    desk = Desk(DeskReader(desks.data, timeout_seconds=15), embedders, SearchSettings())
    hits = (await desk.search(ANN, "A pendulum")).hits
    of = {hit.source.title: hit for hit in hits}
    english, german = of["clock english"], of["clock german"]
    assert english.similarity
    assert german.similarity == pytest.approx(english.similarity)
    sparse = 2 * english.score**2 - english.similarity**2  # what the words add to both
    assert 2 * german.score**2 == pytest.approx((0.25 * english.similarity) ** 2 + sparse, abs=1e-5)


async def test_a_model_that_cannot_be_loaded_is_not_tried_with_every_search(
    desks: Desks, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {"german": {"provider": "onnx", "model": "/nowhere"}}
    loads: list[object] = []

    def load(settings: object) -> None:
        loads.append(settings)
        raise ConfigurationError("There is no such model.")

    monkeypatch.setattr("rag.models.embed._local", load)
    async with desks.open(tables=tables) as desk:
        await desk.search(ANN, QUERY)
        await desk.search(ANN, QUERY)
        assert len(loads) == 1
        monkeypatch.setattr("rag.models.embed.LOADED_AGAIN_SECONDS", 0)
        now = anyio.current_time()
        monkeypatch.setattr(anyio, "current_time", lambda: now + 31)
        await desk.search(ANN, QUERY)
        assert len(loads) == 2


@pytest.mark.slow
async def test_similarities_of_a_model_count_from_its_baseline(desks: Desks) -> None:
    plain = {hit.chunk.id: hit for hit in (await desks.search()).hits}
    scaled = {hit.chunk.id: hit for hit in (await desks.search(baseline=0.5)).hits}
    for id_, hit in plain.items():
        before, after = hit.similarity, scaled[id_].similarity
        assert before is not None
        expected = max(-1, (before - 0.5) / 0.5) if hit.source.collection == "german" else before
        assert after == pytest.approx(expected, abs=1e-5)
    dense = await desks.search(SearchRequest(QUERY, mode="dense"), baseline=0.5)
    assert [hit.score for hit in dense.hits] == pytest.approx([hit.similarity for hit in dense.hits])
    assert dense.hits[0].similarity == max(hit.similarity or -1 for hit in dense.hits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (Calibration(0.5), lambda cosine: (cosine - 0.5) / 0.5),
        (Calibration(0.2, 0.54), lambda cosine: (cosine - 0.2) / 0.5),
    ],
)
async def test_similarities_count_from_what_was_measured_unless_the_settings_say_it(
    desks: Desks, tmp_path: Path, scale: Calibration, expected: Callable[[float], float]
) -> None:
    data = shutil.copytree(desks.data, tmp_path / "data")
    plain = {hit.chunk.id: hit for hit in (await desks.search()).hits}
    await change_collection(
        data, "default", "german", lambda collection: replace(collection, calibration=scale)
    )
    desks = replace(desks, data=data)
    strict = await desks.search(search={"statistics": "strict"})
    for answer, changed in (
        (await desks.search(), True),
        (await desks.search(baseline=0.0), False),
        (strict, True),
    ):
        assert len(answer.hits) == len(plain)
        for hit in answer.hits:
            cosine = plain[hit.chunk.id].similarity
            assert cosine is not None
            is_scaled = changed and hit.source.collection == "german"
            similarity = max(-1, min(1, expected(cosine))) if is_scaled else cosine
            assert hit.similarity == pytest.approx(similarity, abs=1e-5)


@pytest.fixture(scope="module")
def shelves_with_alike(
    shelves: Path, small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same, and the collection alike of german's model, which finds everything alike."""
    data: Path = shutil.copytree(shelves, tmp_path_factory.mktemp("alike") / "data")
    anyio.run(_add_alike, data, small_desk)
    return data


async def _add_alike(data: Path, small: ModuleType) -> None:
    identity = EmbedderIdentity("openai", "beta", DIMENSION + 1)
    collection = await ensure_collection(data, "default", "alike", identity, embedder_name="german")
    async with open_writer(data, collection) as writer:
        source = small.new_source(writer, "snow", "Snow fell on roofs.")
        vectors = small.unit_rows(small.np.array(alike(small, ["Snow fell on roofs."])))
        await writer.replace([replace(source, vectors=vectors)])


def alike(small: ModuleType, texts: list[str]) -> list[list[float]]:
    """Vectors with cosines of at least .8 to each other."""
    return [[*row.tolist(), 2.0] for row in small.vectors(texts)]


@pytest.mark.parametrize("method", ["calibrated", "convex", "rrf", "dbsf"])
async def test_a_model_that_finds_everything_alike_does_not_win_once_its_baseline_is_set(
    desks: Desks, endpoints: ModuleType, small_desk: ModuleType, shelves_with_alike: Path, method: str
) -> None:
    """Its unrelated passages have a cosine of .8 to any query; the other model's best one has less."""
    desks.german.script = [lambda request: endpoints.embedded(alike(small_desk, request["input"]))]
    desks = replace(desks, data=shelves_with_alike)
    request = SearchRequest("needs pendulum oil here", collections=("english", "alike"))
    search = {"fusion": {"method": method}}
    assert (await desks.search(request, search=search, baseline=0.8)).hits[0].source.title == "clock english"


async def test_in_mode_dense_it_wins_without_its_baseline_and_not_with_it(
    desks: Desks, endpoints: ModuleType, small_desk: ModuleType, shelves_with_alike: Path
) -> None:
    desks.german.script = [lambda request: endpoints.embedded(alike(small_desk, request["input"]))]
    desks = replace(desks, data=shelves_with_alike)
    dense = SearchRequest("needs pendulum oil here", mode="dense", collections=("english", "alike"))
    assert (await desks.search(dense)).hits[0].source.title == "snow"
    assert (await desks.search(dense, baseline=0.8)).hits[0].source.title == "clock english"


@pytest.mark.slow
async def test_sentences_are_compared_by_the_model_of_their_collection(
    desks: Desks, endpoints: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.rank.excerpts.ALIKE", 0.99)
    compress: dict[str, object] = {"stages": [{"stage": "compress"}]}
    answer = await desks.search("A pendulum clock.", search=compress)
    texts = {hit.source.title: hit.text for hit in answer.hits}
    assert texts == {"clock english": "A pendulum clock.", "clock german": "A pendulum clock."}
    assert desks.german.requests[-1]["input"] == [
        "A pendulum clock.",
        "It needs oil.",
        "Shadows on a dial.",
        "Snow fell.",
    ]
    desks.german.script = [desks.honest] * (len(desks.german.requests) + 1) + [
        endpoints.Endpoint.failing(403)
    ]
    answer = await desks.search("A pendulum clock.", search=compress)
    texts = {hit.source.title: hit.text for hit in answer.hits}
    assert texts["clock english"] == "A pendulum clock."
    assert texts["clock german"] == TEXTS["clock"]
    assert answer.degraded == ("compress",)
    assert answer.notes[0].startswith("Some passages were not compressed (")


async def test_the_most_different_passages_come_first_among_several_models(desks: Desks) -> None:
    answer = await desks.search(search={"stages": [{"stage": "diversify"}]})
    assert by_meaning(answer) == {"english", "german"}
    assert len(answer.hits) == 4


@pytest.mark.slow
async def test_nothing_is_said_of_evidence_while_a_hit_is_of_a_model_that_was_not_measured(
    desks: Desks,
) -> None:
    assert not (await desks.search("quokka zebra")).notes
    noted = await desks.search("quokka zebra", search={"thresholds": {"min_evidence": 0.99}})
    assert noted.notes == (UNGROUNDED,)
