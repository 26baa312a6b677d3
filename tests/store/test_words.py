"""The words of chunks: which column is searched, and how tables of an earlier version get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lancedb.index import FTS

from rag.store import schema
from rag.store.connection import connect
from rag.store.damage import index_problem
from rag.store.reader import CollectionReader, Reader
from rag.store.strict import readable_only
from rag.store.upgrade import complete_all_words
from rag.store.words import complete_words

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import lancedb

pytestmark = pytest.mark.anyio

EVERYTHING = "(true)"
_EARLIER = FTS(base_tokenizer="icu/split", with_position=True, remove_stop_words=False, ascii_folding=True)


async def _chunks(data: Path) -> lancedb.AsyncTable:
    return await (await connect(data)).open_table(schema.chunks_table("default", "documents"))


async def _reader(data: Path) -> CollectionReader:
    reader = Reader(data, timeout_seconds=10)
    (collection,) = await reader.collections("default")
    return await reader.open(collection)


async def _found(reader: CollectionReader, text: str) -> list[tuple[str, float]]:
    return [(one.stored.body, round(one.score, 4)) for one in await reader.sparse(text, 9, EVERYTHING)]


async def _made_earlier(data: Path) -> lancedb.AsyncTable:
    """The chunk table as the version before the column `terms` left it."""
    chunks = await _chunks(data)
    await chunks.drop_columns([schema.TERMS])
    await chunks.create_index("body", config=_EARLIER)
    return chunks


async def _stored(small_desk: ModuleType, data: Path) -> Path:
    async with await small_desk.writing(data) as writer:
        texts = ["the clocks tick", "a pendulum swings", "clock towers, a clock"]
        await writer.replace([small_desk.new_source(writer, str(at), text) for at, text in enumerate(texts)])
        await writer.finish()
    return data


async def test_a_table_of_an_earlier_version_answers_as_before_and_gets_its_words_from_the_next_writer(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    desk = await _stored(small_desk, tmp_path)
    now = await _found(await _reader(desk), "Clocks")
    assert [body for body, _ in now] == ["2\n\nclock towers, a clock", "0\n\nthe clocks tick"]
    chunks = await _made_earlier(desk)
    reader = await _reader(desk)  # opened before, and used after
    assert (await reader.words_column(), await _found(reader, "Clocks")) == ("body", now)
    vectors = (await chunks.query().select(["id", "vector"]).to_arrow()).sort_by("id")
    for indexes in ({"body", "terms"}, {"terms"}):  # the former one goes when no search can need it
        async with await small_desk.writing(desk):
            pass
        assert {one.columns[0] for one in await chunks.list_indices()} == {"id", "source_id"} | indexes
        assert (await reader.words_column(), await _found(reader, "Clocks")) == ("terms", now)
    assert (await chunks.query().select(["id", "vector"]).to_arrow()).sort_by("id") == vectors


async def test_what_an_interrupted_run_or_an_earlier_version_left_without_words_gets_them(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    desk = await _stored(small_desk, tmp_path)
    chunks = await _chunks(desk)
    await chunks.add((await chunks.query().to_arrow()).set_column(2, "generation", [["killed"] * 3]))
    await chunks.update(updates_sql={schema.TERMS: "NULL"}, where="source_id <> ''")
    assert await _found(await _reader(desk), "clock") == []
    assert await complete_words(chunks, "English")
    terms = (await chunks.query().select(["terms"]).to_arrow())["terms"].to_pylist()
    assert sorted(map(str, terms)) == sorted(
        ["0 the clock tick", "1 a pendulum swing", "2 clock tower a clock"] * 2
    )
    assert not await complete_words(chunks, "English")
    async with await small_desk.writing(desk) as writer:  # which sweeps
        await writer.finish()
    assert len(await _found(await _reader(desk), "clock")) == 2


async def test_strict_lists_are_those_of_the_index_in_tables_of_both_versions(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    desk = await _stored(small_desk, tmp_path)
    lists = []
    for earlier in (False, True):
        if earlier:
            await _made_earlier(desk)
        reader = await _reader(desk)
        strict = await readable_only(reader, EVERYTHING, lambda _: True)
        found = await strict.sparse("clocks that swing", 9, EVERYTHING)
        assert len(found) == 3
        lists.append([(one.stored.body, one.score) for one in found])
        in_engine = await _found(reader, "clocks that swing")
        assert [body for body, _ in lists[0]] == [body for body, _ in in_engine]
    assert lists[0] == lists[1]


async def test_an_upgrade_gives_chunks_their_words_once_and_says_where(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    desk = await _stored(small_desk, tmp_path)
    assert await complete_all_words(desk) == []
    chunks = await _made_earlier(desk)
    database, (collection,) = (
        await connect(desk),
        await Reader(desk, timeout_seconds=9).collections("default"),
    )
    assert not await index_problem(database, collection)  # it answers as before
    await chunks.drop_index("body_idx")
    assert "terms" in await index_problem(database, collection)
    assert [one.name for one in await complete_all_words(desk)] == ["documents"]
    assert await (await _reader(desk)).words_column() == "terms"
    assert await complete_all_words(desk) == []


async def test_names_are_found_in_all_forms_with_collection_statistics_and_strict_ones(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        texts = ["an inhibitor of PD-1", "PD1 is a protein", "parseJsonFile reads it", "parse a file", "else"]
        await writer.replace([small_desk.new_source(writer, text, text) for text in texts])
        await writer.finish()
    reader = await _reader(tmp_path)
    strict = await readable_only(reader, EVERYTHING, lambda _: True)
    for query, every, expected in (
        ("PD1", False, texts[:2]),
        ("pd-1", True, texts[:2]),
        ("PD-1 protein", True, texts[1:2]),
        ("parse_json_file", False, texts[2:4]),
        ("parse_json_file", True, texts[2:3]),
        ("the json file", False, texts[2:4]),
    ):
        for lists in (reader, strict):
            found = await lists.sparse(query, 9, EVERYTHING, every=every)
            assert sorted(one.stored.chunk.text for one in found) == sorted(expected), (query, every)
