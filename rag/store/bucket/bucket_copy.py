"""Copies a desk from its data folder to a bucket, where servers read it. Repeat it after each change.

Servers read the bucket during the copy. So keys come first, then access records, and for each table its data
files before the manifests that name them; files that the folder no longer has are deleted last. The engine
never changes a data file, so each version in the bucket is complete. Each object is read back and compared.
`copied.json` notes the digests of all sent files. So a repeated copy sends only what differs, and refuses a
bucket that holds something else.

After a restore, two machines can have the same desk. So each copy takes a turn (`bucket_turns`), which only a
folder gets that has what the bucket holds, and goes on only while that is the last turn. It checks its turn
before each object that another copy could replace, and the store writes such an object only over the one that
this copy knew. So an earlier copy can't overwrite what a later one has sent.

A revoked right or key doesn't wait for a copy to end: `copy_rights` copies nothing else, and a running copy
sends rights and keys again between its files if they have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from anyio import to_thread

from rag.access.keys import KEYS
from rag.access.tenants import tenants
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import Bucket, Home
from rag.store.bucket.bucket_turns import TURNS, check_turn, take_turn, unfit_store
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder, engine_errors, table_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.bucket_objects import creates_once, delete, digest_of, object_facts, put, put_over
from rag.store.write.desk_folder import read_key
from rag.store.write.locks import locked

LEDGER = "copied.json"
SENDERS = 8  # at once
WAIT_SECONDS = 15
ACCESS_TABLES = schema.access_table("")  # what their names begin with


class _Note(NamedTuple):
    """What was sent of a file, and the tag that the store gave the object."""

    digest: str
    size: int
    tag: str | None


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The numbers of objects in the bucket, and of those sent and deleted; and the rows of each table."""

    objects: int
    bytes: int
    sent: int
    deleted: int
    rows: Mapping[str, int]


async def copy_to_bucket(data: Path, bucket: Bucket, *, replace: bool = False) -> CopyResult:
    """Copy a desk. During the copy its collections are locked; rights and keys can still be changed.

    Rights and keys are copied before these locks are taken, and again whenever they change. With `replace`,
    a copy of another folder is overwritten.

    Raises:
        ConfigurationError: the folder has no desk; or the bucket holds something else, has no conditional
            writes, or holds a later copy of another folder.
        BusyError: somebody writes to a collection; keys and rights were copied. Or another copy has begun.
        StoreError: the bucket can't be read or written, or its objects differ from what was sent.
    """
    names = _tenants(data)
    reader = DeskReader(data, timeout_seconds=WAIT_SECONDS)
    with ExitStack() as locks:
        target = locks.enter_context(_copying(data, bucket, replace=replace))
        await to_thread.run_sync(target.send_rights)
        try:
            for tenant in names:
                for collection in await reader.collections(tenant):
                    locks.enter_context(locked(data, f"{tenant}.{collection.name}", seconds=WAIT_SECONDS))
            locks.enter_context(locked(data, "catalog", seconds=WAIT_SECONDS))
        except BusyError as error:
            raise BusyError(f"{error} Keys and access records were copied; documents weren't.") from error
        versions = await _versions(data)
        copied = await to_thread.run_sync(_copy, target, list(versions))
        rows = await _rows(bucket, versions)
        if rows != await _rows(data, versions):
            raise StoreError(f"{bucket} has other rows than {data}. Run the same command again.")
    return CopyResult(**copied, rows=rows)


async def copy_rights(data: Path, bucket: Bucket) -> int:
    """Copy keys, tenants and access records without waiting for locks. Returns the number of sent objects.

    Raises:
        ConfigurationError, StoreError: as `copy_to_bucket`.
        BusyError: a copy of everything is running, which sends them itself.
    """
    _tenants(data)
    with _copying(data, bucket, replace=False) as target:
        await to_thread.run_sync(target.send_rights)
        return target.sent


def _tenants(data: Path) -> tuple[str, ...]:
    if names := tenants(data):
        return tuple(names)
    raise ConfigurationError(f"There is no desk in {data} to copy. Run refdesk-admin ingest first.")


@contextmanager
def _copying(data: Path, bucket: Bucket, *, replace: bool) -> Iterator[_Target]:
    """The bucket, claimed for one copy from this folder at a time."""
    with ExitStack() as lock:
        try:
            lock.enter_context(locked(data, "copy", seconds=0))
        except BusyError as error:
            raise BusyError(f"{error} It also brings the keys and rights that change meanwhile.") from error
        target = _Target(data, bucket)
        target.claim(replace=replace)
        yield target


