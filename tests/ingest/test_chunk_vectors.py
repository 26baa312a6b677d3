"""Vectors of chunks: what is measured from them, and chunks for which the embedder has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rag.config.settings import IngestSettings
from rag.corpus import Calibration, Collection, EmbedderIdentity, Vectors, Visibility
from rag.errors import ProviderError
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Outcome, Progress, Report
from rag.ingest.requested_access import Rights
from rag.models.embed import TextKind, unit_rows
from rag.models.embed.calibration import PAIRS_BY_LANGUAGE
from rag.store.care.rehearsal import open_rehearsal
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import digest_value, split_digest
from rag.store.write import table_maintenance
from rag.store.write.make_collection import ensure_collection
from tests.small_desk import BagOfWords, Counting, ingested
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.usefixtures("parsing_here")]


# Chunks for which the embedder has no vector: stored all the same, told, and asked for again.

BAD = "cursed"
FILLER = "Filler about pendulums. " * 60  # a chunk of its own


@dataclass(slots=True)
class Moody(Counting):
    """An embedder without a vector for texts with some word, or for any text."""

    word: str = BAD
    broken: bool = False

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        self.texts += texts
        vectors = await self.embedder.embed(texts, kind)
        vectors[[self.broken or (self.word in text if self.word else False) for text in texts]] = 0
        return vectors


@dataclass(slots=True)
class Library:
    """A folder of files and a collection made of it."""

    small: ModuleType
    folder: Path
    embedder: Moody

    def write(self, name: str, *paragraphs: str) -> None:
        path = self.folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(paragraphs))

    async def ingest(self, *names: str) -> Report:
        self.embedder.texts.clear()
        paths = [self.folder / "files" / name for name in names or [""]]
        report: Report = await self.small.ingested(self.folder / "data", *paths, embedder=self.embedder)
        return report

    async def table(self) -> CollectionReader:
        return await table_of(self.folder / "data")

    async def lacking(self) -> int:
        return (await (await self.table()).statistics()).without_vector

    async def by_words(self, text: str) -> list[str]:
        return [hit.stored.chunk.text for hit in await (await self.table()).sparse(text, 9, "true")]

    async def by_meaning(self, text: str) -> list[str]:
        (vector,) = self.small.vectors([text])
        return [hit.stored.chunk.text for hit in await (await self.table()).dense(vector, 99, "true")]


@pytest.fixture
def library(small_desk: ModuleType, tmp_path: Path) -> Library:
    return Library(small_desk, tmp_path, Moody(small_desk.BagOfWords()))


def outcomes(report: Report) -> dict[str, Outcome]:
    return {outcome.path.rpartition("/")[2]: outcome for outcome in report.outcomes}


async def test_a_chunk_without_a_vector_is_found_by_its_words_only_and_the_report_names_its_file(
    library: Library,
) -> None:
    library.write("bad.md", FILLER, f"{BAD} zanzibar", FILLER)
    library.write("good.md", "plain zanzibar")
    report = await library.ingest()
    assert report.complete
    bad, good = outcomes(report)["bad.md"], outcomes(report)["good.md"]
    assert (bad.outcome, bad.without_vector, good.without_vector) == ("added", 1, 0)
    assert bad.reason == f"1 of {bad.chunks} chunks without a vector"
    (note,) = report.notes
    assert note == (
        f"The embedding model has no valid vector for 1 chunk: {library.folder}/files/bad.md (1). Searches "
        "find them by their words only. The next run asks again."
    )
    assert any(BAD in text for text in await library.by_words("zanzibar"))
    texts = await library.by_meaning("zanzibar")
    assert texts
    assert not any(BAD in text for text in texts)
    assert await library.lacking() == 1


async def test_a_document_with_other_metadata_has_changed_although_a_vector_is_still_missing(
    library: Library,
) -> None:
    library.write("bad.md", f"{BAD} zanzibar")
    await library.ingest()
    assert outcomes(await library.ingest())["bad.md"].outcome == "unchanged"
    library.write("bad.md.meta.toml", 'title = "Spells"')
    assert outcomes(await library.ingest())["bad.md"].outcome == "replaced"
    assert outcomes(await library.ingest())["bad.md"].outcome == "unchanged"


async def test_the_next_run_asks_for_the_document_again_and_for_no_other(library: Library) -> None:
    library.write("bad.md", FILLER, f"{BAD} zanzibar", FILLER)
    library.write("good.md", "plain zanzibar")
    await library.ingest()
    again = await library.ingest()
    assert outcomes(again)["bad.md"].without_vector == 1
    assert (again.counts["unchanged"], len(again.notes)) == (2, 1)
    assert not again.has_news()
    assert not any("plain" in text for text in library.embedder.texts)

    library.embedder.word = ""
    mended = await library.ingest()
    assert mended.notes == ()
    assert (mended.counts["unchanged"], mended.counts["replaced"]) == (1, 1)
    assert not outcomes(mended)["bad.md"].without_vector
    assert any(BAD in text for text in await library.by_meaning("zanzibar"))
    assert len(await library.by_words("zanzibar")) == 2
    assert await library.lacking() == 0

    last = await library.ingest()
    assert (library.embedder.texts, last.notes) == ([], ())


async def test_a_moved_file_lacks_its_vector_as_before_and_a_changed_one_is_asked_for_anew(
    library: Library,
) -> None:
    library.write("bad.md", f"{BAD} zanzibar")
    library.write("other.md", f"{BAD} madagascar")
    await library.ingest()
    (library.folder / "files/bad.md").rename(library.folder / "files/moved.md")
    library.write("other.md", "blessed madagascar")
    report = await library.ingest()
    moved, unmoved = outcomes(report)["moved.md"], outcomes(report)["other.md"]
    assert (moved.outcome, moved.without_vector) == ("moved", 1)
    assert (unmoved.outcome, unmoved.without_vector) == ("replaced", 0)
    assert await library.lacking() == 1
    (library.folder / "files/moved.md").unlink()
    assert (await library.ingest()).counts["removed"] == 1
    assert await library.lacking() == 0


async def test_a_copy_is_asked_for_on_its_own(library: Library) -> None:
    library.write("bad.md", f"{BAD} zanzibar")
    await library.ingest()
    library.write("copy.md", f"{BAD} zanzibar")
    report = await library.ingest()
    assert [outcome.without_vector for outcome in report.outcomes] == [1, 1]
    assert await library.lacking() == 2


async def test_files_without_any_vector_are_stored_as_long_as_the_model_works(library: Library) -> None:
    library.write("bad.md", FILLER + BAD, FILLER + BAD)
    report = await library.ingest()
    assert outcomes(report)["bad.md"].without_vector == outcomes(report)["bad.md"].chunks
    assert await library.by_meaning("pendulums") == []
    assert await library.by_words("pendulums")


async def test_a_model_that_fails_for_every_text_fails_the_run_and_the_next_one_goes_on(
    library: Library,
) -> None:
    library.write("a.md", "plain zanzibar")
    await library.ingest()
    library.write("b.md", "plain madagascar")
    library.embedder.broken = True
    with pytest.raises(ProviderError, match="no valid vector for any of 1 texts, nor for a plain word"):
        await library.ingest()
    assert await library.by_meaning("zanzibar") == ["plain zanzibar"]
    library.embedder.broken = False
    assert (await library.ingest()).counts["added"] == 1
    assert await library.lacking() == 0


@pytest.mark.parametrize(("stored", "parts"), [("a7", ("a7", 0)), ("a7 2", ("a7", 2)), ("", ("", 0))])
async def test_a_source_of_an_earlier_version_lacks_no_vector(stored: str, parts: tuple[str, int]) -> None:
    assert split_digest(stored) == parts
    assert digest_value(*parts) == stored


async def test_zeros_are_never_found_by_meaning_with_an_index_either(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 20)
    for number in range(30):
        library.write(f"{number}.md", f"{BAD if number % 10 == 0 else 'plain'} zanzibar {number}")
    await library.ingest()
    statistics = await (await library.table()).statistics()
    assert any(index.startswith("vector") for index in statistics.indexes)
    assert statistics.without_vector == 3
    assert len(await library.by_meaning("zanzibar")) == 27
    library.embedder.word = ""
    await library.ingest()
    assert len(await library.by_meaning("zanzibar")) == 30
    vectors = [hit.stored.vector for hit in await (await library.table()).sparse("zanzibar", 99, "true")]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(30), abs=1e-5)


# What an embedder's cosines mean is kept with the collection, measured from vectors that are there.


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
        long = {word: " ".join(f"{word}{part}" for part in range(40)) for word in words}
        sections = [
            f"# {word}\n\nIt says {word}0 and {word}1 and {word}2.\n\n{long[word]}\n" for word in words
        ]
        (docs / f"{number}.md").write_text("\n".join(sections))


async def collection_in(data: Path) -> Collection:
    (collection,) = await DeskReader(data, timeout_seconds=9).collections("default")
    return collection


async def stored(data: Path) -> Calibration:
    calibration = (await collection_in(data)).calibration
    assert calibration
    return calibration


QUESTIONS = {query for pairs in PAIRS_BY_LANGUAGE.values() for query, _ in pairs}


async def test_an_endpoint_is_asked_once_when_there_are_enough_passages(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(8))
    remote = model("openai")
    await ingested(data, docs, embedder=remote)
    assert (await collection_in(data)).calibration is None
    assert not QUESTIONS & {*remote.texts}
    write(docs, range(12))
    await ingested(data, docs, embedder=remote)
    scale = await stored(data)
    assert scale.elsewhere is not None
    assert 0.7 < scale.unrelated < (scale.related or 0) < 0.95
    before = len(remote.texts)
    await ingested(data, docs, embedder=remote)
    assert len(remote.texts) == before


@dataclass(slots=True)
class Curt(Counting):
    """An endpoint that answers no questions."""

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        if kind == "query":
            raise ProviderError("no")
        return await self.embedder.embed(texts, kind)


async def test_of_an_endpoint_that_fails_the_next_run_asks_again(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(12))
    remote = model("openai")
    await ingested(data, docs, embedder=Curt(remote.embedder))
    assert (await collection_in(data)).calibration is None
    await ingested(data, docs, embedder=remote)
    assert 0.7 < (await stored(data)).unrelated < 0.95


async def test_a_model_on_this_machine_is_asked_itself_once(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(1))
    local = model("onnx")
    await ingested(data, docs, embedder=local)
    scale = await stored(data)
    assert 0.7 < scale.unrelated < (scale.related or 0) < 0.95
    before = len(local.texts)
    await ingested(data, docs, embedder=local)
    assert len(local.texts) == before


async def test_the_built_in_model_is_what_others_are_measured_by(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(8))
    await ingested(data, docs, embedder=model("builtin"))
    assert (await collection_in(data)).calibration is None
    write(docs, range(12))
    await ingested(data, docs, embedder=model("builtin"))
    scale = await stored(data)
    assert scale.elsewhere is not None
    assert replace(scale, elsewhere=None, sampled=0) == Calibration(0.0)


async def test_a_model_is_asked_how_near_sentences_are_to_passages_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(12))
    local = model("onnx")
    await ingested(data, docs, embedder=local)
    scale = await stored(data)
    assert scale.sampled > 100
    assert scale.elsewhere is not None
    assert 0.75 < scale.elsewhere < 0.95  # .8 and what two texts have in common by chance
    sentences = [text for text in local.texts if text.startswith("It says ") and text.endswith(".")]
    assert len(sentences) > 90
    write(docs, range(14))
    await ingested(data, docs, embedder=local)
    assert await stored(data) == scale  # grown, but not much
    monkeypatch.setattr("rag.ingest.chunk_vectors.GROWTH", 1.1)
    await ingested(data, docs, embedder=local)
    assert (await stored(data)).sampled > scale.sampled


@pytest.mark.parametrize("visibility", ["tenant", "restricted"])
async def test_only_passages_that_everybody_may_read_are_compared_with_sentences(
    visibility: Visibility, tmp_path: Path
) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(12))
    local = model("onnx")
    await ensure_collection(data, "default", "documents", local.identity, visibility=visibility)
    await ingested(data, docs, embedder=local)
    assert ((await stored(data)).elsewhere is None) == (visibility == "restricted")


async def test_a_rehearsal_keeps_nothing(tmp_path: Path) -> None:
    data, docs = tmp_path / "data", tmp_path / "docs"
    write(docs, range(1))
    local = model("onnx")
    await ingested(data, docs, embedder=replace(local, embedder=BagOfWords(local.identity)))
    before = await collection_in(data)
    write(docs, range(2))
    async with open_rehearsal(data, replace(before, calibration=None)) as writer:
        instructions = Instructions(IngestSettings(), Rights("tenant"))
        await ingest(writer, local, [docs], instructions, Progress())
    assert await collection_in(data) == before
