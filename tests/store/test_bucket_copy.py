"""Copying a desk to a bucket: all of it, only what differs, and never over something else."""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.corpus import Access
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import WORDS, Bucket
from rag.store.bucket import bucket_copy
from rag.store.bucket.bucket_copy import LEDGER, copy_rights, copy_to_bucket
from rag.store.bucket.bucket_turns import TURNS
from rag.store.read.desk_reader import DeskReader
from rag.store.write.access_writer import access_table, change_access
from rag.store.write.bucket_objects import (
    PART_BYTES,
    PROBES,
    creates_once,
    delete,
    digest_of,
    object_facts,
    put,
    put_new,
    put_over,
)
from rag.store.write.change_collection import drop_collection
from rag.store.write.locks import locked

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.home import Home
    from rag.store.read.schema import StoredSource
    from tests.bucket import ObjectStore

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
ANOTHER_DESK = "holds a copy of another desk"
PARTS = ("tables", "tenants", "key")


def held(bucket: Bucket) -> set[str]:
    """What the bucket holds of the desk."""
    return {name for name in object_facts(bucket) if name != LEDGER and not name.startswith(TURNS)}


async def stored_in(home: Home) -> list[StoredSource]:
    reader = DeskReader(home, timeout_seconds=30)
    (collection,) = await reader.collections("default")
    return await (await reader.open(collection)).all_sources()


async def test_every_file_of_the_desk_is_in_the_bucket_as_it_is(data: Path, bucket: Bucket) -> None:
    copied = await copy_to_bucket(data, bucket)
    files = {
        one.relative_to(data).as_posix()
        for part in PARTS
        for one in [data / part, *(data / part).rglob("*")]
        if one.is_file()
    }
    assert files
    assert held(bucket) == files
    for name in files:
        assert digest_of(bucket, name) == digest_of_file(data / name)
    assert (copied.objects, copied.sent, copied.deleted) == (len(files), len(files), 0)
    assert copied.rows["collections"] == 1
    assert copied.rows["chunks__tenant_default__src_documents"] == 1


