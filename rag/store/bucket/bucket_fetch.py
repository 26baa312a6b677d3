"""Fetches a desk from a bucket into an empty data folder, so that documents can be ingested there.

For a machine that replaces a lost one, or that keeps nothing between two runs. The result is one state of the
bucket: it is listed before and after, and a copy in between is an error.

Objects go to `fetching`, a folder inside the data folder, and are moved into place when all have arrived:
access records before what they protect, the catalog after the tables that it names, the key last. While
`fetching` exists no key is made, so after a kill nothing works but another fetch, which reuses the objects.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from rag.access.keys import KEYS
from rag.access.tenants import tenants
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import Bucket, data_folder_problem
from rag.store.bucket.bucket_copy import ACCESS_TABLES, LEDGER, SENDERS, desk_objects
from rag.store.bucket.bucket_turns import last_turn, note_fetched, token_of
from rag.store.read import schema
from rag.store.read.desk_reader import DeskReader
from rag.store.write.bucket_objects import fetch
from rag.store.write.desk_folder import FETCHING, flush_folder, prepare, unwritable
from rag.store.write.locks import locked

KEY = "key"
PARTS = ("tenants", KEYS, "tables", "runs", KEY)
WAIT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Fetched:
    """The number of fetched objects, and of the documents of each collection, by tenant and name."""

    objects: int
    bytes: int
    documents: Mapping[str, int]


async def fetch_from_bucket(bucket: Bucket, data: Path) -> Fetched:
    """Fetch a desk. From then on, this folder may be copied to the bucket.

    Raises:
        ConfigurationError: the folder holds a desk or something else, or the bucket holds no desk.
        BusyError: somebody copied to the bucket meanwhile, or works in the folder.
        StoreError: the bucket can't be read, an object differs from what was copied, or the disk is full.
    """
    _check_room(data)
    prepare(data)
    with locked(data, "catalog", seconds=WAIT_SECONDS):
        _check_room(data)
        sizes = await to_thread.run_sync(_fetch_all, bucket, data)
        reader = DeskReader(data, timeout_seconds=WAIT_SECONDS)
        documents = {
            f"{tenant}/{collection.name}": await (await reader.open(collection)).source_count()
            for tenant in tenants(data)
            for collection in await reader.collections(tenant)
            if not collection.attached
        }
    return Fetched(len(sizes), sum(sizes.values()), documents)


def _check_room(data: Path) -> None:
    if (data / KEY).exists() or (not (data / FETCHING).exists() and any(map(_holds, _places(data)))):
        raise ConfigurationError(f"There is a desk in {data} already. Name an empty folder with --data.")
    if data.exists() and not (data / "locks").exists() and any(data.iterdir()):
        raise ConfigurationError(data_folder_problem(data) or f"{data} is not empty.")


def _places(data: Path) -> list[Path]:
    return [data / part for part in PARTS]


def _holds(path: Path) -> bool:
    return path.is_file() or any(file.is_file() for file in path.rglob("*"))


def _fetch_all(bucket: Bucket, data: Path) -> dict[str, int]:
    """Fetch all objects into their places. Returns their sizes by name."""
    turn = last_turn(bucket)
    token = token_of(bucket, turn)
    there = desk_objects(bucket)
    if KEY not in there:
        raise ConfigurationError(f"There is no desk in {bucket} to fetch. Nothing was written.")
    staged, names = data / FETCHING, [name for name in there if name.partition("/")[0] in PARTS]
    notes = _noted_digests(bucket)
    try:
        with ThreadPoolExecutor(SENDERS) as threads:
            for _ in threads.map(lambda name: _fetch(bucket, name, staged / name, notes.get(name)), names):
                pass
        if (last_turn(bucket), desk_objects(bucket)) != (turn, there):
            raise BusyError(f"Somebody copied to {bucket} meanwhile. Run the same command again.")
        for path in _places(data):  # left by a killed fetch
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        note_fetched(data, bucket, token)
        for name in sorted(names, key=_order):
            (data / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (staged / name).replace(data / name)
        for folder in {(data / name).parent for name in names}:
            flush_folder(folder)
        shutil.rmtree(staged)
    except OSError as error:
        raise unwritable(f"The data folder {data} can't be written", error) from error
    prepare(data)
    return {name: there[name][0] for name in names}


def _order(name: str) -> tuple[bool, bool, bool, str]:
    """Who may see what comes first, then the tables, their list, and the key."""
    table = name.removeprefix("tables/")
    return name == KEY, table.startswith(f"{schema.COLLECTIONS}."), not table.startswith(ACCESS_TABLES), name


def _noted_digests(bucket: Bucket) -> dict[str, str]:
    """The digests of what was sent, by name; none if nothing was noted."""
    try:
        noted = json.loads(bucket.read(LEDGER) or b"{}").get("objects", {})
        return {name: digest for name, (digest, *_) in noted.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise StoreError(f"{bucket}/{LEDGER} is damaged. Repeat the copy to the bucket.") from error


def _fetch(bucket: Bucket, name: str, file: Path, digest: str | None) -> None:
    if digest and file.is_file() and digest_of_file(file) == digest:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("wb") as opened:
        for part in fetch(bucket, name):
            opened.write(part)
        opened.flush()
        os.fsync(opened.fileno())
    if digest and digest_of_file(file) != digest:
        raise StoreError(
            f"{bucket}/{name} isn't what was copied there. If a copy to it is running, wait for its end; "
            "otherwise repeat the copy from the folder that it came from."
        )


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
