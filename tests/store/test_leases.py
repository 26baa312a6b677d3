"""Several writers on one desk in a bucket: one at a time, and who lost its turn can't commit."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from subprocess import TimeoutExpired
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from lancedb.index import BTree

from rag.corpus import Access
from rag.errors import BusyError, ConfigurationError
from rag.home import Bucket
from rag.store.read.connection import connect, engine_errors
from rag.store.write import locks
from rag.store.write.access_writer import access_table, change_access
from rag.store.write.bucket_objects import object_facts
from rag.store.write.change_collection import open_writer
from rag.store.write.locks import Lease, leased, open_in_turn
from tests.bucket import ObjectStore
from tests.store.test_processes import begin, change, whole

if TYPE_CHECKING:
    import lancedb

    from tests.store.test_processes import WritingProcess

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ROWS = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})
KILLS_BY_DAY, KILLS_BY_NIGHT = 1, 200


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits sees soon whether the holder is alive."""
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(locks, "LOOK_SECONDS", 0.05)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders don't say that they are alive, as if they were suspended, and may not for a moment."""
    monkeypatch.setattr(locks, "_beat", lambda _lease, _over: None)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.5)


def test_a_second_writer_waits_in_vain_and_is_told_who_writes(bucket: Bucket) -> None:
    with leased(bucket, "default.documents", seconds=0):
        message = rf"\(process {os.getpid()} on .+\) is writing to 'default\.documents' in {bucket}"
        with pytest.raises(BusyError, match=message), leased(bucket, "default.documents", seconds=0):
            pass
        with leased(bucket, "default.others", seconds=0) as lease:
            assert not lease.inherited
    with leased(bucket, "default.documents", seconds=0) as next_one:
        assert not next_one.inherited


@pytest.mark.usefixtures("silent")
def test_who_falls_silent_loses_the_lease_and_is_told_so_at_its_end(bucket: Bucket) -> None:
    former = leased(bucket, "x", seconds=0)
    first = former.__enter__()
    with leased(bucket, "x", seconds=0) as second:
        assert second.inherited
        second.check()
        with pytest.raises(BusyError, match="another one took over"):
            first.check()
    assert (second.number, first.number) == (2, 1)
    with pytest.raises(BusyError):
        former.__exit__(None, None, None)


def test_what_ended_with_an_error_must_be_settled_before_it_counts_as_well_ended(bucket: Bucket) -> None:
    def hold(*, settles: bool = False, fails: bool = False) -> bool:
        with leased(bucket, "x", seconds=0) as lease:
            if settles:
                lease.settle()
            if fails:
                raise OSError
        return lease.inherited

    assert not hold()
    with suppress(OSError):
        hold(fails=True)
    assert hold()
    assert hold(settles=True)
    assert not hold()
    for _ in range(8):
        hold()
    assert len(object_facts(bucket, "leases")) < 12  # the former ones are deleted


async def _upsert(table: lancedb.AsyncTable) -> None:
    upsert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    await upsert.use_index(use_index=False).execute(ROWS.slice(1))


async def _update_columns(table: lancedb.AsyncTable) -> None:
    await table.merge_insert("id").when_matched_update_all().execute(ROWS.slice(1))


OPERATIONS: dict[str, Callable[[lancedb.AsyncTable], Awaitable[object]]] = {
    "add": lambda table: table.add(ROWS),
    "upsert": _upsert,
    "update columns": _update_columns,
    "delete": lambda table: table.delete("id = 'a'"),
    "delete nothing": lambda table: table.delete("id = 'z'"),
    "update": lambda table: table.update({"n": 9}, where="id = 'a'"),
    "index": lambda table: table.create_index("id", config=BTree()),
    "compact": lambda table: table.optimize(cleanup_older_than=timedelta(days=1)),
    "add a column": lambda table: table.add_columns(pa.schema([pa.field("m", pa.int64())])),
    "drop a column": lambda table: table.drop_columns(["n"]),
}


@pytest.mark.parametrize("inherited", [True, False])
async def test_no_operation_that_was_begun_before_a_takeover_is_committed(
    bucket: Bucket, *, inherited: bool
) -> None:
    """Without the fence, each is: that is the control."""
    database = await connect(bucket, writes=True)
    for name, operation in OPERATIONS.items():
        table = name.replace(" ", "_")
        await (await database.create_table(table, ROWS)).add(ROWS)
        former = await (await connect(bucket, writes=True)).open_table(table)
        lease = locks._take(bucket, table, [])  # noqa: SLF001 a lease as the test wants it
        assert lease
        _, (mine,) = await open_in_turn(bucket, replace(lease, inherited=inherited), table)
        if inherited:
            await _upsert(mine)  # so that there is also a conflict that the engine might resolve by itself
        version = await mine.version()
        refused = False
        try:
            with engine_errors("committing"):
                await operation(former)
        except BusyError:
            refused = True
        assert refused is inherited, name
        now = await (await database.open_table(table)).version()
        assert (now == version) is inherited, name


