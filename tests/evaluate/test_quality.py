"""Search by words is good in languages of different kinds, on published questions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.config.settings import Settings
from rag.evaluate.evaluation import contenders, evaluate, prepare_fresh
from rag.evaluate.sets import read_set
from rag.models.embed.local_embedder import LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.corpus import Language, Vectors
    from rag.models.embed import TextKind
    from tests.evaluate.conftest import Watching

pytestmark = pytest.mark.slow

EVERY = 10  # 119 of 1,190 questions, which take a tenth of the time


@pytest.fixture
def cheap_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same vector for every text: a search by words asks for none. Chunks are those of the model."""

    async def embed(self: LocalEmbedder, texts: Sequence[str], _kind: TextKind) -> Vectors:
        vectors = np.zeros((len(texts), self.identity.dimension), np.float32)
        vectors[:, 0] = 1
        return vectors

    monkeypatch.setattr(LocalEmbedder, "embed", embed)


@pytest.mark.usefixtures("cheap_vectors")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "language", "floor"),
    [("xquad_zh", "none", 0.90), ("xquad_en", "English", 0.95), ("xquad_de", "German", 0.94)],
)
async def test_words_alone_find_the_paragraph_that_answers(
    judged: Path, watching: Watching, name: str, language: Language, floor: float
) -> None:
    whole, settings = read_set(judged / name), Settings()
    some = replace(whole, questions=whole.questions[::EVERY])
    chosen = contenders(settings, ["default"], ["sparse"])
    async with prepare_fresh(some, settings, {}, language=language, progress=watching.ingesting) as room:
        (run,) = await evaluate(some, room, {}, chosen, watching)
    assert run.summary.queries == 119
    assert run.summary.leaks == 0
    assert run.summary.metrics["nDCG@10"] >= floor
