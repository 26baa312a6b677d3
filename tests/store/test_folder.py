"""The data folder: its reserve, what a full disk is told from, and the evaluation runs in it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import anyio
import pytest
from filelock import FileLock

from rag.errors import BusyError, ConfigurationError, NotFoundError, StoreError
from rag.store.read.connection import engine_errors
from rag.store.write import desk_folder, evaluation_runs
from rag.store.write.desk_folder import (
    RESERVE_BYTES,
    is_full,
    prepare,
    reserve_file,
    spending_reserve,
    write_whole,
)
from rag.store.write.evaluation_runs import StoredRun, run_summaries, save_runs, stored_run
from tests.conftest import SmallDisk

pytestmark = pytest.mark.anyio

BLOCK = 512  # bytes that st_blocks counts by


def held(data: Path) -> int:
    """The room on the disk that the reserve really takes."""
    return reserve_file(data).stat().st_blocks * BLOCK


@pytest.mark.parametrize("of_the_system", [True, False], ids=["allocated", "written"])
def test_a_prepared_folder_has_a_reserve_of_real_room_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, of_the_system: bool
) -> None:
    if not of_the_system:
        monkeypatch.delattr(os, "posix_fallocate")
    prepare(tmp_path / "data")
    status = reserve_file(tmp_path / "data").stat()
    assert (status.st_size, status.st_mode & 0o777) == (RESERVE_BYTES, 0o600)
    assert held(tmp_path / "data") >= RESERVE_BYTES
    before = status.st_mtime_ns, status.st_ino
    prepare(tmp_path / "data")
    status = reserve_file(tmp_path / "data").stat()
    assert (status.st_mtime_ns, status.st_ino) == before


def test_a_reserve_that_came_back_from_a_copy_without_its_room_gets_it_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    os.truncate(reserve_file(tmp_path), 0)
    os.truncate(reserve_file(tmp_path), RESERVE_BYTES)
    assert held(tmp_path) < RESERVE_BYTES
    prepare(tmp_path)
    assert held(tmp_path) >= RESERVE_BYTES


def test_without_room_for_a_reserve_nothing_begins(small_disk: SmallDisk) -> None:
    small_disk.fill()
    with pytest.raises(StoreError, match=r"reserve.*: No space left on device"):
        prepare(small_disk.folder / "data")
    small_disk.empty()
    prepare(small_disk.folder / "data")
    assert held(small_disk.folder / "data") >= RESERVE_BYTES


def test_a_write_that_a_full_disk_stops_is_written_into_the_room_of_the_reserve(
    small_disk: SmallDisk,
) -> None:
    data = small_disk.folder / "data"
    prepare(data)
    small_disk.fill()
    with pytest.raises(StoreError, match="No space left"):
        write_whole(data / "keys.json", b"x" * 9999)
    assert {path.name for path in data.iterdir()} == {"locks", "reserve", "tables", "tenants"}

    for attempt in spending_reserve(data):
        with attempt:
            write_whole(data / "keys.json", b"x" * 9999)
    assert (data / "keys.json").stat().st_size == 9999
    assert RESERVE_BYTES - (1 << 17) <= held(data) <= RESERVE_BYTES
    with pytest.raises(StoreError, match="reserve"):  # which is not whole, until there is room
        prepare(data)
    small_disk.empty()
    prepare(data)
    assert held(data) >= RESERVE_BYTES


def test_the_reserve_serves_again_and_again_while_others_take_what_is_left(small_disk: SmallDisk) -> None:
    data = small_disk.folder / "data"
    prepare(data)
    for number in range(10):
        small_disk.fill()
        for attempt in spending_reserve(data):
            with attempt:
                write_whole(data / f"{number}", b"x" * 9999)
    assert held(data) >= RESERVE_BYTES / 2


FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FULL_QUOTA = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
ENGINE = RuntimeError("lance error: LanceError(IO): Generic LocalFileSystem error: No space left on device")


@pytest.mark.parametrize("error", [FULL_DISK, FULL_QUOTA, ENGINE], ids=["disk", "quota", "engine"])
def test_what_a_full_disk_stops_is_begun_once_more_without_the_reserve(
    tmp_path: Path, error: Exception
) -> None:
    prepare(tmp_path)
    reserved = []
    for attempt in spending_reserve(tmp_path):
        with attempt:
            reserved.append(reserve_file(tmp_path).exists())
            if len(reserved) == 1:
                with engine_errors("writing"):
                    raise error
    assert reserved == [True, False]
    assert held(tmp_path) >= RESERVE_BYTES


def test_what_fails_twice_or_otherwise_or_not_at_all_is_not_begun_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    for error, begun in [(FULL_DISK, 2), (PermissionError(errno.EACCES, "no"), 1), (StoreError("no"), 1)]:
        count = 0
        with pytest.raises(type(error)):  # noqa: PT012 the loop is what raises
            for attempt in spending_reserve(tmp_path):
                with attempt:
                    count += 1
                    raise error
        assert count == begun
        assert held(tmp_path) >= RESERVE_BYTES
    assert len([attempt.__enter__() for attempt in spending_reserve(tmp_path)]) == 1


def test_a_full_disk_is_distinguished_from_other_failures() -> None:
    assert is_full(FULL_DISK)
    assert is_full(desk_folder.unwritable("it can't be written", FULL_QUOTA))
    with pytest.raises(StoreError) as wrapped, engine_errors("writing"):
        raise ENGINE
    assert is_full(wrapped.value)
    assert not is_full(PermissionError(errno.EACCES, "Permission denied"))
    assert not is_full(StoreError("something else"))


def test_the_error_for_an_unwritable_folder_gives_the_reason(plain_folder: Path) -> None:
    prepare(plain_folder / "data")
    write_whole(plain_folder / "data" / "keys.json", b"{}")
    (plain_folder / "data").chmod(0o500)
    with pytest.raises(ConfigurationError, match=r"keys\.json can't be written: Permission denied"):
        write_whole(plain_folder / "data" / "keys.json", b"{}")
    (plain_folder / "data").chmod(0o700)


def run(name: str) -> StoredRun:
    return StoredRun(f'"summary of {name}"', f'"questions of {name}"')


async def test_ids_count_from_1_across_calls_and_tenants(tmp_path: Path) -> None:
    assert await save_runs(tmp_path, "default", [run("a"), run("b")]) == [1, 2]
    assert await save_runs(tmp_path, "acme", [run("c")]) == [3]
    assert await save_runs(tmp_path, "default", []) == []
    assert await save_runs(tmp_path, "default", [run("d")]) == [4]


async def test_a_tenant_s_runs_come_back_oldest_first(tmp_path: Path) -> None:
    for name in "abc":
        await save_runs(tmp_path, "default", [run(name), run(name.upper())])
    summaries = await run_summaries(tmp_path, "default")
    assert list(summaries.items()) == [(id_, run(name).summary) for id_, name in enumerate("aAbBcC", 1)]
    assert await stored_run(tmp_path, "default", 4) == run("B")


async def test_a_tenant_sees_its_own_runs_only(tmp_path: Path) -> None:
    await save_runs(tmp_path, "default", [run("mine")])
    await save_runs(tmp_path, "acme", [run("theirs")])
    for tenant, id_, name in (("default", 1, "mine"), ("acme", 2, "theirs")):
        assert await run_summaries(tmp_path, tenant) == {id_: run(name).summary}
        assert await stored_run(tmp_path, tenant, id_) == run(name)
        with pytest.raises(NotFoundError):
            await stored_run(tmp_path, tenant, 3 - id_)


async def test_a_run_that_isn_t_there_is_not_found(tmp_path: Path) -> None:
    await save_runs(tmp_path, "default", [run("a")])
    with pytest.raises(NotFoundError, match=r"There is no run 2. refdesk-admin eval runs lists all runs"):
        await stored_run(tmp_path, "default", 2)


@pytest.mark.parametrize("exists", [True, False])
async def test_reading_makes_nothing(tmp_path: Path, *, exists: bool) -> None:
    data = tmp_path if exists else tmp_path / "data"
    assert await run_summaries(data, "default") == {}
    with pytest.raises(NotFoundError):
        await stored_run(data, "default", 1)
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 nothing else runs


async def test_runs_that_are_kept_at_once_get_ids_of_their_own(tmp_path: Path) -> None:
    ids: list[int] = []

    def keep() -> None:
        ids.extend(anyio.run(save_runs, tmp_path, "default", [run("x"), run("y")]))

    writers = [threading.Thread(target=keep) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(ids) == list(range(1, 9))
    assert list(await run_summaries(tmp_path, "default")) == list(range(1, 9))


async def test_keeping_waits_for_another_writer_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_runs, "WAIT_SECONDS", 0)
    (tmp_path / "locks").mkdir()
    with FileLock(tmp_path / "locks" / "eval_runs.lock"), pytest.raises(BusyError, match="'eval_runs'"):
        await save_runs(tmp_path, "default", [run("a")])
