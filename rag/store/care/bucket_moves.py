"""Copies a desk from a data folder to a bucket, or back, many files at a time.

The engine never changes a file of rows, and its name is unique. So an interrupted move continues by names and
sizes. Nobody is locked out: if the desk changes meanwhile, the move fails and must be run again. Only the
newest version of each table is moved, after the rows that it names.

A mark says that a desk is incomplete: the object `copying`, or the file `fetching`. The list of tenants comes
last: without it, no command or server takes the folder or bucket for a desk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from rag.access.keys import KEYS
from rag.access.tenants import tenants
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import COPYING, Bucket, data_folder_problem
from rag.store.read import schema
from rag.store.read.desk_reader import DeskReader
from rag.store.write.bucket_objects import (
    PROBES,
    check_fit,
    delete,
    digest_of,
    fetch,
    object_facts,
    put,
    put_new,
)
from rag.store.write.collection_tables import is_swept
from rag.store.write.desk_folder import FETCHING, make_private, prepare, read_key, writable, write_whole
from rag.store.write.locks import ENDED, LEASES, locked
from rag.store.write.table_maintenance import sync_to_disk

KEY = "key"
TENANTS = "tenants/"
PARTS = ("tenants", KEYS, "tables", "runs", KEY)
MOVERS = 16  # at once
WAIT_SECONDS = 15
ACCESS_TABLES = f"tables/{schema.access_table('')}"  # the prefix of their files
CATALOG = f"tables/{schema.COLLECTIONS}.lance/"
CHANGED = "Somebody has changed the desk in {} meanwhile. Run the same command again when nobody writes."


@dataclass(frozen=True, slots=True)
class Move:
    """A complete move: the desk's files and bytes, the files that this run `moved`, and its documents.

    Documents are counted by tenant and name of their collection.
    """

    files: int
    bytes: int
    moved: int
    documents: Mapping[str, int]


async def copy_to_bucket(data: Path, bucket: Bucket, *, verify: bool = False) -> Move:
    """Copy a desk to an empty bucket, or complete a copy. With `verify`, all is read back and compared.

    Raises:
        ConfigurationError: the folder has no desk, or the bucket is not empty or has no conditional writes.
        BusyError: the desk was changed meanwhile.
        StoreError: the bucket can't be read or written, or an object differs from its file.
    """
    if not tenants(data):
        raise ConfigurationError(f"There is no desk in {data} to copy. Run refdesk-admin ingest first.")
    there = {name: size for name, (size, _) in object_facts(bucket).items()}
    _claim(data, bucket, there)
    unclean = await _unclean(data)
    files, moved = await to_thread.run_sync(_send_all, data, bucket, there, unclean)
    if verify:
        await to_thread.run_sync(_compare, data, bucket, files)
    return Move(len(files), sum(files.values()), moved, await _documents(data))


def _claim(data: Path, bucket: Bucket, there: Collection[str]) -> None:
    """Mark the bucket as the target of a copy from this desk.

    Raises:
        ConfigurationError: it holds something else, or has no conditional writes.
    """
    desk = hashlib.sha256(b"refdesk copy\0" + read_key(data)).hexdigest().encode()
    if any(not name.startswith(PROBES) for name in there):
        if COPYING not in there or bucket.read_now(COPYING)[0] != desk:
            raise ConfigurationError(
                f"{bucket} is not empty, and holds no unfinished copy of this desk. Nothing was copied. Name "
                "an empty bucket or prefix: --to s3://bucket/prefix."
            )
        return
    check_fit(bucket)
    if not put_new(bucket, COPYING, desk):
        raise BusyError(f"Another copy to {bucket} has just begun.")


async def _unclean(data: Path) -> list[str]:
    """The names of the locks of collections in which a killed writer may have left something."""
    return [
        f"{collection.tenant}.{collection.name}"
        for tenant in tenants(data)
        for collection in await DeskReader(data, timeout_seconds=WAIT_SECONDS).collections(tenant)
        if not collection.attached and not is_swept(data, collection)
    ]


def _send_all(
    data: Path, bucket: Bucket, there: Mapping[str, int], unclean: Collection[str]
) -> tuple[dict[str, int], int]:
    """Send what the bucket lacks. Returns the sizes of all files by name, and how many were sent."""

    def send(name: str) -> None:
        try:
            with (data / name).open("rb") as file:
                put(bucket, name, file if _is_row_file(name) else file.read())
        except FileNotFoundError as error:
            raise BusyError(CHANGED.format(data)) from error
        except OSError as error:
            raise StoreError(f"{data / name} can't be read: {error.strerror}.") from error

    files, moved = _files(data), 0
    # With tenants there, only the last step was missing, and somebody may have written to the bucket since.
    if not any(name.startswith(TENANTS) for name in there):
        delete(bucket, there.keys() - files.keys() - {COPYING})  # copied earlier, and gone from the folder
        moved = _move(files, there, send)
        for lock in unclean:
            put(bucket, f"{LEASES}/{lock}/{1:08d}", ENDED)
        if _files(data) != files:
            raise BusyError(CHANGED.format(data))
    moved += _each([name for name in files if name.startswith(TENANTS)], send)
    delete(bucket, [COPYING])
    return files, moved


def _files(data: Path) -> dict[str, int]:
    """The sizes of the files of a desk by name; of each table, those that its newest version may need."""
    sizes = {}
    for part in PARTS:
        for file in [data / part, *(data / part).rglob("*")]:
            if file.is_file() and not file.name.startswith("."):
                with suppress(FileNotFoundError):  # dropped with an old version, just now
                    sizes[file.relative_to(data).as_posix()] = file.stat().st_size
    return _of_newest_versions(sizes)


def _of_newest_versions(sizes: Mapping[str, int]) -> dict[str, int]:
    newest: dict[str, str] = {}
    for name in filter(_is_manifest, sizes):
        table = name.partition("/_versions/")[0]
        newest[table] = min(name, newest.get(table, name))  # names of versions count down
    return {name: size for name, size in sizes.items() if not _is_version(name) or name in newest.values()}


def _is_version(name: str) -> bool:
    """Whether it is in the folder of a table's versions, which also has a hint at the newest one."""
    return "/_versions/" in name


