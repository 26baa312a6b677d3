"""Moving a desk to a bucket and home: whole or not at all, never over something else, and each file once."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag.access.keys import Keys, keys_in
from rag.corpus import Access
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import (
    COPYING,
    WORDS,
    Bucket,
    Home,
    check_data_folder,
    data_folder_problem,
    unfinished_copy,
)
from rag.store.care import bucket_moves
from rag.store.care.bucket_moves import copy_to_bucket, fetch_from_bucket
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import StoredSource
from rag.store.write.access_writer import change_access
from rag.store.write.bucket_objects import PART_BYTES, delete, digest_of, object_facts, put, put_new, put_over
from rag.store.write.change_collection import drop_collection
from rag.store.write.desk_folder import FETCHING, prepare
from rag.store.write.locks import locked
from tests.bucket import ObjectStore
from tests.conftest import SmallDisk
from tests.refusals import refusal
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
NOT_EMPTY = "is not empty, and holds no unfinished copy of this desk"
ALREADY = r"There is a desk in .* already"
CHANGED = "Somebody has changed the desk"


def held(bucket: Bucket) -> set[str]:
    """What the bucket holds of the desk."""
    return {name for name in object_facts(bucket) if not name.startswith("leases/")}


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is known to be fit, so all requests are the copy's own."""
    monkeypatch.setattr(bucket_moves, "check_fit", lambda _bucket: None)


async def stored_in(home: Home) -> list[StoredSource]:
    return await (await table_of(home)).all_sources()