def digest_of_file(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


async def test_a_second_copy_sends_only_what_differs_and_deletes_what_is_gone(
    data: Path, bucket: Bucket, small_desk: ModuleType, tmp_path: Path
) -> None:
    first = await copy_to_bucket(data, bucket)
    assert (await copy_to_bucket(data, bucket)).sent == 0
    (data / "keys.json").write_text('{"keys": []}')
    assert (await copy_to_bucket(data, bucket)).sent == 1
    (data / "keys.json").unlink()
    third = await copy_to_bucket(data, bucket)
    assert (third.sent, third.deleted) == (0, 0)  # keys go first, and aren't counted
    assert bucket.read("keys.json") is None
    other = tmp_path / "other.md"
    other.write_text("# Other\n\nThe balance wheel turns.\n")
    await small_desk.ingested(data, other)
    more = await copy_to_bucket(data, bucket)
    assert 0 < more.sent < more.objects
    assert more.rows["sources__tenant_default__src_documents"] == 2
    assert more.objects > first.objects


@pytest.mark.usefixtures("copied")
async def test_an_object_that_was_damaged_or_lost_is_sent_again(data: Path, bucket: Bucket) -> None:
    tables = sorted(name for name in object_facts(bucket) if name.startswith("tables/"))
    right = digest_of(bucket, tables[0])
    size = object_facts(bucket)[tables[0]][0]
    put(bucket, tables[0], b"x" * size)
    delete(bucket, [tables[1]])
    assert digest_of(bucket, tables[0]) != right
    assert (await copy_to_bucket(data, bucket)).sent == 2
    assert digest_of(bucket, tables[0]) == right


@pytest.mark.usefixtures("copied")
async def test_what_the_store_holds_is_compared_with_what_was_sent(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    object_store.damages = "keys.json"
    with pytest.raises(StoreError, match=r"keys\.json isn't what was sent"):
        await copy_to_bucket(data, bucket)
    object_store.damages = ""
    assert (await copy_to_bucket(data, bucket)).sent == 1
    assert bucket.read("keys.json") == b'{"keys": []}'


async def test_a_bucket_that_holds_something_else_is_left_alone(
    data: Path, bucket: Bucket, small_desk: ModuleType, tmp_path: Path
) -> None:
    put(bucket, "holiday.jpg", b"somebody's")
    with pytest.raises(ConfigurationError, match="is not empty, and holds no copy of this desk"):
        await copy_to_bucket(data, bucket)
    assert object_facts(bucket).keys() == {"holiday.jpg"}
    delete(bucket, ["holiday.jpg"])
    await copy_to_bucket(data, bucket)
    before = held(bucket)
    file = tmp_path / "theirs.md"
    file.write_text("# Theirs\n\nA sundial.\n")
    await small_desk.ingested(tmp_path / "other", file)
    with pytest.raises(ConfigurationError, match=ANOTHER_DESK):
        await copy_to_bucket(tmp_path / "other", bucket)
    put(bucket, LEDGER, b"[]")
    with pytest.raises(ConfigurationError, match=ANOTHER_DESK):
        await copy_to_bucket(data, bucket)
    assert held(bucket) == before


@pytest.mark.parametrize("step", ["_send", "check"])
@pytest.mark.usefixtures("copied")
async def test_of_two_copies_at_once_the_one_that_began_last_goes_on(
    data: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Two machines have the same desk, and one has a key that the other has revoked."""
    (data / "keys.json").write_text('{"keys": []}')
    other = shutil.copytree(data, tmp_path / "other")
    (other / "keys.json").write_text('{"keys":[]}')
    real = getattr(bucket_copy._Target, step)  # noqa: SLF001 where the other one comes in

    first = iter([True])

    def interrupted(*arguments: object) -> object:
        if next(first, False):
            anyio.run(partial(copy_to_bucket, other, bucket, replace=True))
        return real(*arguments)

    monkeypatch.setattr(bucket_copy._Target, step, interrupted)  # noqa: SLF001 the same
    expected = BusyError if step == "_send" else StoreError
    with pytest.raises(expected):
        await copy_to_bucket(data, bucket)
    assert (await copy_to_bucket(other, bucket)).objects
    assert bucket.read("keys.json") == b'{"keys":[]}'
    assert (await copy_to_bucket(other, bucket)).sent == 0


async def test_a_copy_that_stalls_cannot_replace_what_a_later_one_has_sent(
    data: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stalls just before it writes: after it has looked whether it is still the last one."""
    (data / "keys.json").write_text('{"keys": [0]}')
    await copy_to_bucket(data, bucket)
    other = shutil.copytree(data, tmp_path / "other")
    (data / "keys.json").write_text('{"keys": [0, 1]}')
    (other / "keys.json").write_text('{"keys": []}')
    stalled = iter([True])

    def stalling(*arguments: object) -> object:
        if next(stalled, False):
            anyio.run(partial(copy_to_bucket, other, bucket, replace=True))
        return put_over(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(bucket_copy, "put_over", stalling)
    with pytest.raises(BusyError, match=r"Another copy to .* has begun since"):
        await copy_to_bucket(data, bucket)
    assert bucket.read("keys.json") == b'{"keys": []}'
    assert put_over(bucket, "keys.json", b"{}", None) is None
    assert put_over(bucket, "keys.json", b"{}", "0" * 32) is None
    assert put_over(bucket, "keys.json", b"{}", object_facts(bucket)["keys.json"][1])  # the control
    assert bucket.read("keys.json") == b"{}"


async def test_a_store_that_cannot_compare_gets_everything_too(
    data: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_copy, "put_over", lambda *_: None)
    copied = await copy_to_bucket(data, bucket)
    assert copied.sent == copied.objects
    assert await stored_in(bucket) == await stored_in(data)


async def test_a_running_copy_sends_what_is_revoked_meanwhile_before_it_goes_on(
    data: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "keys.json").write_text('{"keys": [0]}')
    sent, keys = bucket_copy._Target.send, []  # noqa: SLF001 where it is revoked

    def send(target: bucket_copy._Target, names: list[str]) -> None:
        if any("chunks__" in name for name in names):
            keys.append(bucket.read("keys.json"))
            (data / "keys.json").write_text('{"keys": []}')
        sent(target, names)

    monkeypatch.setattr(bucket_copy._Target, "send", send)  # noqa: SLF001 the same
    await copy_to_bucket(data, bucket)
    assert keys[0] == b'{"keys": [0]}'
    assert len(keys) > 1
    assert set(keys[1:]) == {b'{"keys": []}'}


@pytest.mark.usefixtures("copied")
async def test_rights_alone_are_copied_while_a_collection_is_written(data: Path, bucket: Bucket) -> None:
    before = held(bucket)
    (data / "keys.json").write_text('{"keys": []}')
    (one,) = await stored_in(bucket)
    await change_access(data, "default", [one.id], lambda _before: ONLY_ANN)
    with locked(data, "default.documents", seconds=0):
        assert await copy_rights(data, bucket) > 1
        with locked(data, "copy", seconds=0), pytest.raises(BusyError, match="It also brings the keys"):
            await copy_rights(data, bucket)
    assert bucket.read("keys.json") == b'{"keys": []}'
    (after,) = await stored_in(bucket)
    assert after.access
    assert (after.access.visibility, after.access.allow) == ("restricted", ONLY_ANN.allow)
    assert all("access__" in name or name == "keys.json" for name in held(bucket) - before)
    assert await copy_rights(data, bucket) == 0
    assert (await copy_to_bucket(data, bucket)).objects


async def test_a_store_without_conditional_writes_gets_nothing(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    object_store.forgets_conditions = True
    assert not creates_once(bucket)
    with pytest.raises(ConfigurationError, match="ignores If-None-Match"):
        await copy_to_bucket(data, bucket)
    assert object_facts(bucket) == {}
    object_store.forgets_conditions = False
    assert creates_once(bucket)
    assert object_facts(bucket, PROBES) == {}
    assert put_new(bucket, "once", b"1")
    assert not put_new(bucket, "once", b"2")
    assert bucket.read("once") == b"1"


@pytest.mark.usefixtures("copied")
async def test_a_copy_that_came_to_such_a_store_otherwise_stays_as_it_is(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    object_store.forgets_conditions = True
    for copying in (copy_to_bucket, copy_rights):
        with pytest.raises(ConfigurationError, match="ignores If-None-Match"):
            await copying(data, bucket)
    assert bucket.read("keys.json") is None
    object_store.forgets_conditions = False
    await copy_to_bucket(data, bucket)
    assert bucket.read("keys.json") == b'{"keys": []}'


async def test_credentials_that_only_read_and_a_missing_bucket_are_said_in_words(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
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


async def test_nothing_is_copied_while_a_collection_is_written_but_rights_can_be_changed_meanwhile(
    data: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.store.bucket.bucket_copy.WAIT_SECONDS", 0)
    await copy_to_bucket(data, bucket)
    (data / "keys.json").write_text('{"keys": []}')
    (before,) = await stored_in(bucket)
    await change_access(data, "default", [before.id], lambda _before: ONLY_ANN)
    with (
        locked(data, "default.documents", seconds=0),
        pytest.raises(BusyError, match="Keys and access records were copied; documents weren't"),
    ):
        await copy_to_bucket(data, bucket)
    assert bucket.read("keys.json") == b'{"keys": []}'
    (after,) = await stored_in(bucket)
    assert before.access
    assert before.access.visibility == "tenant"
    assert after.access
    assert (after.access.visibility, after.access.allow) == ("restricted", ONLY_ANN.allow)
    async with access_table(data, "default"):
        assert (await copy_to_bucket(data, bucket)).objects


async def test_a_folder_without_a_desk_is_not_copied(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There is no desk in"):
        await copy_to_bucket(tmp_path, bucket)
    assert object_facts(bucket) == {}


@pytest.mark.usefixtures("copied")
async def test_the_copy_is_read_with_the_same_sources_and_rights(data: Path, bucket: Bucket) -> None:
    found = await stored_in(data)
    assert found == await stored_in(bucket)
    assert found[0].access


async def test_without_the_package_for_buckets_the_extra_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"Install refdesk\[cloud\] instead of refdesk"):
        bucket.read("key")


async def test_a_reader_follows_a_collection_that_is_removed_and_made_anew(
    data: Path, bucket: Bucket, small_desk: ModuleType, note: Path, tmp_path: Path
) -> None:
    """Its tables have the names of the former ones, and fewer versions."""
    reader = DeskReader(bucket, timeout_seconds=30)

    async def seen() -> tuple[set[str], list[str]]:
        (collection,) = await reader.collections("default")
        table = await reader.open(collection)
        return {one.source.title for one in await table.all_sources()}, await table.bodies()

    for text in ("swings", "rests", "hangs"):
        note.write_text(f"# Note\n\nThe pendulum {text}.\n")  # noqa: ASYNC240 nothing else runs
        await small_desk.ingested(data, note)
        await copy_to_bucket(data, bucket)
        titles, (body,) = await seen()
        assert titles == {"Note"}
        assert f"The pendulum {text}." in body
    (collection,) = await DeskReader(data, timeout_seconds=30).collections("default")
    await drop_collection(data, collection)
    other = tmp_path / "other.md"
    other.write_text("# Other\n\nThe balance wheel turns.\n")
    await small_desk.ingested(data, other)
    made = await copy_to_bucket(data, bucket)
    assert made.deleted
    titles, (body,) = await seen()
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


async def test_an_address_shows_no_credentials(bucket: Bucket) -> None:
    shown = f"{bucket!r} {bucket} {bucket.engine_options} {vars(bucket)}"
    assert "very-secret-words" not in shown
    assert "AKIATESTER" not in shown