async def test_what_the_former_holder_committed_in_the_very_moment_of_the_takeover_stays(
    bucket: Bucket,
) -> None:
    database = await connect(bucket, writes=True)
    await database.create_table("t", ROWS)
    former = await (await connect(bucket, writes=True)).open_table("t")
    mine = await database.open_table("t")
    await former.add(ROWS)
    await former.delete("id = 'a'")
    await locks._fence(mine)  # noqa: SLF001 opened before these commits
    assert await mine.count_rows() == await (await (await connect(bucket)).open_table("t")).count_rows() == 4
    with pytest.raises(BusyError), engine_errors("committing"):
        await former.add(ROWS)


@pytest.mark.usefixtures("silent")
async def test_a_writer_that_sleeps_through_its_lease_changes_nothing_any_more(
    small_desk: ModuleType, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping = await small_desk.writing(bucket)
    former = await sleeping.__aenter__()
    await former.replace([small_desk.new_source(former, "a", "the first pendulum")])
    async with await small_desk.writing(bucket) as writer:
        assert set(await writer.known_sources()) == {"a"}
        await writer.replace([small_desk.new_source(writer, "a", "the second pendulum")])
        await writer.finish()
        before = await whole(bucket)
        monkeypatch.setattr(Lease, "check", lambda _lease: None)  # it doesn't even look
        for late in (
            former.replace([small_desk.new_source(former, "a", "a late pendulum")]),
            former.replace([small_desk.new_source(former, "b", "another one")]),
            former.remove([former.ids.of("a")]),
            former.note_files({}),
            former.purge(),
        ):
            with suppress(BusyError):
                await late
        assert await whole(bucket) == before
    with pytest.raises(BusyError):
        await former.replace([small_desk.new_source(former, "a", "a late pendulum")])
    assert (await whole(bucket)) == {"a": ["the second pendulum"]}


async def test_rights_change_while_a_collection_is_written(small_desk: ModuleType, bucket: Bucket) -> None:
    async with await small_desk.writing(bucket) as writer:
        await writer.replace([small_desk.new_source(writer, "a", "the pendulum")])
        id_ = writer.ids.of("a")
        await change_access(bucket, "default", [id_], lambda _access: Access("restricted"))
        async with access_table(bucket, "default") as table:
            (record,) = (await table.of([id_])).values()
        assert record.access
        assert record.access.visibility == "restricted"
        late = small_desk.new_source(writer, "a", "the late pendulum", set_access=True)
        (record,) = (await writer.replace([late])).values()  # which would open it again
    assert record.access.visibility == "restricted"


async def test_labels_of_rights_that_others_change_meanwhile_are_copied_before_a_writer_ends(
    small_desk: ModuleType, bucket: Bucket
) -> None:
    async with await small_desk.writing(bucket) as writer:
        await writer.replace([small_desk.new_source(writer, "a", "the pendulum")])
        id_ = writer.ids.of("a")
        await change_access(bucket, "default", [id_], lambda _access: Access("restricted"))
        assert await writer.follow_others() == []
        async with access_table(bucket, "default") as table:
            (record,) = (await table.of([id_])).values()
    assert record.copied


async def test_an_unfit_store_is_refused_before_anything_is_written(
    small_desk: ModuleType, bucket: Bucket, object_store: ObjectStore
) -> None:
    object_store.forgets_conditions = True
    with pytest.raises(ConfigurationError, match="ignores If-None-Match"):
        await small_desk.writing(bucket)
    assert object_store.held() == []


async def test_an_unfit_store_that_has_a_desk_already_is_refused_as_well(
    small_desk: ModuleType, bucket: Bucket, object_store: ObjectStore
) -> None:
    async with await small_desk.writing(bucket) as writer:
        collection = writer.collection
    before = object_store.objects()
    object_store.forgets_conditions = True
    with pytest.raises(ConfigurationError, match="ignores If-None-Match"):
        async with open_writer(bucket, collection):
            pass
    assert object_store.objects() == before


@pytest.mark.parametrize("kills", [KILLS_BY_DAY, pytest.param(KILLS_BY_NIGHT, marks=pytest.mark.nightly)])
async def test_ingestion_into_a_bucket_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    small_desk: ModuleType,
    writing_process: WritingProcess,
    bucket: Bucket,
    object_store: ObjectStore,
    tmp_path: Path,
    kills: int,
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    chance = random.Random(7)  # noqa: S311 no secret
    codes = set()
    for number in range(kills):
        process = writing_process("ingest", bucket.uri, documents)
        change(documents, number % 12)
        begin(process)
        with suppress(TimeoutExpired):
            process.wait(chance.uniform(0, 3) if number else 0)  # the first is killed, however quick
        process.kill()
        codes.add(process.wait())
        if any("/collections.lance/_versions" in name for name in object_store.held()):
            await whole(bucket)
    assert -signal.SIGKILL in codes
    await small_desk.ingested(bucket, documents)
    await small_desk.ingested(tmp_path / "undisturbed", documents)
    ended = await whole(bucket)
    assert ended == await whole(tmp_path / "undisturbed")
    (chunks,) = set(re.findall(r"tables/(chunks\w+)\.lance", " ".join(object_store.held())))
    table = await (await connect(bucket)).open_table(chunks)
    assert await table.count_rows() == sum(map(len, ended.values()))
