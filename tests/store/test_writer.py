"""Writing: what it leaves in the tables, and what it finds and mends there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag.access.rule import labels_of, valid_name
from rag.corpus import Access, AccessRecord, EmbedderIdentity
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import table_maintenance
from rag.store.write.access_writer import change_access
from rag.store.write.change_collection import drop_collection
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import KeyedRows, language_counts
from tests.small_desk import access_in, set_access
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WORDS = st.text("abz019", min_size=1, max_size=3)
NAMES = st.lists(st.tuples(WORDS, st.sampled_from("-_")), min_size=1, max_size=4).map(
    lambda parts: "".join(word + mark for word, mark in parts)[:-1]
)
HELD = {"chunks": schema.chunks_table, "sources": schema.sources_table}
EXPECTED = {"chunks": "replaced", "sources": "added"}


async def _table(data: Path, name: str) -> Any:  # noqa: ANN401 the engine's own
    return await (await connect(data)).open_table(name)


async def _chunks(data: Path) -> Any:  # noqa: ANN401 the engine's own
    return await _table(data, schema.chunks_table("default", "documents"))


async def _texts(data: Path) -> dict[str, list[str]]:
    """Every source's visible chunks, by its URI."""
    table = await table_of(data)
    texts = {}
    for source in await table.listing():
        stored = (await table.sources([source.id]))[source.id]
        texts[source.uri] = [chunk.text for chunk in await table.chunks_between(stored, 0, 999, "(true)")]
    return texts


async def test_a_replaced_source_has_its_new_chunks_only(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "a", "one", "two", "three")])
        await writer.replace([small_desk.new_source(writer, "b", "other")])
        await writer.replace([small_desk.new_source(writer, "a", "uno")])
    assert await _texts(tmp_path) == {"a": ["uno"], "b": ["other"]}
    assert await (await _chunks(tmp_path)).count_rows() == 2


async def test_a_source_keeps_its_access_record_unless_a_claim_sets_another(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    first, second = Access("restricted", frozenset({"group:hr"}), revision=1), Access("tenant", revision=1)
    async with await small_desk.writing(tmp_path) as writer:
        id_ = writer.ids.of("a")
        for access, replaces, expected in (
            (first, False, first),
            (second, False, first),
            (second, True, replace(second, revision=2)),
            (first, True, replace(first, revision=3)),
        ):
            item = small_desk.new_source(writer, "a", "one", "two", access=access, set_access=replaces)
            await writer.replace([item])
            assert await access_in(writer, [id_]) == {id_: expected}
            assert await _copies(tmp_path) == {(" ".join(labels_of(expected)), expected.revision)}
        await set_access(writer, {id_: second})
        assert await access_in(writer, [id_]) == {id_: replace(second, revision=4)}
        assert await _copies(tmp_path) == {("*", 4)}


async def test_a_source_without_an_access_record_has_none_until_it_gets_one(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        item = small_desk.new_source(writer, "a", "one", access=None)
        await writer.replace([item])
        assert await access_in(writer, [item.source.id]) == {item.source.id: None}
        await set_access(writer, {item.source.id: Access("tenant")})
        assert await access_in(writer, [item.source.id]) == {item.source.id: Access("tenant", revision=1)}


async def test_a_change_of_access_that_was_cut_short_is_finished_by_the_next_writer(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, name, "one", "two") for name in "ab"])
        id_ = writer.ids.of("a")
    only_ann = Access("restricted", frozenset({"user:ann"}))
    changed = await change_access(tmp_path, "default", [id_], lambda _before: only_ann)
    assert [after.access for _, after in changed.values()] == [replace(only_ann, revision=2)]
    assert await _copies(tmp_path) == {("*", 1)}
    async with await small_desk.writing(tmp_path):
        pass
    assert await _copies(tmp_path) == {("*", 1), ("+user:ann ~+user:ann", 2)}


