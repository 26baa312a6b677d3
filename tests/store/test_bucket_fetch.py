"""Fetching a desk from a bucket: the same desk, whole or not at all, and from then on the one that copies."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from rag.corpus import Access
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import check_data_folder
from rag.store.bucket import bucket_fetch
from rag.store.bucket.bucket_copy import LEDGER, copy_rights, copy_to_bucket
from rag.store.bucket.bucket_fetch import fetch_from_bucket
from rag.store.bucket.bucket_turns import NOTES, TURNS
from rag.store.write.access_writer import change_access
from rag.store.write.bucket_objects import delete, object_facts, put
from rag.store.write.desk_folder import FETCHING, make_key
from rag.store.write.locks import locked
from tests.refusals import refusal
from tests.store.test_bucket_copy import PARTS, digest_of_file, stored_in

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.home import Bucket
    from tests.bucket import ObjectStore
    from tests.conftest import SmallDisk

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ANOTHER = "Another data folder was copied"
ALREADY = r"There is a desk in .* already"
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))


def files_of(folder: Path) -> dict[str, str]:
    """The digests of all that makes a desk."""
    return {
        one.relative_to(folder).as_posix(): digest_of_file(one)
        for part in (*PARTS, "keys.json")
        for one in [folder / part, *(folder / part).rglob("*")]
        if one.is_file() and not one.name.startswith(".")
    }


async def ingest_beside(note: Path, small_desk: ModuleType, folder: Path) -> None:
    file = note.with_name(f"of-{folder.name}.md")
    file.write_text(f"# Of {folder.name}\n\nThe balance wheel turns.\n")
    await small_desk.ingested(folder, file)


async def test_the_desk_is_the_same_to_the_byte_and_can_be_ingested_into(
    data: Path, bucket: Bucket, small_desk: ModuleType, note: Path, tmp_path: Path
) -> None:
    (data / "keys.json").write_text('{"keys": []}')
    await copy_to_bucket(data, bucket)
    new = tmp_path / "new"
    fetched = await fetch_from_bucket(bucket, new)
    assert files_of(new) == files_of(data)
    assert fetched.objects == len(files_of(data))
    assert fetched.documents == {"default/documents": 1}
    assert not (new / FETCHING).exists()
    assert new.stat().st_mode & 0o077 == 0
    await ingest_beside(note, small_desk, new)
    assert {one.source.title for one in await stored_in(new)} == {"Note", "Of new"}
    assert (await copy_to_bucket(new, bucket)).rows["sources__tenant_default__src_documents"] == 2


@pytest.mark.usefixtures("copied")
async def test_a_folder_whose_state_the_bucket_has_outlived_replaces_nothing_by_itself(
    data: Path, bucket: Bucket, small_desk: ModuleType, note: Path, tmp_path: Path
) -> None:
    """The first machine goes on by its timer after a second one has taken over, and has revoked a right."""
    new = tmp_path / "new"
    await fetch_from_bucket(bucket, new)
    assert (await copy_to_bucket(data, bucket)).objects  # nobody has copied since
    with pytest.raises(ConfigurationError, match=ANOTHER):
        await copy_to_bucket(new, bucket)
    shutil.rmtree(new)
    await fetch_from_bucket(bucket, new)
    (one,) = await stored_in(new)
    await change_access(new, "default", [one.id], lambda _before: ONLY_ANN)
    await ingest_beside(note, small_desk, new)
    await copy_to_bucket(new, bucket)
    before = object_facts(bucket)
    for copying in (copy_to_bucket, copy_rights):
        with pytest.raises(ConfigurationError, match=r"storage fetch --from .* --data NEW_FOLDER"):
            await copying(data, bucket)
    assert object_facts(bucket) == before
    assert {(one.source.title, one.access and one.access.visibility) for one in await stored_in(bucket)} == {
        ("Note", "restricted"),
        ("Of new", "restricted"),  # it lies in the same folder
    }
    assert (await copy_to_bucket(data, bucket, replace=True)).rows[
        "sources__tenant_default__src_documents"
    ] == 1
    assert [one.access and one.access.visibility for one in await stored_in(bucket)] == ["tenant"]
    assert (await copy_to_bucket(data, bucket)).sent == 0  # it is the one that copies again
    with pytest.raises(ConfigurationError, match=ANOTHER):
        await copy_to_bucket(new, bucket)


@pytest.mark.usefixtures("copied")
async def test_of_two_copies_of_one_folder_the_first_to_copy_goes_on(
    data: Path, bucket: Bucket, tmp_path: Path
) -> None:
    twin = shutil.copytree(data, tmp_path / "twin")
    await copy_to_bucket(twin, bucket)
    with pytest.raises(ConfigurationError, match=ANOTHER):
        await copy_to_bucket(data, bucket)
    assert (await copy_to_bucket(twin, bucket)).objects


@pytest.mark.usefixtures("copied")
async def test_a_copy_that_never_heard_whether_it_began_goes_on_later(
    data: Path, bucket: Bucket, object_store: ObjectStore
) -> None:
    for left in range(2, 12):  # the store fails after so many requests, before, at and after the turn
        object_store.left = left
        with pytest.raises(StoreError):
            await copy_to_bucket(data, bucket)
        object_store.left = None
        assert (await copy_to_bucket(data, bucket)).objects
    (data / NOTES).unlink()
    with pytest.raises(ConfigurationError, match=ANOTHER):
        await copy_to_bucket(data, bucket)


@pytest.mark.usefixtures("copied")
async def test_what_has_a_desk_or_something_else_is_left_alone(
    data: Path, bucket: Bucket, tmp_path: Path
) -> None:
    before = files_of(data)
    with pytest.raises(ConfigurationError, match=ALREADY):
        await fetch_from_bucket(bucket, data)
    assert files_of(data) == before
    (data / "key").unlink()  # damaged, and still no place for another one
    with pytest.raises(ConfigurationError, match=ALREADY):
        await fetch_from_bucket(bucket, data)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "holiday.jpg").write_bytes(b"somebody's")
    with pytest.raises(ConfigurationError, match=re.escape(refusal(check_data_folder, pictures))):
        await fetch_from_bucket(bucket, pictures)
    assert [one.name for one in pictures.iterdir()] == ["holiday.jpg"]


async def test_a_bucket_without_a_desk_gives_nothing(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no desk in .* to fetch"):
        await fetch_from_bucket(bucket, tmp_path / "new")
    assert not files_of(tmp_path / "new")


@pytest.mark.parametrize("moved", [0, 1, 3, -1])
@pytest.mark.usefixtures("copied")
async def test_a_fetch_that_is_killed_can_only_be_run_again(
    data: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    count = len(files_of(data))
    new, left = tmp_path / "new", iter([True] * (moved % count) + [False])
    real = type(new).replace

    def replace(file: Path, target: Path) -> Path:
        if FETCHING in file.parts and not next(left):
            raise KeyboardInterrupt
        return real(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(new), "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            await fetch_from_bucket(bucket, new)
    assert not (new / "key").exists()
    with pytest.raises(ConfigurationError, match="Run refdesk-admin storage fetch again"):
        make_key(new)
    await fetch_from_bucket(bucket, new)
    assert files_of(new) == files_of(data)
    assert not (new / FETCHING).exists()


async def test_what_was_fetched_before_an_interruption_is_not_fetched_again(
    data: Path, bucket: Bucket, tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_fetch, "SENDERS", 1)
    await copy_to_bucket(data, bucket)
    object_store.left = 12
    with pytest.raises(StoreError):
        await fetch_from_bucket(bucket, tmp_path / "new")
    object_store.left = None
    object_store.paths.clear()
    await fetch_from_bucket(bucket, tmp_path / "new")
    assert 0 < sum("/tables/" in path for path in object_store.paths) < len(files_of(data))
    assert files_of(tmp_path / "new") == files_of(data)


@pytest.mark.usefixtures("copied")
async def test_a_copy_that_comes_in_between_is_told(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bucket_fetch._fetch  # noqa: SLF001 where the copy comes in

    def meanwhile(source: Bucket, name: str, file: Path, digest: str | None) -> None:
        real(source, name, file, digest)
        if name == "key":
            put(bucket, f"{TURNS}/00000002", b"somebody's")

    monkeypatch.setattr(bucket_fetch, "_fetch", meanwhile)
    with pytest.raises(BusyError, match=r"Somebody copied to .* meanwhile"):
        await fetch_from_bucket(bucket, tmp_path / "new")
    assert not files_of(tmp_path / "new")


@pytest.mark.usefixtures("copied")
async def test_an_object_that_is_not_what_was_copied_is_not_taken(
    data: Path, bucket: Bucket, tmp_path: Path
) -> None:
    name = next(one for one in object_facts(bucket) if one.startswith("tables/chunks"))
    put(bucket, name, b"x" * object_facts(bucket)[name][0])
    with pytest.raises(StoreError, match="isn't what was copied there"):
        await fetch_from_bucket(bucket, tmp_path / "new")
    assert not files_of(tmp_path / "new")
    await copy_to_bucket(data, bucket)
    await fetch_from_bucket(bucket, tmp_path / "new")
    put(bucket, LEDGER, b"[]")
    with pytest.raises(StoreError, match="is damaged"):
        await fetch_from_bucket(bucket, tmp_path / "other")
    delete(bucket, ["key"])
    with pytest.raises(ConfigurationError, match="There is no desk"):
        await fetch_from_bucket(bucket, tmp_path / "other")


@pytest.mark.usefixtures("copied")
async def test_nobody_ingests_into_a_folder_that_is_being_filled(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bucket_fetch._fetch  # noqa: SLF001 while it fetches
    held: list[str] = []

    def fetch(source: Bucket, name: str, file: Path, digest: str | None) -> None:
        if not held:
            held.append(name)
            with pytest.raises(BusyError), locked(tmp_path / "new", "catalog", seconds=0):
                pass
        real(source, name, file, digest)

    monkeypatch.setattr(bucket_fetch, "_fetch", fetch)
    await fetch_from_bucket(bucket, tmp_path / "new")
    assert held


async def test_a_full_disk_keeps_no_revocation_from_the_bucket(
    small_desk: ModuleType, bucket: Bucket, small_disk: SmallDisk, tmp_path: Path
) -> None:
    data, file = small_disk.folder / "data", tmp_path / "note.md"
    file.write_text("# Note\n\nThe pendulum swings.\n")
    await small_desk.ingested(data, file)
    await copy_to_bucket(data, bucket)
    small_disk.fill()
    (one,) = await stored_in(data)
    await change_access(data, "default", [one.id], lambda _before: ONLY_ANN)
    small_disk.fill()  # the change has freed the reserve
    assert await copy_rights(data, bucket)
    (there,) = await stored_in(bucket)
    assert there.access
    assert there.access.visibility == "restricted"


@pytest.mark.usefixtures("copied")
async def test_a_disk_that_is_full_meanwhile_is_said_and_the_fetch_goes_on_later(
    data: Path, bucket: Bucket, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, new = bucket_fetch._fetch_all, small_disk.folder / "new"  # noqa: SLF001 when the folder is prepared

    def fetched(source: Bucket, folder: Path) -> dict[str, int]:
        small_disk.fill()
        return real(source, folder)

    with monkeypatch.context() as patch:
        patch.setattr(bucket_fetch, "_fetch_all", fetched)
        with pytest.raises(StoreError, match=r"No space left on device\. Free some disk space"):
            await fetch_from_bucket(bucket, new)
    assert not (new / "key").exists()
    small_disk.empty()
    await fetch_from_bucket(bucket, new)
    assert files_of(new) == files_of(data)
