"""Reading: what was written comes back, is seen at once, and nothing is written on the way."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lancedb.index import IvfSq
from lancedb.query import AsyncVectorQuery

from rag.corpus import Calibration, Collection, EmbedderIdentity, Language
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.store.read import schema, sources_reader
from rag.store.read.catalog import collection_record, collection_row
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import MAX_TERMS
from rag.store.write import table_maintenance
from rag.store.write.change_collection import drop_collection, open_writer
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import NewSource
from tests.tables import table_of

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALL = "(true)"
NASTY = [
    "it's",
    "''",
    "a' OR '1'='1",
    '"',
    "\\",
    "\\'",
    "a\nb",
    "-- x",
    "/* */",
    "😀é",
    "%",
    "_",
    "\x00",
    ";",
]


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    paths = sorted(folder.rglob("*"))
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


async def test_a_folder_that_is_not_there_has_no_collections_and_is_not_made(tmp_path: Path) -> None:
    assert await DeskReader(tmp_path / "data", timeout_seconds=15).collections("default") == ()
    assert _files(tmp_path) == {}


async def test_an_empty_folder_has_no_collections_and_stays_empty(tmp_path: Path) -> None:
    assert await DeskReader(tmp_path, timeout_seconds=15).collections("default") == ()
    assert _files(tmp_path) == {}


async def test_a_relative_folder_is_no_cloud_address_whatever_its_name(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("db-1")
    await small_desk.put(folder, "a", "pendulum")
    assert len(await (await table_of(folder)).sparse("pendulum", 9, ALL)) == 1


async def test_an_open_reader_sees_what_appears_later(small_desk: ModuleType, tmp_path: Path) -> None:
    reader = DeskReader(tmp_path / "data", timeout_seconds=15)
    assert await reader.collections("default") == ()
    async with await small_desk.writing(tmp_path / "data") as writer:
        (collection,) = await reader.collections("default")
        table = await reader.open(collection)
        assert collection == writer.collection
        assert (await table.listing(), await table.has_any(ALL)) == ([], False)
        item = small_desk.new_source(writer, "a", "one", "two")
        await writer.replace([item])
        assert await table.listing() == [item.source]
        assert [hit.stored.chunk.id for hit in await table.sparse("two", 9, ALL)] == [f"{item.source.id}/1"]
        await writer.remove([item.source.id])
        assert await table.sources([item.source.id]) == {}
        assert await table.sparse("two", 9, ALL) == []


async def test_a_source_comes_back_as_it_was_written(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(
            writer,
            "file:///it's",
            "Häder 'one' 😀",
            "second\nline",
            title='quo"te',
            url="https://example.org/?a=b&c",
            date=datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            metadata={"author": "O'Neill", "päth": "a/b\nc"},
        )
        await writer.replace([item, small_desk.new_source(writer, "plain", "plain")])
    table = await table_of(tmp_path)
    stored_text = await table.text(item.source.id)
    assert stored_text
    stored, outline, text = stored_text
    assert (stored.source, outline, text) == (item.source, item.outline, item.text)
    chunks = await table.chunks_between(stored, 0, 9, ALL)
    assert [(chunk.seq, chunk.page, chunk.section) for chunk in chunks] == [
        (0, 1, ("Häder 'one' 😀",)),
        (1, 2, ("Häder 'one' 😀",)),
    ]
    assert all(item.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert await table.text("unknown") is None


async def test_chunks_are_found_by_position_and_by_number(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", "aaaa", "bbbb", "cccc", "dddd")
        await writer.replace([item, small_desk.new_source(writer, "b", "xxxx")])
    table = await table_of(tmp_path)
    stored = (await table.sources([item.source.id]))[item.source.id]

    async def touching(start: int, end: int) -> str:
        return "".join(chunk.text[0] for chunk in await table.chunks_touching(stored, start, end, ALL))

    assert [await touching(*window) for window in ((0, 1), (3, 7), (4, 6), (0, 99), (23, 30))] == [
        "a",
        "ab",
        "",
        "abcd",
        "",
    ]
    assert [chunk.seq for chunk in await table.chunks_between(stored, -1, 1, ALL)] == [0, 1]
    assert [chunk.seq for chunk in await table.chunks_between(stored, 3, 9, ALL)] == [3]


async def test_pages_bring_every_source_once_and_in_order(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, str(number), "text") for number in range(23)])
    table = await table_of(tmp_path)
    ids = [source.id for source in await table.listing()]
    assert ids == sorted(ids)
    assert len(ids) == 23
    paged, after = [], ""
    while page := await table.page(after, 5, ALL):
        assert len(page) <= 5
        paged += [listed.stored.source.id for listed in page]
        after = page[-1].stored.source.id
    assert paged == ids


async def test_the_sources_of_a_large_table_are_kept_once_it_is_asked_often(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, name, "text") for name in "abcd"])
        ids = [writer.ids.of(name) for name in "abcd"]
    monkeypatch.setattr(sources_reader, "ROWS_KEPT", 3)
    monkeypatch.setattr(sources_reader, "OFTEN", 3)
    monkeypatch.setattr(sources_reader, "SOURCES_KEPT", 1)  # what is made of the rows, again and again
    table, reads = await table_of(tmp_path, "documents"), []
    unwrapped = table._table  # noqa: SLF001 every read of sources passes it

    async def counted(query: Any) -> pa.Table:  # noqa: ANN401 as that
        reads.append(rows := await unwrapped(query))
        return rows

    monkeypatch.setattr(table, "_table", counted)
    for id_ in ids:
        assert [*await table.sources([id_])] == [id_]
    assert [len(rows) for rows in reads] == [1, 1, 4]


async def test_values_are_values_whatever_characters_they_hold(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        items = [small_desk.new_source(writer, f"{n}", f"text {n}", id_=id_) for n, id_ in enumerate(NASTY)]
        await writer.replace(items)
        table = await table_of(tmp_path)
        for item in items:
            id_ = item.source.id
            assert list(await table.sources([id_])) == [id_]
            assert [stored.chunk.id for stored in await table.chunks([f"{id_}/0"], ALL)] == [f"{id_}/0"]
            (vector,) = item.vectors
            ranking = await table.dense(vector, 99, schema.one_of("source_id", [id_]))
            assert [hit.stored.chunk.id for hit in ranking] == [f"{id_}/0"]
        ranking = await table.dense(vector, 99, f"(NOT {schema.one_of('source_id', NASTY[1:])})")
        assert [hit.stored.chunk.id for hit in ranking] == [f"{NASTY[0]}/0"]
        assert set(await table.sources([*NASTY, "none' OR true --"])) == set(NASTY)
        await writer.remove(NASTY[:5])
        assert {source.id for source in await table.listing()} == set(NASTY[5:])


async def test_no_values_match_nothing(small_desk: ModuleType, tmp_path: Path) -> None:
    await small_desk.put(tmp_path, "a", "text")
    table = await table_of(tmp_path)
    assert await table.sources([]) == {}
    assert await table.chunks([], ALL) == []
    assert await table.sparse("text", 9, schema.one_of("source_id", [])) == []


async def test_any_query_is_only_words(small_desk: ModuleType, tmp_path: Path) -> None:
    await small_desk.put(tmp_path, "a", "the text")
    table, syntax = await table_of(tmp_path), ["AND OR NOT", "body:text", "+a -b", "te*t", "((", "?"]
    for query in [*NASTY, *syntax, '"quoted phrase"', "x " * 2000]:
        assert len(await table.sparse(query, 9, ALL)) <= 1, query
        assert len(await table.sparse(f"text {query}", 9, ALL)) == 1, query


async def test_words_beyond_the_most_do_not_count(small_desk: ModuleType, tmp_path: Path) -> None:
    await small_desk.put(tmp_path, "a", "pendulum")
    table = await table_of(tmp_path)
    filler = ["word"] * (MAX_TERMS - 1)
    assert len(await table.sparse(" ".join([*filler, "pendulum"]), 9, ALL)) == 1
    assert await table.sparse(" ".join([*filler, "word", "pendulum"]), 9, ALL) == []


@pytest.mark.parametrize(
    ("language", "matches"),
    [
        ("German", ["im Hause der Uhren", "viele Häuser"]),
        ("English", ["im Hause der Uhren"]),
        ("none", ["im Hause der Uhren"]),
    ],
)
async def test_words_are_found_in_the_forms_of_the_language(
    small_desk: ModuleType, tmp_path: Path, language: Language, matches: list[str]
) -> None:
    identity = small_desk.BagOfWords().identity
    collection = await ensure_collection(tmp_path, "default", "documents", identity, language=language)
    async with open_writer(tmp_path, collection) as writer:
        texts = ["im Hause der Uhren", "viele Häuser", "ein Haufen"]
        await writer.replace([small_desk.new_source(writer, "a", *texts)])
    ranking = await (await table_of(tmp_path)).sparse("Hause", 9, ALL)
    assert sorted(hit.stored.chunk.text for hit in ranking) == matches


IDENTIFIERS = ["DEC-0054", "v1.0.21", "user_id", "CVE-2026-1234", "GPT-4", "HH:MM", "a.b.C()", "x86_64"]


async def test_identifiers_are_found_and_come_before_those_that_resemble_them(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    resembling = ["DEC-0055", "v1.0.22", "user_name", "CVE-2026-1235", "GPT-5", "HH:SS", "a.b.D()", "x87_64"]
    async with await small_desk.writing(tmp_path) as writer:
        texts = {text: f"Something on {text} here." for text in [*IDENTIFIERS, *resembling]}
        await writer.replace([small_desk.new_source(writer, *named_text) for named_text in texts.items()])
    table = await table_of(tmp_path)
    for identifier, query in product(IDENTIFIERS, ["{}", "what does {} mean?", "({}),"]):
        ranking = await table.sparse(query.format(identifier), 9, ALL)
        assert identifier in ranking[0].stored.chunk.text, query
        assert len(ranking) == 1 or ranking[0].score > ranking[1].score, (identifier, query)


async def test_words_are_found_in_other_forms_and_scripts(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        texts = [
            "clocks swinging",
            "Uhren in Zürich",
            "我们喜欢机器学习",
            "section 4 B",
            "user_id and v1.2.3",
        ]
        await writer.replace([small_desk.new_source(writer, text, text) for text in texts])
    table = await table_of(tmp_path)
    for query in ("clock", "swings", "zurich", "机器", "4", "b", "user_id", "v1.2.3"):
        assert len(await table.sparse(query, 9, ALL)) == 1, query


@pytest.mark.parametrize("indexed", [False, True], ids=["exact", "indexed"])
async def test_dense_search_gives_the_nearest_with_their_cosine(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, indexed: bool
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1000 if indexed else 10_000)
    texts = [f"word{n % 37} word{n % 41} word{n % 43} word{n}" for n in range(1000)]
    async with await small_desk.writing(tmp_path) as writer:
        items = [small_desk.new_source(writer, "a", *texts)]
        await writer.replace(items)
        await writer.finish()
        table = await table_of(tmp_path)
        assert ("vector (IvfSq)" in (await table.statistics()).indexes) == indexed
        await _check_nearest(small_desk, table, items, least=19 if indexed else 20)
        items.append(small_desk.new_source(writer, "late", *(f"late {text}" for text in texts[:50])))
        await writer.replace(items[1:])  # found without the index, beside those in it
        await _check_nearest(small_desk, table, items, least=19 if indexed else 20)


async def _check_nearest(
    small_desk: ModuleType, table: CollectionReader, items: list[NewSource], *, least: int
) -> None:
    """Compare with what one computes from all vectors; at least so many of the 20 nearest must be found."""
    vectors = np.concatenate([item.vectors for item in items])
    ids = np.array([f"{item.source.id}/{seq}" for item in items for seq in range(len(item.passages))])
    for query in small_desk.vectors(["word1 word2 word3", "late word7", "word500 word5", "other"]):
        cosines = vectors @ query
        expected = dict(zip(ids.tolist(), cosines.tolist(), strict=True))
        ranking = await table.dense(query, 20, ALL)
        scores = [hit.score for hit in ranking]
        assert scores == pytest.approx([expected[hit.stored.chunk.id] for hit in ranking], abs=1e-5)
        assert scores == sorted(scores, reverse=True)
        assert len(set(ids[np.argsort(-cosines)[:20]]) & {hit.stored.chunk.id for hit in ranking}) >= least


async def test_a_narrow_scope_gets_its_full_number_through_the_vector_index(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1000)
    async with await small_desk.writing(tmp_path) as writer:
        far = small_desk.new_source(writer, "far", *(f"far{n} away{n}" for n in range(30)))
        near = small_desk.new_source(writer, "near", *(f"pendulum clock near{n}" for n in range(1000)))
        await writer.replace([far, near])
        await writer.finish()
    (query,) = small_desk.vectors(["pendulum clock"])
    ranking = await (await table_of(tmp_path)).dense(query, 20, schema.one_of("source_id", [far.source.id]))
    assert len(ranking) == 20
    assert all(hit.stored.chunk.source_id == far.source.id for hit in ranking)


async def test_no_part_of_the_vector_index_is_left_out(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        far = small_desk.new_source(writer, "far", *(f"far{n} away{n}" for n in range(9)))
        near = small_desk.new_source(writer, "near", *(f"pendulum clock near{n}" for n in range(400)))
        await writer.replace([far, near])
        await writer.finish()
    chunks = await (await connect(tmp_path)).open_table(schema.chunks_table("default", "documents"))
    index: Any = IvfSq(distance_type="cosine", num_partitions=100)
    await chunks.create_index("vector", config=index)
    table = await table_of(tmp_path)
    (query,) = small_desk.vectors(["pendulum clock"])
    assert len(await table.dense(query, 9, schema.one_of("source_id", [far.source.id]))) == 9


@pytest.mark.parametrize(
    ("where", "exact"),
    [
        (schema.one_of("id", ["a/7", "a/8", "a/9", "other/1"]), True),
        (f"{schema.one_of('id', ['a/7', 'a/8', 'a/9'])} AND regexp_like(body, 'number')", False),
        (ALL, False),
    ],
)
async def test_a_narrow_scope_of_a_large_collection_is_searched_exactly(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, *, exact: bool
) -> None:
    monkeypatch.setattr("rag.store.read.collection_reader.NARROW_FROM", 300)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 300)
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", *(f"pendulum{n} number" for n in range(300)))
        await writer.replace([item])
        await writer.finish()
    where = where.replace("'a/", f"'{item.source.id}/")
    table = await table_of(tmp_path)
    plans: list[str] = []
    run = AsyncVectorQuery.to_arrow

    async def explained(query: AsyncVectorQuery, **options: Any) -> pa.Table:  # noqa: ANN401 as the engine's
        plans.append(await query.explain_plan())
        return await run(query, **options)

    monkeypatch.setattr(AsyncVectorQuery, "to_arrow", explained)
    ranking = await table.dense(item.vectors[8], 3, where)
    assert ["ANN" not in plan for plan in plans] == [exact]
    assert ranking[0].stored.chunk.seq == 8
    assert where == ALL or {hit.stored.chunk.seq for hit in ranking} == {7, 8, 9}


@pytest.mark.parametrize("most", [10**9, 30_000, 1_000])
async def test_the_cache_grows_with_the_indexes_up_to_its_limit(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("rag.store.read.desk_reader.INDEX_CACHE_BYTES", 20_000)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1)
    sizes: list[int] = []

    async def connected(data: Path, *, index_cache_bytes: int, writes: bool = False) -> object:
        sizes.append(index_cache_bytes)
        return await connect(data, index_cache_bytes=index_cache_bytes, writes=writes)

    monkeypatch.setattr("rag.store.read.desk_reader.connect", connected)
    reader = DeskReader(tmp_path, timeout_seconds=15, index_cache_bytes=most)
    async with await small_desk.writing(tmp_path) as writer:
        for count in (1, 300):
            item = small_desk.new_source(writer, "a", *(f"pendulum{count} word{n}" for n in range(count)))
            await writer.replace([item])
            await writer.finish()
            (collection,) = await reader.collections("default")
            for _ in range(3):  # the first search sees how large the indexes are now
                table = await reader.open(collection)
                assert await table.sparse(f"pendulum{count}", 9, ALL)
            if count == 1:
                assert sizes == [min(20_000, most)]
    needed = table.index_bytes
    assert 30_000 < needed < 10**9
    assert sizes == {10**9: [20_000, int(needed * 1.5)], 30_000: [20_000, 30_000], 1_000: [1_000]}[most]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="tells open files on Linux alone")
async def test_the_files_of_superseded_indexes_do_not_stay_open(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_indexes() -> int:
        targets = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        return sum(target.is_relative_to(tmp_path) and "_indices" in target.parts for target in targets)

    monkeypatch.setattr("rag.store.read.desk_reader.MOST_SUPERSEDED", 3)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1)
    reader, most = DeskReader(tmp_path, timeout_seconds=15), 0
    async with await small_desk.writing(tmp_path) as writer:
        for count in range(1, 14):
            words = (f"pendulum{number}" for number in range(20 * count))
            await writer.replace([small_desk.new_source(writer, "a", *words)])
            await writer.finish()
            (collection,) = await reader.collections("default")
            table = await reader.open(collection)
            assert await table.sparse("pendulum0", 9, ALL)
            gc.collect()
            most = max(most, open_indexes() - count)  # the writer has a cache of its own
    assert 0 < most < 10


async def test_compaction_and_pruning_do_not_disturb_an_open_reader(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "KEPT_VERSIONS", timedelta(milliseconds=1))
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 300)
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", *(f"pendulum number {n}" for n in range(400)))
        await writer.replace([item])
        table = await table_of(tmp_path)
        for number in range(5):
            assert len(await table.dense(item.vectors[7], 9, ALL)) == 9
            assert len(await table.sparse("pendulum", 9, ALL)) == 9
            stored = (await table.sources([item.source.id]))[item.source.id]
            assert [chunk.text for chunk in await table.chunks_between(stored, 7, 7, ALL)] == [
                "pendulum number 7"
            ]
            await writer.replace([small_desk.new_source(writer, f"b{number}", f"other {number}")])
            await writer.finish()


async def test_a_dropped_collection_that_is_made_again_is_seen_anew(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    reader = DeskReader(tmp_path, timeout_seconds=15)
    (query,) = small_desk.vectors(["pendulum"])
    for text in ("pendulum first", "pendulum second", "pendulum third"):
        await small_desk.put(tmp_path, "a", text, finishes=True)
        (collection,) = await reader.collections("default")
        table = await reader.open(collection)
        for ranking in (
            await table.dense(query, 9, ALL),
            await table.sparse("pendulum", 9, ALL),
        ):
            (stored,) = await table.chunks([hit.stored.chunk.id for hit in ranking], ALL)
            assert stored.chunk.text == text
            sources = await table.sources([stored.chunk.source_id])
            assert sources[stored.chunk.source_id].generation == stored.generation
        await drop_collection(tmp_path, collection)
        assert await reader.collections("default") == ()


async def test_chunks_of_a_source_that_was_replaced_since_are_not_mistaken_for_none(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "a", "one", "two")])
        table = await table_of(tmp_path)
        (source,) = await table.listing()
        stored = (await table.sources([source.id]))[source.id]
        assert await table.chunks_between(stored, 5, 9, ALL) == ()
        await writer.replace([small_desk.new_source(writer, "a", "uno")])
        with pytest.raises(BusyError):
            await table.chunks_between(stored, 0, 0, ALL)
        await writer.remove([source.id])
        with pytest.raises(BusyError):
            await table.chunks_touching(replace(stored, generation="x"), 0, 3, ALL)


async def test_reading_writes_nothing_and_takes_no_lock(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", "pendulum one", "pendulum two")
        await writer.replace([item])
        await writer.finish()
        before = _files(tmp_path)
        table = await table_of(tmp_path)
        await table.dense(item.vectors[0], 9, ALL)
        await table.sparse("pendulum", 9, ALL)
        await table.text(item.source.id)
        await table.page("", 9, ALL)
        await table.statistics()
        assert _files(tmp_path) == before


async def test_a_folder_that_may_only_be_read_is_served(small_desk: ModuleType, plain_folder: Path) -> None:
    data = plain_folder / "data"
    async with await small_desk.writing(data) as writer:
        item = small_desk.new_source(writer, "a", "pendulum one")
        await writer.replace([item])
        await writer.finish()
    for path in [data, *data.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with pytest.raises(OSError, match="Permission denied"):
            (data / "tables" / "new").touch()
        table = await table_of(data)
        assert len(await table.dense(item.vectors[0], 9, ALL)) == 1
        assert len(await table.sparse("pendulum", 9, ALL)) == 1
        assert await table.listing() == [item.source]
    finally:
        for path in [data, *data.rglob("*")]:
            path.chmod(0o700)


async def test_what_the_engine_says_of_damage_stays_inside(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", "pendulum one")
        await writer.replace([item])
    for path in database_folder(tmp_path).glob("chunks*/data/*.lance"):
        path.write_bytes(b"pendulum damage " * 99)
    table = await table_of(tmp_path)
    with pytest.raises(StoreError) as error:
        await table.dense(item.vectors[0], 9, ALL)
    message = (
        "The storage engine failed while searching by meaning. If it fails again, run refdesk-admin doctor."
    )
    assert str(error.value) == message


COLLECTION = Collection(
    "acme",
    "papers",
    EmbedderIdentity("tests", "words", 3, query_prefix="query: "),
    "German",
    "cosine",
    datetime(2026, 1, 2, tzinfo=UTC),
    {"year": "integer"},
    "restricted",
)


def test_a_collection_comes_back_from_its_row() -> None:
    (row,) = collection_row(COLLECTION).to_pylist()
    assert collection_record(row) == COLLECTION


def test_a_name_and_a_body_of_the_embedder_come_back_too() -> None:
    identity = replace(COLLECTION.embedder, document_body='{"a": 1}')
    named = replace(COLLECTION, embedder=identity, embedder_name="german")
    (row,) = collection_row(named).to_pylist()
    assert collection_record(row) == named


def test_a_calibration_from_before_sentences_were_compared_comes_back() -> None:
    former = Calibration(0.4)
    (row,) = collection_row(replace(COLLECTION, calibration=former)).to_pylist()
    definition = json.loads(row["definition"])
    assert definition["calibration"].pop("elsewhere") is None
    assert definition["calibration"].pop("sampled") == 0
    row["definition"] = json.dumps(definition)
    assert collection_record(row).calibration == former


def test_the_row_of_another_version_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "FORMAT", schema.FORMAT + 1)
    (row,) = collection_row(COLLECTION).to_pylist()
    monkeypatch.undo()
    former = {"tenant": "acme", "name": "papers", "created_at": COLLECTION.created_at}
    for foreign in (row, former):
        with pytest.raises(ConfigurationError, match="ingest into another data folder"):
            collection_record(foreign)
