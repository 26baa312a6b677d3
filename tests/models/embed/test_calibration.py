"""What the cosines of models mean, measured on the built-in one and on others made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.config.model_settings import EmbedderSettings
from rag.models.embed import WrappedEmbedder, open_embedder, unit_rows
from rag.models.embed.calibration import PAIRS_BY_LANGUAGE, measured_calibration, unrelated_cosine
from rag.search.recall import AS_IT_IS, RELATED, Meaning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import Vectors
    from rag.models.embed import Embedder, TextKind

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
        found = Meaning(np.zeros(1, np.float32), scale=scale).on_scale(cosines)
        assert found == pytest.approx([0, RELATED, 1], abs=0.002)


def test_every_language_has_questions_with_one_answer_each() -> None:
    for pairs in PAIRS_BY_LANGUAGE.values():
        queries, answers = zip(*pairs, strict=True)
        assert len({*queries}) == len({*answers}) == len(pairs) >= 4


def test_a_scale_without_an_offset_leaves_cosines_as_they_are() -> None:
    cosines = np.array([-1, 0.3, 1], np.float32)
    meaning = Meaning(np.zeros(1, np.float32))
    assert meaning.scale == AS_IT_IS
    assert meaning.on_scale(cosines) is cosines


def passages(sources: int, of_each: int, common: float) -> tuple[list[str], Vectors]:
    """Chunks at random, all with `common` of a subject, and those of one source with more of its own."""
    random = np.random.default_rng(5)
    subject = random.standard_normal((sources, 1, 64)) * 3
    rows = (subject + random.standard_normal((sources, of_each, 64))).reshape(-1, 64)
    rows = unit_rows(rows) + common * np.eye(64, dtype=np.float32)[0]
    return [f"s{at // of_each}" for at in range(len(rows))], unit_rows(rows)


def test_passages_of_different_documents_show_what_a_model_gives_to_all() -> None:
    for common, expected in ((0.0, 0.0), (1.0, 0.43), (2.0, 0.77)):
        found = unrelated_cosine(*passages(40, 5, common))
        assert found == pytest.approx(expected, abs=0.05)
        assert found == unrelated_cosine(*passages(40, 5, common))


def test_too_few_passages_or_documents_show_nothing() -> None:
    assert unrelated_cosine(*passages(9, 40, 1.0)) is None
    assert unrelated_cosine(*passages(33, 3, 1.0)) is None
    names, vectors = passages(40, 5, 1.0)
    missing = vectors.copy()
    missing[:] = 0  # no vector for any of them
    assert unrelated_cosine(names, missing) is None