def _tables(data: Path) -> list[str]:
    """All tables in the order of the copy: access records first, the catalog last."""
    names = (folder.stem for folder in database_folder(data).glob("*.lance"))
    return sorted(names, key=lambda name: (name == schema.COLLECTIONS, not _is_access(name), name))


def _is_access(table: str) -> bool:
    return table.startswith(ACCESS_TABLES)


async def _versions(data: Path) -> dict[str, int]:
    """The newest versions of all tables that are locked: all but the access records."""
    database = await connect(data)
    tables = [name for name in _tables(data) if not _is_access(name)]
    with engine_errors("opening tables"):
        return {name: await (await database.open_table(name)).version() for name in tables}


async def _rows(home: Home, versions: Mapping[str, int]) -> dict[str, int]:
    """The rows of these versions of tables."""
    database, counts = await connect(home), {}
    with engine_errors("counting rows"):
        for name, version in versions.items():
            table = await database.open_table(name)
            await table.checkout(version)
            counts[name] = await table.count_rows()
    return counts


def _copy(target: _Target, tables: Iterable[str]) -> dict[str, int]:
    steps = list(_document_steps(target.data, tables))
    for step in steps:
        for begin in range(0, len(step), SENDERS):
            target.send_rights()
            target.send(step[begin : begin + SENDERS])
        target.note()
    expected = target.send_rights().union(*steps)
    stale = target.present.keys() - expected - {LEDGER}
    target.delete(stale)
    target.check(expected)
    return {
        "objects": len(expected),
        "bytes": sum(target.notes[name].size for name in expected),
        "sent": target.sent,
        "deleted": len(stale),
    }


def _rights_steps(data: Path) -> Iterator[list[str]]:
    """The files with keys, tenants and access records, in steps that are sent one after the other."""
    files = [data / KEYS, data / "key", *_below(data / "tenants")]
    yield _names(data, (file for file in files if file.exists()))
    yield from _table_steps(data, filter(_is_access, _tables(data)))


def _document_steps(data: Path, tables: Iterable[str]) -> Iterator[list[str]]:
    """All other files, likewise."""
    yield from _table_steps(data, tables)
    yield _names(data, (file for file in _below(data / "runs") if file.suffix == ".json"))


def _table_steps(data: Path, tables: Iterable[str]) -> Iterator[list[str]]:
    for table in tables:
        folder = table_folder(data, table)
        versions = _below(
            folder / "_versions"
        )  # listed first, so that the files that they name exist already
        yield _names(data, (file for file in _below(folder) if file.parent.name != "_versions"))
        yield _names(data, versions)


def _names(data: Path, files: Iterable[Path]) -> list[str]:
    return [file.relative_to(data).as_posix() for file in files]


def _below(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))


def desk_objects(bucket: Bucket) -> dict[str, tuple[int, str | None]]:
    """The objects in a bucket except its turns: sizes and tags by name."""
    objects = object_facts(bucket).items()
    return {name: facts for name, facts in objects if not name.startswith(f"{TURNS}/")}


def _holds_rows(name: str) -> bool:
    """Whether it is a data file of a table. Its name is unique, so every copy sends the same content."""
    return name.startswith("tables/") and "/_versions/" not in name


