"""The built-in model: its vectors, and what the cosines of it and of other models mean."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest
from anyio import from_thread

from rag.config.model_settings import EmbedderSettings
from rag.corpus import AS_IT_IS
from rag.errors import ConfigurationError, ProviderError
from rag.ingest.chunk_vectors import calibration
from rag.models.embed import WrappedEmbedder, check_queries, mean_query, open_embedder, unit_rows
from rag.models.embed.calibration import (
    PAIRS_BY_LANGUAGE,
    cosine_elsewhere,
    measured_calibration,
)
from rag.models.embed.local_embedder import (
    GIVEN_BACK,
    OF_MEAN_QUERY,
    OF_OWN_MEAN,
    builtin_embedder,
    shared_parts,
)
from rag.models.text_encoder import MULTILINGUAL_FOLDER, SentencePieces
from rag.search.recall import RELATED, Meaning
from tests.small_desk import BagOfWords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import Vectors
    from rag.models.embed import Embedder, TextKind
    from rag.models.embed.local_embedder import LocalEmbedder

pytestmark = pytest.mark.anyio

QUESTIONS = Path(__file__).with_name("questions.toml")


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return builtin_embedder(EmbedderSettings())


async def test_the_built_in_model_opens_when_nothing_is_set(embedder: LocalEmbedder) -> None:
    async with open_embedder(EmbedderSettings(), {}) as opened:
        assert opened.identity == embedder.identity
        assert opened.window == 254
    assert (embedder.identity.provider, embedder.identity.model) == ("builtin", "all-MiniLM-L6-v2")


async def test_similarities_are_those_that_the_model_is_published_with(embedder: LocalEmbedder) -> None:
    """Example sentences of the model's card; the rest is what 8-bit weights cost."""
    texts = ["a happy person", "a happy dog", "a very happy person", "Today is a sunny day"]
    vectors = await embedder.embed(["That is " + t if t[0] == "a" else t for t in texts], "document")
    assert vectors[1:] @ vectors[0] == pytest.approx([0.6946, 0.9429, 0.2569], abs=0.04)


async def test_a_question_is_nearer_to_its_answer_than_to_another_passage(embedder: LocalEmbedder) -> None:
    passages = await embedder.embed(
        [
            "Keys can be rotated in the console under Security; the old one works for another hour.",
            "The cafeteria serves lunch from half past eleven to two.",
        ],
        "document",
    )
    question = await embedder.embed(["How do I replace an API key?"], "query")
    right, wrong = passages @ question[0]
    assert right > wrong + 0.25


async def test_vectors_are_single_precision_of_unit_length(embedder: LocalEmbedder) -> None:
    without_words = ["\x00", "\x01\x02", "\u200b", "\ufffd", " "]
    vectors = await embedder.embed(["one", "two words", "漢字 👩‍👧", *without_words], "document")
    assert vectors.dtype == np.float32
    assert vectors.shape == (8, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(8), abs=1e-6)


async def test_a_text_has_the_same_vector_in_any_company(embedder: LocalEmbedder) -> None:
    texts = [f"passage {n} " + "about clocks " * n for n in range(12)]
    together = await embedder.embed(texts, "document")
    alone = [(await embedder.embed([text], "document"))[0] for text in texts]
    assert np.array_equal(together, np.array(alone))