async def test_a_writer_doesnt_widen_a_folder_that_somebody_restricted_since_it_read_the_records(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    folder, other_folder = "file:///d/hr", "file:///d/other"
    only_ann = Access("restricted", frozenset({"user:ann"}))
    async with await small_desk.writing(tmp_path) as writer:
        await writer.records()
        record = AccessRecord(writer.ids.of_folder(folder), "", folder, Access("tenant", revision=1))
        await change_access(tmp_path, "default", [], lambda _before: only_ann, [record])
        await writer.remember({folder: Access("tenant"), other_folder: Access("tenant")})
        await writer.remember({folder: Access("tenant"), other_folder: only_ann})
        records = {record.uri: record.access for record in (await writer.records()).values()}
    assert records[folder] == replace(only_ann, revision=3)
    assert records[other_folder] == replace(only_ann, revision=1)


async def _copies(data: Path) -> set[tuple[str, int]]:
    """What chunks hold of access records, as (labels, revision)."""
    rows = (await (await _chunks(data)).query().select(["labels", "revision"]).to_arrow()).to_pylist()
    return {(" ".join(row["labels"]), row["revision"]) for row in rows}


async def test_a_removed_source_leaves_nothing(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        gone = small_desk.new_source(writer, "a", "one", "two")
        await writer.replace([gone, small_desk.new_source(writer, "b", "stays")])
        await writer.remove([gone.source.id])
    assert await _texts(tmp_path) == {"b": ["stays"]}
    assert await (await _chunks(tmp_path)).count_rows() == 1


async def test_ids_stay_for_a_uri_and_differ_by_tenant_collection_and_installation(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async def id_in(data: Path, *key: str) -> str:
        async with await small_desk.writing(data, *key) as writer:
            id_: str = writer.ids.of("file:///a")
            return id_

    first, second = tmp_path / "one", tmp_path / "two"
    ids = [
        await id_in(first),
        await id_in(first, "default", "more"),
        await id_in(first, "b"),
        await id_in(second),
    ]
    assert len(set(ids)) == 4
    assert await id_in(first) == ids[0]


async def test_the_key_of_the_ids_is_for_the_owner_alone(small_desk: ModuleType, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with await small_desk.writing(data):
        pass
    assert (data / "key").stat().st_mode & 0o777 == 0o600
    assert data.stat().st_mode & 0o777 == 0o700
    assert len((data / "key").read_bytes()) == 32


async def test_a_lost_key_is_an_error_and_not_made_anew(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path):
        pass
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigurationError, match="Restore it"):
        async with await small_desk.writing(tmp_path):
            pass
    assert not (tmp_path / "key").exists()


async def test_a_collection_keeps_its_language(small_desk: ModuleType, tmp_path: Path) -> None:
    identity = small_desk.BagOfWords().identity
    collection = await ensure_collection(tmp_path, "default", "handbuch", identity, language="German")
    assert collection.language == "German"
    assert await ensure_collection(tmp_path, "default", "handbuch", identity) == collection
    assert await ensure_collection(tmp_path, "default", "handbuch", identity, language="German") == collection
    with pytest.raises(ConfigurationError, match=r"'handbuch' has the language German, not French"):
        await ensure_collection(tmp_path, "default", "handbuch", identity, language="French")
    assert (await ensure_collection(tmp_path, "default", "other", identity)).language == "auto"


async def test_a_second_writer_of_a_collection_is_turned_away(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.store.write.change_collection.WRITER_WAIT_SECONDS", 0.1)
    async with await small_desk.writing(tmp_path):
        with pytest.raises(BusyError, match=r"default\.documents"):
            async with await small_desk.writing(tmp_path):
                pass
        async with await small_desk.writing(tmp_path, "default", "more"):
            pass
    await small_desk.put(tmp_path, "a", "one")


async def test_a_collection_that_is_written_to_is_not_dropped(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        with pytest.raises(BusyError):
            await drop_collection(tmp_path, writer.collection)
        await writer.replace([small_desk.new_source(writer, "a", "one")])
    assert await _texts(tmp_path) == {"a": ["one"]}


async def test_chunks_that_no_source_counts_are_swept_in_one_commit(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, str(at), f"text {at}") for at in range(300)])
    chunks = await _chunks(tmp_path)
    rows = await chunks.query().to_arrow()
    leftovers = rows.set_column(
        rows.schema.get_field_index("generation"),
        rows.schema.field("generation"),
        [["killed"] * rows.num_rows],
    )
    await chunks.add(leftovers)
    assert await chunks.count_rows() == 600
    before = await chunks.version()
    async with await small_desk.writing(tmp_path):
        pass
    assert await chunks.count_rows() == 300
    assert await chunks.version() == before + 1
    assert set((await chunks.query().to_arrow())["generation"].to_pylist()) == set(
        rows["generation"].to_pylist()
    )


async def test_a_source_that_lacks_chunks_counts_as_changed(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        damaged = small_desk.new_source(writer, "a", "one", "two")
        await writer.replace([damaged, small_desk.new_source(writer, "b", "whole")])
    await (await _chunks(tmp_path)).delete(f"id = '{damaged.source.id}/1'")
    async with await small_desk.writing(tmp_path) as writer:
        states = await writer.known_sources()
    assert not states["a"].digest
    assert states["b"].digest


@pytest.mark.parametrize("table", HELD)
async def test_a_zero_byte_newest_manifest_is_repaired_and_what_it_held_is_made_anew(
    small_desk: ModuleType, tmp_path: Path, table: str
) -> None:
    documents, data = tmp_path / "documents", tmp_path / "data"
    documents.mkdir()
    for name in "abc":
        (documents / f"{name}.txt").write_text(f"the text {name}", encoding="utf-8")
        await small_desk.ingested(data, documents)
    before = await _texts(data)
    await _lose_the_last_row(data, HELD[table]("default", "documents"))
    with pytest.raises(StoreError):
        await table_of(data)
    report = await small_desk.ingested(data, documents)
    assert report.counts == {**dict.fromkeys(report.counts, 0), "unchanged": 2, EXPECTED[table]: 1}
    assert await _texts(data) == before
    assert len(before) == 3


async def test_a_zero_byte_catalog_falls_back_and_ingestion_makes_the_collection_anew(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path):
        pass
    _newest_manifest(tmp_path, schema.COLLECTIONS).write_bytes(b"")
    await small_desk.put(tmp_path, "a", "one")
    assert await _texts(tmp_path) == {"a": ["one"]}


async def test_everything_that_a_run_wrote_is_flushed_to_disk(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.add(os.fstat(descriptor).st_ino))

    def unflushed(data: Path) -> list[Path]:
        written = [data / "key", data, database_folder(data), *database_folder(data).rglob("*")]
        return [path for path in written if path.stat().st_ino not in flushed]

    data = tmp_path / "data"
    opening = await small_desk.writing(data)
    assert unflushed(data) == []
    async with opening as writer:
        await writer.replace([small_desk.new_source(writer, "a", "one")])
        assert unflushed(data) != []
        await writer.finish()
        assert unflushed(data) == []


async def test_that_a_collection_is_dropped_is_on_disk_before_its_tables_go(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        pass
    tables: list[int] = []
    monkeypatch.setattr(
        os, "fsync", lambda _: tables.append(len(list(database_folder(tmp_path).glob("chunks*"))))
    )
    await drop_collection(tmp_path, writer.collection)
    assert set(tables) == {1}


async def test_a_small_table_has_no_index_and_a_writer_makes_a_large_one_s_with_its_rows(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 3)

    async def indexed() -> set[str]:
        return {name for index in await (await _chunks(tmp_path)).list_indices() for name in index.columns}

    await small_desk.put(tmp_path, "a", "pendulum", "clock", finishes=True)
    table = await table_of(tmp_path)
    assert not await indexed()
    assert len(await table.sparse("pendulum", 9, "(true)")) == 1
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "b", "a pendulum")])
        assert await indexed() == {"terms", "id", "source_id"}  # also while the run goes on, or is killed
        assert len(await table.sparse("pendulum", 9, "(true)")) == 2
        await writer.finish()
    assert {"terms", "labels", "vector"} <= await indexed()


async def test_a_lost_index_is_made_by_the_next_writer_and_words_are_found_without_it(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1)
    await small_desk.put(tmp_path, "a", "pendulum")
    chunks = await _chunks(tmp_path)
    await chunks.drop_index("terms_idx")
    table = await table_of(tmp_path)
    assert len(await table.sparse("pendulum", 9, "(true)")) == 1
    assert not await table.sparse("pendulum", 9, "(false)")
    async with await small_desk.writing(tmp_path):
        pass
    assert "terms_idx" in [index.name for index in await chunks.list_indices()]
    assert len(await table.sparse("pendulum", 9, "(true)")) == 1


async def test_the_indexes_are_there_after_the_first_run_and_hold_every_chunk(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 2)
    await small_desk.put(tmp_path, "a", "one", "two", finishes=True)
    numbers = await (await table_of(tmp_path)).statistics()
    assert {"id (BTree)", "source_id (BTree)", "terms (FTS)"} <= {*numbers.indexes}
    assert (numbers.sources, numbers.chunks, numbers.unindexed) == (1, 2, 0)


async def test_a_run_that_was_broken_off_is_indexed_by_the_next_though_nothing_changed(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 2)
    await small_desk.put(tmp_path, "a", "one", "two")
    table = await table_of(tmp_path)
    assert (await table.statistics()).unindexed == 2
    async with await small_desk.writing(tmp_path) as writer:
        await writer.finish()
    assert (await table.statistics()).unindexed == 0


async def test_a_collection_that_is_large_enough_gets_a_vector_index_though_nothing_changed(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_desk.put(tmp_path, "all", *(f"text {n}" for n in range(300)), finishes=True)
    assert "vector (IvfSq)" not in (await (await table_of(tmp_path)).statistics()).indexes
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 300)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.finish()
    assert "vector (IvfSq)" in (await (await table_of(tmp_path)).statistics()).indexes


async def test_many_runs_do_not_leave_many_vector_index_segments(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 300)
    monkeypatch.setattr(table_maintenance, "MAX_VECTOR_SEGMENTS", 4)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "all", *(f"text {n}" for n in range(400)))])
        await writer.finish()
        for number in range(6):
            await writer.replace([small_desk.new_source(writer, f"more {number}", f"more {number}")])
            await writer.finish()
    (index,) = [
        index_ for index_ in await (await _chunks(tmp_path)).list_indices() if index_.columns == ["vector"]
    ]
    assert index.num_segments <= table_maintenance.MAX_VECTOR_SEGMENTS + 1
    assert index.num_unindexed_rows == 0