def digest_of_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Of all files of the desk that must be moved: of the versions of a table, the newest."""
    return {name: digest_of_file(folder / name) for name in bucket_moves._files(folder)}  # noqa: SLF001


async def test_a_desk_that_went_to_a_bucket_and_home_again_is_the_same_to_the_byte(
    data: Path, bucket: Bucket, small_desk: ModuleType, note: Path, tmp_path: Path
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    files, new = digests(data), tmp_path / "new"
    moved = await copy_to_bucket(data, bucket, verify=True)
    assert (moved.files, moved.moved, moved.documents) == (len(files), len(files), {"default/documents": 1})
    assert held(bucket) == files.keys()
    assert {name: digest_of(bucket, name) for name in files} == files
    assert await stored_in(bucket) == await stored_in(data)
    fetched = await fetch_from_bucket(bucket, new, verify=True)
    assert fetched == moved
    assert digests(new) == files
    assert not (new / FETCHING).exists()
    assert new.stat().st_mode & 0o077 == 0
    assert keys_in(new) == keys_in(bucket) == Keys()  # which nobody else may read
    beside = note.with_name("beside.md")
    beside.write_text("# Beside\n\nThe balance wheel turns.\n")
    for home in (new, bucket):
        await small_desk.ingested(home, beside)
        assert {stored.source.title for stored in await stored_in(home)} == {"Note", "Beside"}


async def test_a_bucket_that_is_not_empty_is_left_alone(
    data: Path, bucket: Bucket, small_desk: ModuleType, tmp_path: Path, note: Path
) -> None:
    put(bucket, "holiday.jpg", b"somebody's")
    with pytest.raises(ConfigurationError, match=NOT_EMPTY):
        await copy_to_bucket(data, bucket)
    assert object_facts(bucket).keys() == {"holiday.jpg"}
    delete(bucket, ["holiday.jpg"])
    await copy_to_bucket(data, bucket)
    before = object_facts(bucket)
    with pytest.raises(ConfigurationError, match=NOT_EMPTY):  # it may have been changed since
        await copy_to_bucket(data, bucket)
    await small_desk.ingested(tmp_path / "other", note)
    put(bucket, COPYING, b"of a third one")
    with pytest.raises(ConfigurationError, match=NOT_EMPTY):
        await copy_to_bucket(tmp_path / "other", bucket)
    delete(bucket, [COPYING])
    assert object_facts(bucket) == before


@pytest.mark.usefixtures("fit")
async def test_a_copy_that_fails_anywhere_is_no_desk_until_it_is_completed(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    files, failed = digests(data), 0
    for allowed in (1, 5, 12, 20, 25):  # requests
        object_store.left = allowed
        try:
            await copy_to_bucket(data, bucket)
        except StoreError:
            failed += 1
            object_store.left = None
            assert data_folder_problem(bucket)
        else:
            break
    object_store.left = None
    if COPYING in object_facts(bucket):
        await copy_to_bucket(data, bucket)
    assert failed > 2
    assert {name: digest_of(bucket, name) for name in files} == files
    assert held(bucket) == files.keys()
    sent = [path for path in object_store.puts if ".lance/data/" in path]
    assert sent
    assert len(sent) == len({*sent})  # each once


@pytest.mark.usefixtures("fit")
async def test_nothing_but_the_copy_writes_where_it_was_interrupted(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    """A desk that is begun there would hide what has been copied, and the copy would say that all is well."""
    prepare(bucket)  # an empty one
    object_store.left = 12
    with pytest.raises(StoreError):
        await copy_to_bucket(data, bucket)
    object_store.left = None
    problem = unfinished_copy(bucket)
    assert problem
    assert problem == data_folder_problem(bucket)
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        prepare(bucket)
    await copy_to_bucket(data, bucket)
    prepare(bucket)
    assert data_folder_problem(bucket) is None


@pytest.mark.usefixtures("fit")
async def test_a_copy_that_goes_on_brings_what_was_revoked_meanwhile(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    object_store.left = 12
    with pytest.raises(StoreError):
        await copy_to_bucket(data, bucket)
    object_store.left = None
    assert bucket.read("keys.json")
    (data / "keys.json").unlink()
    (stored,) = await stored_in(data)
    await change_access(data, "default", [stored.id], lambda _before: ONLY_ANN)
    await copy_to_bucket(data, bucket)
    assert bucket.read("keys.json") is None
    (moved,) = await stored_in(bucket)
    assert moved.access
    assert moved.access.allow == ONLY_ANN.allow


async def test_a_copy_that_was_cut_off_before_its_last_step_replaces_nothing_any_more(
    data: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    with monkeypatch.context() as patch:
        patch.setattr(bucket_moves, "COPYING", "another")  # which it deletes at its end
        put(bucket, "another", b"")
        patch.setattr(bucket_moves, "_claim", lambda *_arguments: put(bucket, COPYING, _desk_of(data)))
        await copy_to_bucket(data, bucket)
    put(bucket, "keys.json", b'{"keys":  []}')  # a command works there already
    await copy_to_bucket(data, bucket)
    assert bucket.read("keys.json") == b'{"keys":  []}'
    assert COPYING not in object_facts(bucket)


def _desk_of(data: Path) -> bytes:
    return hashlib.sha256(b"refdesk copy\0" + (data / "key").read_bytes()).hexdigest().encode()


async def test_a_desk_that_is_changed_meanwhile_is_not_moved(
    data: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*arguments: Any) -> int:  # noqa: ANN401 of `_move`
        moved = move(*arguments)
        (data / "keys.json").write_text('{"keys": []}')
        put(bucket, "keys.json", b'{"keys": []}')
        return moved

    new, move = tmp_path / "new", bucket_moves._move  # noqa: SLF001 somebody comes in between
    with monkeypatch.context() as patch:
        patch.setattr(bucket_moves, "_move", meanwhile)
        with pytest.raises(BusyError, match=CHANGED):
            await copy_to_bucket(data, bucket)
    assert data_folder_problem(bucket)
    await copy_to_bucket(data, bucket)
    delete(bucket, ["keys.json"])
    with monkeypatch.context() as patch:
        patch.setattr(bucket_moves, "_move", meanwhile)
        with pytest.raises(BusyError, match=CHANGED):
            await fetch_from_bucket(bucket, new)
    assert not any((new / "tenants").iterdir())
    await fetch_from_bucket(bucket, new)
    assert digests(new) == digests(data)


@pytest.mark.parametrize("damage", [b"x", None])
async def test_what_is_not_the_same_is_found_by_reading_it_back(
    data: Path, bucket: Bucket, object_store: ObjectStore, damage: bytes | None
) -> None:
    object_store.damages = "/tables/chunks" if damage else ""
    if not damage:
        assert (await copy_to_bucket(data, bucket, verify=True)).moved
        return
    with pytest.raises(StoreError, match="isn't the same as"):
        await copy_to_bucket(data, bucket, verify=True)


async def test_an_unfit_store_a_missing_one_and_one_that_only_reads_are_said_in_words(
    data: Path, bucket: Bucket, object_store: ObjectStore, tmp_path: Path
) -> None:
    object_store.forgets_conditions = True
    with pytest.raises(ConfigurationError, match="ignores If-None-Match"):
        await copy_to_bucket(data, bucket)
    assert object_facts(bucket) == {}
    object_store.forgets_conditions = False
    object_store.read_only = True
    with pytest.raises(StoreError) as refused:
        await copy_to_bucket(data, bucket)
    assert str(refused.value) == (
        f"{bucket} can't be written: the credentials in the environment don't allow it. "
        "Run refdesk-admin doctor storage."
    )
    missing = Bucket("s3://no-such-bucket/desk", bucket.options)
    with pytest.raises(StoreError, match=f"s3://no-such-bucket/desk can't be read: {WORDS['NoSuchBucket']}"):
        await copy_to_bucket(data, missing)
    with pytest.raises(ConfigurationError, match="There is no desk in"):
        await copy_to_bucket(tmp_path / "nothing", bucket)


async def test_what_has_a_desk_or_something_else_is_no_place_for_another_one(
    data: Path, bucket: Bucket, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no complete desk in .* to fetch"):
        await fetch_from_bucket(bucket, tmp_path / "new")
    await copy_to_bucket(data, bucket)
    put(bucket, COPYING, b"")
    with pytest.raises(ConfigurationError, match=r"There is no complete desk in .* to fetch"):
        await fetch_from_bucket(bucket, tmp_path / "new")
    assert not digests(tmp_path / "new")
    delete(bucket, [COPYING])
    before = digests(data)
    with pytest.raises(ConfigurationError, match=ALREADY):
        await fetch_from_bucket(bucket, data)
    assert digests(data) == before
    (data / "key").unlink()  # damaged, and still no place for another one
    with pytest.raises(ConfigurationError, match=ALREADY):
        await fetch_from_bucket(bucket, data)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "holiday.jpg").write_bytes(b"somebody's")
    with pytest.raises(ConfigurationError, match=re.escape(refusal(check_data_folder, pictures))):
        await fetch_from_bucket(bucket, pictures)
    assert [file.name for file in pictures.iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize("allowed", [2, 10, 15])
async def test_a_fetch_that_is_cut_off_can_only_be_run_again_and_fetches_no_rows_twice(
    data: Path, bucket: Bucket, tmp_path: Path, object_store: ObjectStore, allowed: int
) -> None:
    await copy_to_bucket(data, bucket)
    files, new = digests(data), tmp_path / "new"
    object_store.left = allowed  # requests
    with pytest.raises(StoreError):
        await fetch_from_bucket(bucket, new)
    object_store.left = None
    assert not any((new / "tenants").iterdir())
    with pytest.raises(ConfigurationError, match="Run refdesk-admin storage fetch again"):
        prepare(new)
    (new / "keys.json").write_text("{}")  # of a bucket that had keys then
    fetched = await fetch_from_bucket(bucket, new)
    assert (fetched.moved < fetched.files) is (allowed > 2)
    assert digests(new) == files
    assert not (new / FETCHING).exists()


async def test_nobody_ingests_into_a_folder_that_is_being_filled(
    data: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = bucket_moves._fetch_all, []  # noqa: SLF001 while it fetches

    def fetch_all(*arguments: object) -> object:
        with pytest.raises(BusyError), locked(tmp_path / "new", "catalog", seconds=0):
            pass
        calls.append(True)
        return real(*arguments)  # type: ignore[arg-type]

    await copy_to_bucket(data, bucket)
    monkeypatch.setattr(bucket_moves, "_fetch_all", fetch_all)
    await fetch_from_bucket(bucket, tmp_path / "new")
    assert calls


async def test_a_disk_that_is_full_meanwhile_is_said_and_the_fetch_goes_on_later(
    data: Path, bucket: Bucket, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, new = bucket_moves._fetch_all, small_disk.folder / "new"  # noqa: SLF001 when the folder is prepared

    def fetch_all(*arguments: object) -> object:
        small_disk.fill()
        return real(*arguments)  # type: ignore[arg-type]

    await copy_to_bucket(data, bucket)
    with monkeypatch.context() as patch:
        patch.setattr(bucket_moves, "_fetch_all", fetch_all)
        with pytest.raises(StoreError, match=r"No space left on device\. Free some disk space"):
            await fetch_from_bucket(bucket, new)
    assert not any((new / "tenants").iterdir())
    small_disk.empty()
    await fetch_from_bucket(bucket, new)
    assert digests(new) == digests(data)


async def test_a_killed_writers_leftovers_are_looked_for_in_the_bucket(
    data: Path, bucket: Bucket, small_desk: ModuleType
) -> None:
    async with await small_desk.writing(data) as writer:
        await writer.finish()
    for note in (data / "locks").glob("*.swept"):
        note.unlink()
    await copy_to_bucket(data, bucket)
    async with await small_desk.writing(bucket) as writer:
        assert not writer._swept or writer._lease.inherited  # noqa: SLF001 it looked
        await writer.finish()
    async with await small_desk.writing(bucket) as writer:
        assert not writer._lease.inherited  # noqa: SLF001 there is nothing left to look for


async def test_without_the_package_for_buckets_the_extra_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match="needs the extra cloud"):
        bucket.read("key")


async def test_a_reader_follows_a_collection_that_is_removed_and_made_anew(
    bucket: Bucket, small_desk: ModuleType, note: Path, tmp_path: Path
) -> None:
    reader = DeskReader(bucket, timeout_seconds=30)

    async def titles_and_bodies() -> tuple[set[str], list[str]]:
        (collection,) = await reader.collections("default")
        table = await reader.open(collection)
        return {stored.source.title for stored in await table.all_sources()}, await table.bodies()

    for text in ("swings", "rests", "hangs"):
        note.write_text(f"# Note\n\nThe pendulum {text}.\n")  # noqa: ASYNC240 nothing else runs
        await small_desk.ingested(bucket, note)
        titles, (body,) = await titles_and_bodies()
        assert titles == {"Note"}
        assert f"The pendulum {text}." in body
    (collection,) = await reader.collections("default")
    await drop_collection(bucket, collection)
    wheel = tmp_path / "other.md"
    wheel.write_text("# Other\n\nThe balance wheel turns.\n")
    await small_desk.ingested(bucket, wheel)
    titles, (body,) = await titles_and_bodies()
    assert titles == {"Other"}
    assert "The balance wheel turns." in body


def test_a_large_file_goes_over_a_line_on_which_it_takes_longer_than_an_answer_may(
    bucket: Bucket, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.home.ANSWER_SECONDS", 1)
    monkeypatch.setattr("rag.home.RETRIES", 0)
    content = bytes(range(256)) * (PART_BYTES // 256) + b"end"
    file = tmp_path / "large"
    file.write_bytes(content)
    object_store.bytes_per_second = PART_BYTES / 1.5
    with file.open("rb") as opened:
        put(bucket, "large", opened)
    assert digest_of(bucket, "large") == digest_of_file(file)
    with pytest.raises(StoreError, match=WORDS["kind: Timeout"]):  # the control
        put(bucket, "small", content[:PART_BYTES])


def test_an_object_is_created_once_and_replaced_only_as_it_was_read(bucket: Bucket) -> None:
    assert put_new(bucket, "once", b"1")
    assert not put_new(bucket, "once", b"2")
    content, tag = bucket.read_now("once")
    assert content == b"1"
    assert tag
    assert put_over(bucket, "once", b"3", tag)
    assert not put_over(bucket, "once", b"4", tag)
    assert bucket.read("once") == b"3"


async def test_an_address_shows_no_credentials(bucket: Bucket) -> None:
    texts = f"{bucket!r} {bucket} {bucket.engine_options} {vars(bucket)}"
    assert "very-secret-words" not in texts
    assert "AKIATESTER" not in texts