def _is_manifest(name: str) -> bool:
    return _is_version(name) and name.endswith(".manifest")


def _is_row_file(name: str) -> bool:
    """Whether it is a file of a table's rows: with a unique name, and never changed."""
    return name.startswith("tables/") and not _is_version(name)


def _move(files: Mapping[str, int], there: Mapping[str, int], work: Callable[[str], None]) -> int:
    """Move all missing files except the list of tenants. Returns their number."""
    return sum(
        _each([name for name in group if not (_is_row_file(name) and there.get(name) == files[name])], work)
        for group in _in_order(files)
    )


def _in_order(names: Collection[str]) -> Iterator[list[str]]:
    """The files except the list of tenants, in groups to move in order; access records come first."""
    manifests, rows = [*filter(_is_manifest, names)], [*filter(_is_row_file, names)]
    # Rows before the manifest that names them, and the catalog, which names tables, at the end.
    yield [name for name in names if name in {KEY, KEYS}]
    yield [name for name in rows if name.startswith(ACCESS_TABLES)]
    yield [name for name in manifests if name.startswith(ACCESS_TABLES)]
    yield [name for name in rows if not name.startswith(ACCESS_TABLES)]
    yield [name for name in manifests if not name.startswith((ACCESS_TABLES, CATALOG))]
    yield [name for name in names if name.startswith("runs/")]
    yield [name for name in manifests if name.startswith(CATALOG)]


def _each(names: Collection[str], work: Callable[[str], None]) -> int:
    with ThreadPoolExecutor(MOVERS) as threads:
        try:
            for _ in threads.map(work, names):
                pass
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return len(names)


def _compare(data: Path, bucket: Bucket, names: Collection[str]) -> None:
    """Raise StoreError if an object isn't the same as its file."""

    def compare(name: str) -> None:
        with (data / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest_of(bucket, name):
                raise StoreError(f"{bucket}/{name} isn't the same as {data / name}. Move the desk again.")

    _each(names, compare)


async def fetch_from_bucket(bucket: Bucket, data: Path, *, verify: bool = False) -> Move:
    """Fetch a desk into an empty data folder, or complete a fetch. With `verify`, everything is read twice.

    Raises:
        ConfigurationError: the folder holds a desk or something else, or the bucket holds no desk.
        BusyError: somebody wrote to the bucket meanwhile, or works in the folder.
        StoreError: the bucket can't be read, or the disk is full.
    """
    _check_room(data)
    prepare(data, fetches=True)
    with locked(data, "catalog", seconds=WAIT_SECONDS):
        _check_room(data)
        with writable(f"The data folder {data} can't be written"):
            files, moved = await to_thread.run_sync(_fetch_all, bucket, data)
        if verify:
            await to_thread.run_sync(_compare, data, bucket, files)
    return Move(len(files), sum(files.values()), moved, await _documents(data))


def _check_room(data: Path) -> None:
    if not (data / FETCHING).exists() and _files(data):
        raise ConfigurationError(f"There is a desk in {data} already. Name an empty folder with --data.")
    if data.exists() and not (data / "locks").exists() and any(data.iterdir()):
        raise ConfigurationError(data_folder_problem(data) or f"{data} is not empty.")


def _fetch_all(bucket: Bucket, data: Path) -> tuple[dict[str, int], int]:
    """Fetch what the folder lacks. Returns the sizes of all files by name, and how many were fetched."""

    def fetch_one(name: str) -> None:
        file = data / name
        make_private(file.parent)
        file.touch(0o600)
        with file.open("wb") as opened:
            opened.writelines(fetch(bucket, name))

    facts = object_facts(bucket)
    if COPYING in facts or KEY not in facts:
        raise ConfigurationError(f"There is no complete desk in {bucket} to fetch. Nothing was written.")
    files, there = _of_desk(facts), _files(data)
    write_whole(data / FETCHING, b"")
    for name in there.keys() - files.keys():  # of the bucket as it was before
        (data / name).unlink()
    moved = _move(files, there, fetch_one)
    now = object_facts(bucket)
    if _of_desk(now) != files or any(now[name] != facts[name] for name in files):
        raise BusyError(CHANGED.format(bucket))
    sync_to_disk(data, 0.0)
    moved += _each([name for name in files if name.startswith(TENANTS)], fetch_one)
    sync_to_disk(data / "tenants", 0.0)
    (data / FETCHING).unlink()
    return files, moved


def _of_desk(facts: Mapping[str, tuple[int, str | None]]) -> dict[str, int]:
    sizes = {name: size for name, (size, _) in facts.items() if name.partition("/")[0] in PARTS}
    return _of_newest_versions(sizes)


async def _documents(data: Path) -> dict[str, int]:
    reader = DeskReader(data, timeout_seconds=WAIT_SECONDS)
    return {
        f"{tenant}/{collection.name}": await (await reader.open(collection)).source_count()
        for tenant in tenants(data)
        for collection in await reader.collections(tenant)
        if not collection.attached
    }