async def test_another_embedder_is_refused_with_both_names_and_what_to_do(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path):
        pass
    identity = EmbedderIdentity("openai", "text-embedding-3-small", 1536, query_prefix="query: ")
    with pytest.raises(ConfigurationError) as error:
        await ensure_collection(tmp_path, "default", "documents", identity)
    for part in (
        "tests bag-of-words (32 dimensions)",
        "openai text-embedding-3-small (1536 dimensions, prefixes ['query: '])",
        "refdesk-admin collection rebuild documents --embedder default",
    ):
        assert part in str(error.value)
    await ensure_collection(tmp_path, "default", "more", identity)


async def test_collections_and_tenants_do_not_see_each_other(small_desk: ModuleType, tmp_path: Path) -> None:
    shelves = [("default", "documents"), ("default", "more"), ("acme", "documents")]
    for tenant, name in shelves:
        text = f"pendulum of {tenant} {name}"
        await small_desk.put(tmp_path, "a", text, tenant=tenant, collection=name)
    (vector,) = small_desk.vectors(["pendulum"])
    ids = set()
    for tenant, name in shelves:
        table = await table_of(tmp_path, name, tenant=tenant)
        (source,) = await table.listing()
        ids.add(source.id)
        for ranking in (await table.dense(vector, 9, "(true)"), await table.sparse("pendulum", 9, "(true)")):
            assert [hit.stored.chunk.id for hit in ranking] == [f"{source.id}/0"]
        (stored,) = await table.chunks([f"{source.id}/0"], "(true)")
        assert stored.chunk.text == f"pendulum of {tenant} {name}"
    assert len(ids) == 3
    assert [
        collection.name for collection in await DeskReader(tmp_path, timeout_seconds=15).collections("acme")
    ] == ["documents"]