async def test_embedding_stops_soon_when_nobody_wants_the_vectors_any_more(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    scope = anyio.CancelScope()

    def ids(text: str, _limit: int) -> list[int]:
        begun.append(text)
        if len(begun) == 10:
            from_thread.run_sync(scope.cancel)
        return [101, 102]

    monkeypatch.setattr(embedder.tokens, "ids", ids)
    with scope:
        await embedder.embed(["text"] * 1000, "document")
    assert scope.cancelled_caught
    assert 10 <= len(begun) < 1000  # other threads go on until the loop has cancelled
    assert len(await embedder.embed(["text"] * 20, "document")) == 20


async def test_no_texts_have_no_vectors(embedder: LocalEmbedder) -> None:
    assert (await embedder.embed([], "document")).shape == (0, 384)


async def test_only_what_is_in_the_window_counts(embedder: LocalEmbedder) -> None:
    words = "clock " * 254
    whole, longer, shorter = await embedder.embed(
        [words, words + "wildly different end", words[: -len("clock ")] + "dog"], "document"
    )
    assert np.array_equal(whole, longer)
    assert not np.array_equal(whole, shorter)


async def test_a_prefix_is_part_of_the_text_of_its_kind() -> None:
    settings = EmbedderSettings(query_prefix="query: ", document_prefix="passage: ")
    plain, prefixed = builtin_embedder(EmbedderSettings()), builtin_embedder(settings)
    assert np.array_equal(
        await prefixed.embed(["clock"], "query"), await plain.embed(["query: clock"], "query")
    )
    assert np.array_equal(
        await prefixed.embed(["clock"], "document"), await plain.embed(["passage: clock"], "document")
    )
    assert prefixed.window == 252
    assert prefixed.identity != plain.identity


@pytest.fixture(scope="module")
def multilingual() -> LocalEmbedder:
    return builtin_embedder(EmbedderSettings(model="multilingual-e5-small"))


@pytest.mark.slow
def test_the_multilingual_model_has_its_publisher_s_prefixes_and_window(multilingual: LocalEmbedder) -> None:
    identity = multilingual.identity
    assert (identity.provider, identity.model, identity.dimension) == (
        "builtin",
        "multilingual-e5-small",
        384,
    )
    assert (identity.query_prefix, identity.document_prefix) == ("query: ", "passage: ")
    assert multilingual.window == 512 - 2 - 2  # without <s> and </s>, and a prefix of two pieces
    assert multilingual.vocabulary_share("Москва") == 1


def test_tokens_are_those_that_the_model_is_published_with(multilingual: LocalEmbedder) -> None:
    """The ids of XLM-R, of which the model's card has the text."""
    ids = multilingual.tokens.ids("query: how much protein should a female eat", 512)
    assert ids == [0, 41, 1294, 12, 3642, 5045, 21308, 5608, 10, 117776, 73203, 2]
    assert multilingual.tokens.ids("Ｃａｆｅ\u0301\u200b南瓜", 512) == multilingual.tokens.ids(
        "Café 南瓜", 512
    )
    assert [*multilingual.token_spans("мир, how\n ")] == [(0, 3), (3, 4), (5, 8)]
    assert multilingual.tokens.ids("</s><s>", 512)[1:-1] == [
        id_ for id_ in multilingual.tokens.ids("</s><s>", 512) if id_ > 3
    ]
    assert multilingual.tokens.ids("clock \ud800", 4) == multilingual.tokens.ids("clock ?", 4)


def test_a_tokenizer_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.model"
    with pytest.raises(ConfigurationError, match=r"tokenizer\.model does not exist\. Reinstall"):
        SentencePieces(file)
    file.write_bytes((MULTILINGUAL_FOLDER / "tokenizer.model").read_bytes()[:1000])
    with pytest.raises(ConfigurationError, match=r"tokenizer\.model is not a valid tokenizer"):
        SentencePieces(file)


async def test_a_question_finds_its_answer_in_another_language(multilingual: LocalEmbedder) -> None:
    passages = await multilingual.embed(
        [
            "Schlüssel lassen sich in der Konsole unter Sicherheit erneuern; der alte gilt noch eine Stunde.",
            "Die Kantine gibt von halb zwölf bis zwei Uhr Mittagessen aus.",
            "会议室需要提前一天预订。",
        ],
        "document",
    )
    for question, answer in {
        "How do I replace an API key?": 0,
        "आप दोपहर का खाना कब खा सकते हैं?": 1,
        "¿Cómo se reserva una sala de reuniones?": 2,
    }.items():
        (vector,) = await multilingual.embed([question], "query")
        assert int((passages @ vector).argmax()) == answer


@pytest.mark.slow
async def test_what_queries_have_in_common_is_partly_subtracted_from_queries_alone(
    multilingual: LocalEmbedder,
) -> None:
    """The file has the mean vectors of these questions in sixteen languages."""
    means = multilingual.mean_queries
    assert means is not None
    as_they_are = replace(multilingual, mean_queries=None)
    with QUESTIONS.open("rb") as file:
        by_language = tomllib.load(file)
    for place, (language, questions) in enumerate(by_language.items()):
        vectors = await as_they_are.embed(questions, "query")
        assert vectors.mean(axis=0) == pytest.approx(means[place], abs=0.002)
        is_told_apart = language in {"ru", "zh", "ja", "ko", "ar", "hi", "vi", "th"}
        middle = means.mean(axis=0)
        shared = OF_OWN_MEAN * means[place] - GIVEN_BACK * middle if is_told_apart else OF_MEAN_QUERY * middle
        assert await multilingual.embed(questions, "query") == pytest.approx(
            unit_rows(vectors - shared), abs=1e-6
        )
    documents = await multilingual.embed(by_language["zh"], "document")
    assert np.array_equal(documents, await as_they_are.embed(by_language["zh"], "document"))


def test_only_the_multilingual_model_that_comes_along_has_a_mean_query() -> None:
    english, multilingual = (
        builtin_embedder(EmbedderSettings(model=model)).identity
        for model in ("all-MiniLM-L6-v2", "multilingual-e5-small")
    )
    mean = mean_query(multilingual)
    assert mean is not None
    assert mean.shape == (384,)
    assert (
        mean_query(english) is mean_query(replace(multilingual, provider="local")) is mean_query(None) is None
    )


async def test_keywords_and_signs_are_in_no_other_language(multilingual: LocalEmbedder) -> None:
    means = multilingual.mean_queries
    assert means is not None
    texts = ["python sort dict by value", "404 ☂ 12,5 %", "effect of α-synuclein on the mitochondria", ""]
    vectors = unit_rows(np.random.default_rng(0).normal(size=(len(texts), means.shape[1])).astype(np.float32))
    usual = np.tile(OF_MEAN_QUERY * means.mean(axis=0), (len(texts), 1))
    assert shared_parts(texts, vectors, means) == pytest.approx(usual)


async def no_passages(limit: int, least: int) -> None:
    assert limit > least


@pytest.mark.slow
async def test_cosines_are_measured_and_those_of_the_english_model_are_the_scale(
    multilingual: LocalEmbedder, embedder: LocalEmbedder
) -> None:
    measured = await calibration(multilingual, no_passages, None)
    assert measured == await measured_calibration(multilingual)
    assert await calibration(multilingual, no_passages, replace(measured, related=1.0)) == replace(
        measured, related=1.0
    )
    assert measured.unrelated == pytest.approx(0.70, abs=0.03)
    assert await calibration(embedder, no_passages, None) is None


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_what_has_no_direction_becomes_zeros_and_only_a_document_may_be_that(row: list[float]) -> None:
    vectors = unit_rows(np.array([[3.0, 4.0], row]))
    assert vectors == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0]]))
    check_queries(vectors, "document")
    check_queries(vectors[:1], "query")
    with pytest.raises(ProviderError, match="zero or not finite"):
        check_queries(vectors, "query")


