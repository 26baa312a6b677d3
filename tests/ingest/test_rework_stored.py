"""A rebuild makes new tables beside those that are searched, and changes nothing that it shouldn't."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from rag.corpus import (
    Access,
    Build,
    Chunking,
    Collection,
    Document,
    EmbedderIdentity,
    Heading,
    Source,
    Vectors,
)
from rag.errors import BusyError, ProviderError, StoreError
from rag.ingest.parse.parsers import parse
from rag.ingest.rework_stored import Rebuilt, document_of, rebuild
from rag.models.embed import Embedder, TextKind, unit_rows
from rag.store.care.folder_checks import check_stray
from rag.store.care.folder_checks import open_folder as opened_for_checks
from rag.store.read import schema
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import connect
from rag.store.write import collection_tables
from rag.store.write.change_collection import forget_builds, open_writer
from tests.small_desk import BagOfWords, ingested, recorded, set_access
from tests.tables import table_of

SENTENCES = Chunking("sentence", max_tokens=32)
TEXTS = {
    "a.md": "# Alpha\n\nThe pendulum of alpha swings. " * 20,
    "b.md": "# Beta\n\nThe zanzibarite of beta shines. " * 20,
    "c.py": "class Gamma:\n" + "    def swing(self):\n        return 1\n" * 9,
}


OTHER = EmbedderIdentity("tests", "halved", 16)


@dataclass(frozen=True)
class Halved(BagOfWords):
    """Another model: half of the dimensions. It fails after some texts, if told to."""

    identity: EmbedderIdentity = OTHER
    texts_before_failing: int = 10**6

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        object.__setattr__(self, "texts_before_failing", self.texts_before_failing - len(texts))
        if self.texts_before_failing < 0:
            raise ProviderError("The model is away.")
        return unit_rows(np.ascontiguousarray((await BagOfWords().embed(texts, kind))[:, :16]))


def made_in(folder: Path) -> Path:
    docs = folder / "docs"
    docs.mkdir()
    for name, text in TEXTS.items():
        (docs / name).write_text(text)
    anyio.run(ingested, folder / "data", docs)
    return folder / "data"


@pytest.fixture
def beside_docs(tmp_path: Path) -> Path:
    return made_in(tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_in(tmp_path_factory.mktemp("rebuild"))


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "data")


async def rebuilt(data: Path, embedder: Embedder, *chunking: Chunking, undo: bool = False) -> Rebuilt:
    """As the command does it."""
    async with open_writer(data, (await table_of(data)).collection) as writer:
        collection = writer.collection
        number = 1 + max(collection_tables.build_numbers(data, "default", "documents"))
        coming = Build(number, embedder.identity, "default", chunking)
        if undo:
            assert collection.former
            coming = collection.former
        elif collection.coming and replace(coming, number=collection.coming.number) == collection.coming:
            coming = collection.coming
        return await rebuild(writer, coming, embedder)


async def texts(table: CollectionReader) -> list[tuple[str, str]]:
    """The id and text of each visible chunk."""
    rows = await table.chunk_rows(lambda query: query.select([*_CHUNK]))
    return sorted((row["id"], row["body"]) for row in rows.to_pylist())


_CHUNK = ("id", "body", "source_id", "labels", "revision")


async def labels(data: Path) -> dict[str, set[tuple[str, ...]]]:
    """The labels that the chunks of each source hold."""
    rows = (await (await table_of(data)).chunk_rows(lambda query: query.select([*_CHUNK]))).to_pylist()
    return {
        row["source_id"]: {tuple(chunk["labels"]) for chunk in rows if chunk["source_id"] == row["source_id"]}
        for row in rows
    }


@pytest.mark.slow
@pytest.mark.anyio
async def test_another_embedder_leaves_passages_ids_and_metadata_as_they_are(data: Path) -> None:
    before = await table_of(data)
    then, sources = await texts(before), await before.listing()
    result = await rebuilt(data, Halved())
    after = await table_of(data)
    assert await texts(after) == then
    assert (result.recut, result.copied, result.sources) == (0, 3, 3)
    assert after.collection.embedder == Halved().identity
    assert await after.listing() == sources
    assert (await after.chunk_rows(lambda query: query.select(["vector"])))["vector"].type.list_size == 16
    assert await texts(before) == then  # a search that began before still has its tables


@pytest.mark.slow
@pytest.mark.anyio
async def test_another_chunking_cuts_the_stored_texts_and_the_next_run_agrees(
    beside_docs: Path, tmp_path: Path
) -> None:
    data = beside_docs
    before = {source.id: source.chunk_count for source in await (await table_of(data)).listing()}
    (tmp_path / "docs" / "b.md").unlink()  # its text is stored
    result = await rebuilt(data, BagOfWords(), SENTENCES)
    after = await (await table_of(data)).listing()
    assert result.recut == 3
    assert {source.id for source in after} == before.keys()
    assert sum(source.chunk_count for source in after) > sum(before.values())
    assert {source.name: source.lines for source in after} == {"a.md": (), "b.md": (), "c.py": (1, 8, 14)}
    (tmp_path / "docs" / "b.md").write_text(TEXTS["b.md"])
    report = await ingested(data, tmp_path / "docs")
    assert [outcome.outcome for outcome in report.outcomes] == ["unchanged"] * 3


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_interrupted_rebuild_goes_on_and_the_old_tables_answer_until_then(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.ingest.rework_stored.WAVE_CHARS", 1)  # a commit for each source
    then = await texts(await table_of(data))
    with pytest.raises(ProviderError):
        await rebuilt(data, Halved(texts_before_failing=2))
    table = await table_of(data)
    assert await texts(table) == then
    assert table.collection.embedder == BagOfWords().identity
    assert table.collection.coming is not None  # how others recognise a half-made rebuild
    desk, _ = await opened_for_checks(data)
    assert desk
    (finding,) = [finding for finding in await check_stray(desk) if finding.problem]
    assert "collection rebuild documents" in finding.remedy
    result = await rebuilt(data, Halved())
    assert (result.sources, result.copied) == (3, 3)
    assert collection_tables.build_numbers(data, "default", "documents") == {
        0,
        1,
    }  # it went on in the same tables
    assert await texts(await table_of(data)) == then
    assert (await table_of(data)).collection.coming is None


@pytest.mark.slow
@pytest.mark.anyio
async def test_other_options_begin_anew_and_leave_no_tables_behind(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.ingest.rework_stored.WAVE_CHARS", 1)
    with pytest.raises(ProviderError):
        await rebuilt(data, Halved(texts_before_failing=2))
    await rebuilt(data, BagOfWords(), SENTENCES)
    assert collection_tables.build_numbers(data, "default", "documents") == {0, 2}
    await rebuilt(data, BagOfWords())
    assert collection_tables.build_numbers(data, "default", "documents") == {
        2,
        3,
    }  # one to go back to, no more


@pytest.mark.slow
@pytest.mark.anyio
async def test_rights_that_change_while_a_rebuild_is_interrupted_hold_in_its_tables(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.ingest.rework_stored.WAVE_CHARS", 1)
    ids = [source.id for source in await (await table_of(data)).listing()]
    with pytest.raises(ProviderError):
        await rebuilt(data, Halved(texts_before_failing=2))
    async with open_writer(data, (await table_of(data)).collection) as writer:
        await set_access(writer, dict.fromkeys(ids, Access("restricted", frozenset({"user:ann"}))))
    await rebuilt(data, Halved())
    held = await labels(data)
    assert held.keys() == {*ids}
    assert all(
        "+user:ann" in labels_of_chunk for of_source in held.values() for labels_of_chunk in of_source
    ), held


@pytest.mark.slow
@pytest.mark.anyio
async def test_undo_brings_back_vectors_and_passages_but_no_earlier_text(
    beside_docs: Path, tmp_path: Path
) -> None:
    data = beside_docs
    docs, then = tmp_path / "docs", dict(await texts(await table_of(data)))
    await rebuilt(data, Halved(), SENTENCES)
    (docs / "a.md").write_text("# Alpha\n\nNothing of it is left.\n")
    (docs / "b.md").unlink()
    await ingested(data, docs, embedder=Halved())
    await recorded(
        data, (await table_of(data)).collection.name and next(iter(then)).partition("/")[0], Access("tenant")
    )
    result = await rebuilt(data, BagOfWords(), undo=True)
    table = await table_of(data)
    assert table.collection.build == 0
    assert table.collection.former is not None  # which can be undone, too
    now = dict(await texts(table))
    assert not any("pendulum" in body or "zanzibarite" in body for body in now.values())
    assert any("Nothing of it is left" in body for body in now.values())
    assert {id_: body for id_, body in now.items() if "Gamma" in body} == {
        id_: body for id_, body in then.items() if "Gamma" in body
    }
    assert (result.recut, result.copied) == (1, 1)


@pytest.mark.slow
@pytest.mark.anyio
async def test_chunks_that_a_killed_undo_left_without_their_source_are_removed(data: Path) -> None:
    await rebuilt(data, Halved(), SENTENCES)
    async with open_writer(data, (await table_of(data)).collection) as writer:
        (gone,) = [
            source.id for uri, source in (await writer.known_sources()).items() if uri.endswith("b.md")
        ]
        await writer.remove([gone])
    former = await (await connect(data)).open_table(schema.sources_table("default", "documents"))
    await former.delete(f"id = '{gone}'")
    await rebuilt(data, BagOfWords(), undo=True)
    held = {id_.partition("/")[0] for id_, _ in await texts(await table_of(data))}
    assert len(held) == 2
    assert gone not in held


@pytest.mark.slow
@pytest.mark.anyio
async def test_incomplete_tables_are_never_switched_to(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag.ingest.rework_stored.WAVE_CHARS", 1)
    then = await texts(await table_of(data))
    with pytest.raises(ProviderError):
        await rebuilt(data, Halved(texts_before_failing=2))
    chunks = await (await connect(data)).open_table(schema.chunks_table("default", "documents", 1))
    await chunks.delete("seq = 0")
    with pytest.raises(StoreError, match="refdesk-admin purge --collection documents"):
        await rebuilt(data, Halved())
    assert await texts(await table_of(data)) == then


@pytest.mark.anyio
async def test_a_purge_leaves_only_the_tables_that_are_searched(data: Path) -> None:
    await rebuilt(data, Halved())
    async with open_writer(data, (await table_of(data)).collection) as writer:
        assert await forget_builds(data, writer.collection)
    table = await table_of(data)
    assert (table.collection.former, collection_tables.build_numbers(data, "default", "documents")) == (
        None,
        {1},
    )
    assert len(await texts(table)) > 2


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_writer_that_knows_the_former_tables_writes_to_none_of_them(data: Path) -> None:
    former: Collection = (await table_of(data)).collection
    await rebuilt(data, BagOfWords(), SENTENCES)
    async with open_writer(data, former) as writer:
        assert (writer.collection.build, writer.collection.chunking) == (1, (SENTENCES,))
    await rebuilt(data, Halved())
    with pytest.raises(BusyError, match="rebuilt meanwhile"):
        async with open_writer(data, former):
            pass


NOTE = "---\nowner: '[[Ann]]'\ndue: 2024-06-30\n---\n\n## Delta\n\nThe escapement of delta.\n"


@pytest.mark.parametrize(("name", "content"), [*TEXTS.items(), ("note.md", NOTE)])
def test_the_blocks_of_a_stored_text_are_those_of_its_file(name: str, content: str) -> None:
    parsed = parse(content.encode(), name)
    assert document_of(*stored(parsed, name)).blocks == parsed.blocks


def test_blocks_without_a_parser_follow_headings_and_blank_lines() -> None:
    text = "Intro.\n\nFirst\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    source, _, _ = stored(Document(text, "T", "text/html", ()), "page.html")
    blocks = document_of(source, (Heading("First", 2, 8),), text).blocks
    assert [
        (block.kind, block.level, text[block.start : block.end].partition("\n")[0]) for block in blocks
    ] == [
        ("paragraph", 0, "Intro."),
        ("heading", 2, "First"),
        ("list", 0, "- one"),
        ("table", 0, "| a | b |"),
    ]


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("text", ["|" * 200_000 + "\nabc", "a | b\n" + " " * 200_000 + "c"])
def test_a_text_that_begins_like_a_table_is_read_in_linear_time(text: str) -> None:
    source, _, _ = stored(Document(text, "T", "text/html", ()), "page.html")
    assert [block.kind for block in document_of(source, (), text).blocks] == ["paragraph"]


def stored(document: Document, name: str) -> tuple[Source, tuple[Heading, ...], str]:
    values: dict[str, Any] = dict.fromkeys(("id", "collection", "uri", "digest"), "x")
    values |= {"title": document.title, "mime_type": document.mime_type, "metadata": {"path": name}}
    values |= {"chunk_count": 0, "length": len(document.text), "ingested_at": None}
    return Source(**values), document.outline, document.text
