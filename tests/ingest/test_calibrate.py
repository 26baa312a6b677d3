"""What an embedder's cosines mean is kept with the collection, measured from vectors that are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.config.settings import IngestSettings
from rag.corpus import EmbedderIdentity
from rag.ingest.ingest_run import ingest
from rag.ingest.rights.requested_rights import Rights
from rag.ingest.run_progress import SilentProgress
from rag.ingest.run_steps import Instructions
from rag.models.embed import unit_rows
from rag.models.embed.calibration import PAIRS_BY_LANGUAGE
from rag.store.care.rehearsal import open_rehearsal
from rag.store.read.desk_reader import DeskReader
from tests.small_desk import BagOfWords, Counting, ingested

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.corpus import Calibration, Collection, Vectors
    from rag.models.embed import TextKind

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Alike(BagOfWords):
    """A model that gives .8 to all texts, and less than 1 to few."""

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        vectors = await BagOfWords.embed(self, texts, kind)
        return unit_rows(vectors + np.eye(vectors.shape[1], dtype=np.float32)[0] * 2)


def model(provider: str) -> Counting:
    return Counting(Alike(EmbedderIdentity(provider, "alike", 32)))


def write(docs: Path, documents: range) -> None:
    docs.mkdir(exist_ok=True)
    for number in documents:
        words = [f"word{number}x{at}" for at in range(9)]
        sections = [f"# {word}\n\n{' '.join(f'{word}{part}' for part in range(40))}\n" for word in words]
        (docs / f"{number}.md").write_text("\n".join(sections))


async def made(data: Path) -> Collection:
    (one,) = await DeskReader(data, timeout_seconds=9).collections("default")
    return one


async def stored(data: Path) -> Calibration:
    found = (await made(data)).calibration
    assert found
    return found


async def test_an_endpoint_is_asked_for_nothing_more_and_few_passages_are_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(8))
    remote = model("openai")
    await ingested(data, docs, embedder=remote)
    assert (await made(data)).calibration is None
    write(docs, range(12))
    await ingested(data, docs, embedder=remote)
    found = await stored(data)
    assert found.unrelated == pytest.approx(0.75, abs=0.1)
    assert found.passages == len(remote.texts)
    assert not {query for pairs in PAIRS_BY_LANGUAGE.values() for query, _ in pairs} & {*remote.texts}
    write(docs, range(14))
    await ingested(data, docs, embedder=remote)
    assert await stored(data) == found  # grown, but not much
    monkeypatch.setattr("rag.ingest.chunk_vectors.GROWTH", 1.1)
    await ingested(data, docs, embedder=remote)
    assert (await stored(data)).passages == len(remote.texts)


async def test_a_model_on_this_machine_is_asked_itself_once(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(1))
    local = model("onnx")
    await ingested(data, docs, embedder=local)
    found = await stored(data)
    assert found.passages == 0
    assert 0.7 < found.unrelated < (found.related or 0) < 0.95
    before = len(local.texts)
    await ingested(data, docs, embedder=local)
    assert len(local.texts) == before


async def test_the_built_in_model_is_what_others_are_measured_by(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs, range(12))
    await ingested(tmp_path / "data", docs, embedder=model("builtin"))
    assert (await made(tmp_path / "data")).calibration is None


async def test_a_rehearsal_keeps_nothing(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(1))
    local = model("onnx")
    await ingested(data, docs, embedder=replace(local, embedder=BagOfWords(local.identity)))
    before = await made(data)
    write(docs, range(2))
    async with open_rehearsal(data, replace(before, calibration=None)) as writer:
        instructions = Instructions(IngestSettings(), 254, Rights("tenant"))
        await ingest(writer, local, [docs], instructions, SilentProgress())
    assert await made(data) == before