@dataclass(slots=True)
class _Target:
    """The bucket of a copy: the objects in it, and what the ledger notes of them."""

    data: Path
    bucket: Bucket
    desk: str = ""
    notes: dict[str, _Note] = field(default_factory=dict)
    present: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    rights: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    noted: bytes | None = None
    sent: int = 0
    turn: int = 0

    def claim(self, *, replace: bool) -> None:
        """Make sure that the bucket is empty, or holds an earlier copy of this desk, and take a turn.

        Raises:
            ConfigurationError: it holds something else, or a later copy of another folder and `replace` is
                false. Or it has no conditional writes.
            BusyError: another copy began in the same moment.
        """
        self.desk = hashlib.sha256(b"refdesk copy\0" + read_key(self.data)).hexdigest()
        self.present = desk_objects(self.bucket)
        content = self.noted = self.bucket.read(LEDGER)
        elsewhere = "Name an empty bucket or prefix: --to s3://bucket/prefix."
        if content is None:
            if self.present:
                raise ConfigurationError(
                    f"{self.bucket} is not empty, and holds no copy of this desk. Nothing was copied. "
                    f"{elsewhere}"
                )
            if not creates_once(self.bucket):
                raise unfit_store(self.bucket)
            self._take_turn(replace=replace)
            self.note()
            return
        try:
            noted = json.loads(content)
            self.notes = {name: _Note(*note) for name, note in noted["objects"].items()}
            owner = noted["desk"]
        except (ValueError, KeyError, TypeError, AttributeError):
            owner = ""
        if owner != self.desk:
            raise ConfigurationError(
                f"{self.bucket} holds a copy of another desk. Nothing was copied. {elsewhere}"
            )
        self._take_turn(replace=replace)

    def _take_turn(self, *, replace: bool) -> None:
        self.turn = take_turn(self.bucket, self.data, replace=replace)
        self.present = desk_objects(self.bucket)

    def send_rights(self) -> set[str]:
        """Send keys, tenants and access records if they have changed. Returns the names of their files."""
        steps = list(_rights_steps(self.data))
        names = {name for step in steps for name in step}
        rights = {name: (stat.st_mtime_ns, stat.st_size) for name in names if (stat := self._stat(name))}
        if rights == self.rights:
            return names
        if not (self.data / KEYS).exists():
            self.delete([KEYS])
        for step in steps:
            self.send(step)
        self.note()
        self.rights = rights
        return names

    def _stat(self, name: str) -> os.stat_result | None:
        with suppress(FileNotFoundError):
            return (self.data / name).stat()
        return None

    def send(self, names: Sequence[str]) -> None:
        """Send these files, except those that the bucket already has."""
        check_turn(self.bucket, self.turn)
        with ThreadPoolExecutor(SENDERS) as threads:
            notes = dict(zip(names, threads.map(self._send, names), strict=True))
        self.sent += sum(self.notes.get(name) is not note for name, note in notes.items())
        self.notes |= notes
        self.present |= {name: (note.size, note.tag) for name, note in notes.items()}

    def _send(self, name: str) -> _Note:
        try:
            with (self.data / name).open("rb") as file:
                digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
                note = self.notes.get(name)
                if note and note[:2] == (digest, size) and self.present.get(name) == (size, note.tag):
                    return note
                file.seek(0)
                tag = put(self.bucket, name, file) if _holds_rows(name) else self._put(name, file.read())
        except OSError as error:
            raise BusyError(f"{self.data / name} changed meanwhile. Run the same command again.") from error
        if digest_of(self.bucket, name) != digest:
            raise StoreError(f"{self.bucket}/{name} isn't what was sent. Run the same command again.")
        return _Note(digest, size, tag)

    def _put(self, name: str, content: bytes) -> str | None:
        """Write an object that other copies write, too, but not over what they have written."""
        check_turn(self.bucket, self.turn)
        tag = put_over(self.bucket, name, content, self.present.get(name, (0, None))[1])
        if tag is None:
            check_turn(self.bucket, self.turn)
            tag = put(self.bucket, name, content)  # the store can't compare tags, as Ceph 16 can't
        return tag

    def delete(self, names: Collection[str]) -> None:
        """Delete objects that the folder no longer has."""
        check_turn(self.bucket, self.turn)
        delete(self.bucket, [name for name in names if name in self.present])
        for name in list(names):
            self.notes.pop(name, None)
            self.present.pop(name, None)
        if names:
            self.note()

    def check(self, expected: Collection[str]) -> None:
        """Compare the objects in the bucket with the `expected` ones.

        Raises:
            StoreError: an object is missing, differs, or is too many.
        """
        objects, notes = desk_objects(self.bucket), self.notes
        wrong = [name for name in expected if objects.get(name) != (notes[name].size, notes[name].tag)]
        if wrong or objects.keys() - expected - {LEDGER}:
            raise StoreError(
                f"{self.bucket} holds other objects than were sent. Does anybody else write to it? Run the "
                "same command again."
            )

    def note(self) -> None:
        """Write down what was sent, if it isn't written there."""
        content = json.dumps({"desk": self.desk, "objects": self.notes}).encode()
        if content != self.noted:
            check_turn(self.bucket, self.turn)
            put(self.bucket, LEDGER, content)
            self.noted = content