@given(NAMES.map(valid_name), NAMES, NAMES, NAMES)
@example("a_b", "c", "a", "b_c")
@example("a-tenant", "b", "a", "tenant-b")
@example("src", "src_a", "src_src", "a")
def test_different_names_never_share_a_table(
    tenant: str, collection: str, tenant2: str, collection2: str
) -> None:
    same = (tenant, collection) == (tenant2, collection2)
    for table in HELD.values():
        assert (table(tenant, collection) == table(tenant2, collection2)) == same
    assert schema.chunks_table(tenant, collection) != schema.sources_table(tenant2, collection2)
    assert schema.COLLECTIONS not in {table(tenant, collection) for table in HELD.values()}


async def test_a_dropped_collection_is_gone_and_the_others_stay(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    for name in ("documents", "more"):
        await small_desk.put(tmp_path, "a", name, tenant="default", collection=name)
    table = await table_of(tmp_path, "documents")
    await drop_collection(tmp_path, table.collection)
    assert [
        collection.name
        for collection in await DeskReader(tmp_path, timeout_seconds=15).collections("default")
    ] == ["more"]
    assert not list(database_folder(tmp_path).glob("*src_documents*"))
    assert (await (await table_of(tmp_path, "more")).listing())[0].uri == "a"


async def test_what_a_kill_during_the_making_of_a_collection_left_is_replaced(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    for table in HELD.values():
        (database_folder(tmp_path) / f"{table('default', 'documents')}.lance" / "data").mkdir(parents=True)
    (database_folder(tmp_path) / f"{schema.COLLECTIONS}.lance").mkdir()
    (tmp_path / "key").write_bytes(bytes(32))
    assert await DeskReader(tmp_path, timeout_seconds=15).collections("default") == ()
    await small_desk.put(tmp_path, "a", "one")
    assert await _texts(tmp_path) == {"a": ["one"]}


async def test_a_data_folder_that_can_not_be_made_or_written_is_named(
    small_desk: ModuleType, plain_folder: Path
) -> None:
    (plain_folder / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="can't be created"):
        await small_desk.writing(plain_folder / "file" / "data")
    async with await small_desk.writing(plain_folder / "data"):
        pass
    (plain_folder / "data" / "locks").chmod(0o500)
    (plain_folder / "data" / "locks" / "catalog.lock").chmod(0o400)
    with pytest.raises(ConfigurationError, match=r"data can't be written: Permission denied"):
        await small_desk.writing(plain_folder / "data")


async def _lose_the_last_row(data: Path, name: str) -> None:
    """Roll a table back as a power failure can: to before its last row, with a zero-byte manifest on top."""
    rows = await (await _table(data, name)).count_rows()
    while await (await _table(data, name)).count_rows() == rows:
        lost = _newest_manifest(data, name)
        lost.unlink()
    lost.write_bytes(b"")


def _newest_manifest(data: Path, table: str) -> Path:
    return min((database_folder(data) / f"{table}.lance" / "_versions").glob("*.manifest"))


def test_values_by_key_are_those_of_the_rows_whether_few_or_all_are_asked_for() -> None:
    names = [f"{number:03}" for number in range(200)]
    rows = pa.table({"name": names, "even": [number % 2 == 0 for number in range(200)]})
    computed: list[str] = []

    def value(row: dict[str, Any]) -> str:
        computed.append(row["name"])
        return f"value of {row['name']}"

    values = KeyedRows(rows, "name", value)
    assert "007" in values
    assert "700" not in values
    assert len(values) == 200
    assert [*values] == names
    assert computed == []
    assert values["007"] == values["007"] == "value of 007"
    assert computed == ["007"]
    del values["008"]
    values["010"] = values["new"] = "set"
    assert values.get("008") is None
    assert values["010"] == "set"
    evens = values.matching(lambda rows: pc.equal(rows["even"], pa.scalar(value=True)))
    assert len(evens) == 100  # without 008, and with the new one
    assert "value of 007" not in evens
    assert {*evens} == {"set"} | {f"value of {name}" for name in names[::2] if name not in {"008", "010"}}
    unset = [name for name in names if name not in {"008", "010"}]
    assert dict(values) == {name: f"value of {name}" for name in unset} | {"010": "set", "new": "set"}
    assert sorted(computed) == unset  # each once


def test_languages_are_counted_by_the_metadata_and_not_by_what_a_text_in_it_says() -> None:
    quoting = 'it says, "language": "fr"'
    metadata: list[dict[str, str]] = [
        {"language": "de"},
        {"path": "a", "language": "de"},
        {"author": quoting, "language": "en"},
        {quoting: "a", 'x "language': "fr"},
        {"languages": "fr", "the language": "fr"},
        {},
    ]
    rows = pa.table({"metadata": [json.dumps(entries, ensure_ascii=False) for entries in metadata]})
    assert language_counts(rows) == {"de": 2, "en": 1, "": 3}
    assert language_counts(rows.slice(0, 0)) == {}