@pytest.mark.slow
def test_neither_pytorch_nor_the_network_libraries_are_loaded() -> None:
    program = """
import anyio, sys
from rag.models.embed import open_embedder
from rag.config.settings import EmbedderSettings

async def main():
    assert "onnxruntime" not in sys.modules
    async with open_embedder(EmbedderSettings(), {}) as embedder:
        await embedder.embed(["one", "two"], "document")

anyio.run(main)
print(sorted({"torch", "sentence_transformers", "transformers", "openai", "onnx"} & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


DIMENSION = 384


@dataclass(frozen=True)
class Lifted(WrappedEmbedder):
    """Another model: all vectors have something in common, and the rest of them a share of their own."""

    inner: Embedder
    common: float = 0.0
    own: float = 0.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        vectors = await self.inner.embed(texts, kind)
        direction = np.full((len(texts), DIMENSION), self.common / np.sqrt(DIMENSION), np.float32)
        noise = np.zeros((len(texts), 2 * len(texts)), np.float32)
        noise[np.arange(len(texts)), np.arange(len(texts)) + len(texts) * (kind == "query")] = self.own
        return unit_rows(np.hstack([vectors + direction, noise]))


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_measurement_gives_the_constant_of_the_built_in_model_and_the_offset_of_others() -> None:
    async with open_embedder(EmbedderSettings(), {}) as builtin:
        usual = await measured_calibration(builtin)
        assert (usual.unrelated, usual.related) == pytest.approx((0.03, 0.69), abs=0.01)
        common = await measured_calibration(Lifted(builtin, common=1.5))
        shrunk = await measured_calibration(Lifted(builtin, own=1.0))
    assert common.unrelated == pytest.approx(0.70, abs=0.02)  # 1.5² / (1 + 1.5²) = .69
    assert (shrunk.unrelated, shrunk.related) == pytest.approx((usual.unrelated / 2, 0.345), abs=0.01)
    for scale, answer in ((usual, 0.694), (common, common.related), (shrunk, shrunk.related)):
        assert answer is not None
        cosines = np.array([scale.unrelated, answer, 1.2], np.float32)
        rescaled = Meaning(np.zeros(1, np.float32), scale=scale).on_scale(cosines)
        assert rescaled == pytest.approx([0, RELATED, 1], abs=0.002)


def test_every_language_has_questions_with_one_answer_each() -> None:
    for pairs in PAIRS_BY_LANGUAGE.values():
        queries, answers = zip(*pairs, strict=True)
        assert len({*queries}) == len({*answers}) == len(pairs) >= 4


def test_a_scale_without_an_offset_leaves_cosines_as_they_are() -> None:
    cosines = np.array([-1, 0.3, 1], np.float32)
    meaning = Meaning(np.zeros(1, np.float32))
    assert meaning.scale == AS_IT_IS
    assert meaning.on_scale(cosines) is cosines


@pytest.mark.anyio
async def test_a_sentence_is_compared_with_passages_of_other_documents_only() -> None:
    bag = BagOfWords()
    texts = [f"Sentence{number} speaks{number} of{number} thing{number}." for number in range(100)]
    vectors = await bag.embed(texts, "document")
    apart = await cosine_elsewhere(bag, [f"{number // 10}" for number in range(100)], vectors, texts)
    assert apart is not None
    assert apart < 0.8
    twice = np.vstack([vectors, vectors])
    copied = await cosine_elsewhere(bag, [f"{number // 10}" for number in range(200)], twice, texts * 2)
    assert copied == pytest.approx(1)
    assert await cosine_elsewhere(bag, ["0"] * 100, vectors, texts) is None
