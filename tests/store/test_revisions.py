"""What the tables keep of former revisions of a document, and when they keep none."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag.corpus import Source
from rag.ingest import rework_stored
from rag.store.read import schema
from rag.store.write.collection_writer import CollectionWriter
from rag.text.revisions import mark, revision_of
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def _put(small: ModuleType, data: Path, *paragraphs: str, **details: object) -> Source:
    async with await small.writing(data) as writer:
        item = small.new_source(writer, "rules", *paragraphs, **details)
        await writer.replace([item])
        source: Source = item.source
        return source


async def _kept(data: Path) -> tuple[str | None, list[str]]:
    """The revision of the only source, and its former ones."""
    table = await table_of(data)
    (source,) = await table.all_sources()
    return source.source.revision, [*await table.former(source)]


def _revision(*paragraphs: str) -> str:
    return revision_of([mark(paragraph) for paragraph in paragraphs])


async def test_a_source_keeps_its_former_revisions_latest_first_and_each_once(
    small_desk: ModuleType, data: Path
) -> None:
    first, second, third = [_revision("pendulum", *more) for more in ((), ("a",), ("b",))]
    for paragraphs, expected in (
        (["pendulum"], (first, [])),
        (["pendulum", "a"], (second, [first])),
        (["pendulum", "a"], (second, [first])),
        (["pendulum", "b"], (third, [second, first])),
        (["pendulum"], (first, [third, second])),
    ):
        await _put(small_desk, data, *paragraphs)
        assert await _kept(data) == expected


async def test_metadata_and_rights_change_no_revision(small_desk: ModuleType, data: Path) -> None:
    await _put(small_desk, data, "pendulum")
    details = {"metadata": {"path": "new"}, "title": "New", "url": "https://example.org/"}
    await _put(small_desk, data, "pendulum", **details)
    assert await _kept(data) == (_revision("pendulum"), [])


async def test_a_removed_source_that_comes_back_knows_nothing_of_former_texts(
    small_desk: ModuleType, data: Path
) -> None:
    await _put(small_desk, data, "pendulum", "a")
    source = await _put(small_desk, data, "pendulum")
    async with await small_desk.writing(data) as writer:
        await writer.remove([source.id])
    assert (await _put(small_desk, data, "pendulum")).id == source.id
    assert await _kept(data) == (_revision("pendulum"), [])


async def test_a_purge_leaves_no_digest_of_a_former_text(small_desk: ModuleType, data: Path) -> None:
    await _put(small_desk, data, "pendulum", "a secret")
    await _put(small_desk, data, "pendulum")
    assert await _kept(data) == (_revision("pendulum"), [_revision("pendulum", "a secret")])
    assert _is_in_files(data, b"@former")
    async with await small_desk.writing(data) as writer:
        await writer.purge()
    assert await _kept(data) == (_revision("pendulum"), [])
    assert not _is_in_files(data, b"@former")


def _is_in_files(data: Path, word: bytes) -> bool:
    return any(word in file.read_bytes() for file in data.rglob("*") if file.is_file())


async def test_what_is_cut_differently_by_a_rebuild_keeps_what_it_was(
    small_desk: ModuleType, data: Path
) -> None:
    await _put(small_desk, data, "pendulum", "a")
    source = await _put(small_desk, data, "pendulum", "b")
    async with await small_desk.writing(data) as writer:
        (whole,) = await writer.whole_sources([source.id])
        item = small_desk.new_source(writer, "rules", "pendulum\n\nb")
        cut = whole.with_passages(item.passages, "another", None, writer.collection)
    fields = json.loads(cut.row["fields"])
    assert fields[schema.REVISION] == ["another", _revision("pendulum b")]
    assert [*schema.former_record(cut.row["fields"])] == [
        _revision("pendulum", "b"),
        _revision("pendulum", "a"),
    ]


def test_a_rebuild_that_goes_on_keeps_what_is_known_of_its_own_passages() -> None:
    def row(digest: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
        return {"digest": digest, "chunk_count": 1, "fields": json.dumps(fields)}

    ours, theirs = ({f"@{name}": [of] for name in ("flags", "revision", "former")} for of in "ab")
    described = rework_stored._source_row(row("d/old", year=1, **ours), row("d/new", **theirs))  # noqa: SLF001
    assert json.loads(described["fields"]) == {"year": 1} | theirs


async def test_a_revision_of_passages_that_an_earlier_version_cut_anew_counts_as_none(
    small_desk: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await _put(small_desk, data, "pendulum", "a")
    async with await small_desk.writing(data) as writer:
        await _set(writer, source.id, digest="anew 2")
    assert await _kept(data) == (None, [])
    async with await small_desk.writing(data) as writer:
        await writer.examine_again()
    assert await _kept(data) == (_revision("pendulum", "a"), [])
    with monkeypatch.context() as patched:
        patched.setattr(CollectionWriter, "whole_sources", None)
        async with await small_desk.writing(data) as writer:
            await writer.examine_again()  # looks at nothing that is up to date


async def _set(writer: CollectionWriter, id_: str, **columns: object) -> None:
    await writer._update([{"id": id_, **columns}], ("id", *columns))  # noqa: SLF001 past what writes it
