"""One writer at a time: the locks of a data folder, and the leases that replace them in a bucket.

The operating system frees a lock when its holder ends, even if it is killed. A second file names the holder,
for the error of a process that waits in vain. It is read only while the lock is held, and each holder
overwrites it, so the name of a killed process is never shown.

A lease is an object `leases/NAME/NUMBER`. Its holder creates the next number and writes it again every few
seconds (the heartbeat). Creating is conditional: only one process succeeds. A holder that ends well empties
the object. A process that finds no recent heartbeat takes the next number.

A suspended holder may wake up later and go on. Its lost lease can't stop it; a fence in the tables does. The
new holder commits a restore of the newest version to each table (`_fence`), and the engine refuses whatever
was begun before a restore: updates, upserts, deletions, indexes, compactions. So writers open their tables
after they got the lease, check it once more, and never move a table to a newer version (`connect` with
`writes`). Only appended rows can slip through, if all earlier versions were purged or the table was dropped
meanwhile. No row names them, so nobody sees them.
"""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from rag.errors import BusyError, ConfigurationError, StoreError
from rag.home import Bucket, Home
from rag.store.read.connection import connect, engine_errors, taken_over
from rag.store.write.bucket_objects import delete, entries_of, put, put_new, put_over, unfit_store
from rag.store.write.desk_folder import ANOTHER, writable

if TYPE_CHECKING:
    import lancedb

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def locked(data: Home, name: str, *, seconds: float, tries_store: bool = False) -> Iterator[Lease | None]:
    """Hold the lock of this name, waiting for it up to `seconds`. In a bucket it is a lease (`leased`).

    Raises:
        BusyError: another process holds it; the message says which one, and since when.
        ConfigurationError: the folder can't be written, or the object store isn't fit for it.
        StoreError: its disk is full, or the bucket can't be written.
    """
    if isinstance(data, Bucket):
        with leased(data, name, seconds=seconds, tries_store=tries_store) as lease:
            yield lease
        return
    lock = FileLock(_file(data, name, "lock"), timeout=seconds)
    with writable(f"The data folder {data} can't be written", ANOTHER):
        try:
            lock.acquire()
        except Timeout as error:  # a subclass of OSError, so it comes first
            raise BusyError(
                f"{_holder(data, name) or 'Another process'} is writing to {name!r} in {data}. "
                "Try again when it has finished."
            ) from error
    try:
        _note_holder(_file(data, name, "holder"))
        yield None
    finally:
        with suppress(OSError):
            _file(data, name, "holder").unlink(missing_ok=True)
        lock.release()


def held_locks(data: Path) -> set[str]:
    """The names of the locks that are held now.

    In a read-only folder locks can't be tried. There a lock counts as held if the file of its holder exists,
    so that files of a running command aren't taken for leftovers.
    """
    held = set[str]()
    for file in sorted((data / "locks").glob("*.lock")):
        try:
            with FileLock(file, timeout=0):
                pass
        except Timeout:
            held.add(file.stem)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise ConfigurationError(f"The lock {file} can't be read: {error.strerror}.") from error
            if _holder(data, file.stem):
                held.add(file.stem)
    return held


def _file(data: Path, name: str, kind: str) -> Path:
    return data / "locks" / f"{name}.{kind}"


def _this_process(place: str) -> str:
    """This process for the error of a waiting one: its command without arguments, and where it runs."""
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
    return f"{command} (process {os.getpid()}{place})"


def _note_holder(file: Path) -> None:
    """Name this process as the holder; on a full disk, name nobody rather than the previous holder."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    with suppress(OSError):
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(_this_process(f", since {since}"))


def _holder(data: Path, name: str) -> str:
    try:
        return _file(data, name, "holder").read_text("utf-8")
    except (OSError, ValueError):
        return ""


LEASES, CATALOG = "leases", "catalog"
LEASE_SECONDS = 15.0  # without a heartbeat, after which a lease is free
BEAT_SECONDS = LEASE_SECONDS / 5
LOOK_SECONDS = 0.5  # between two looks of a waiting process
SKEW_SECONDS = 20 * 60.0  # tolerated between clocks; S3 refuses requests of clients 15 minutes off
KEPT = 4  # objects of former numbers, so that a rival with an old listing can't create one again
ENDED = b"{}"
"""The content of a lease whose holder ended with an error: free, but its work may have left something."""


@dataclass(slots=True)
class Lease:
    """A lease that this process holds.

    `inherited` means that a former holder didn't end well: it may wake up, or have left something. That is
    passed on to later holders until one calls `settle`.
    """

    bucket: Bucket
    name: str
    number: int
    inherited: bool
    settled: bool = False
    written_at: tuple[float, float] = (-math.inf, -math.inf)

    def settle(self) -> None:
        """Note that no former holder can commit any more, and that its leftovers are gone."""
        self.settled = True

    def check(self) -> None:
        """Make sure that nobody has taken over the lease.

        Raises:
            BusyError: another process has taken it over.
        """
        if not self._is_certain(_clocks()) and _listed(self.bucket, self.name)[-1].number != self.number:
            raise taken_over()

    def replace(self, name: str, tag: str | None, content: bytes) -> None:
        """Write an object of the desk in place of the version with this `tag`; None for a new object.

        Raises:
            BusyError: somebody else has changed it.
            StoreError: the bucket can't be written.
        """
        if put_over(self.bucket, name, content, tag) if tag else put_new(self.bucket, name, content):
            return
        if self.bucket.read_now(name)[1] != tag:
            raise taken_over()
        self.check()
        put(self.bucket, name, content)  # the store can't compare tags, like Ceph 16

    def write(self, content: bytes) -> None:
        """Replace the content of the lease. Its number is this process's own, so nobody else writes it."""
        began = _clocks()
        with suppress(StoreError):  # if the store is unreachable, others take over, and the next commit fails
            put(self.bucket, _object(self.name, self.number), content)
            if self._is_certain(began):  # after one late heartbeat, the lease is always checked in the store
                self.written_at = began

    def _is_certain(self, now: tuple[float, float]) -> bool:
        """Whether nobody can have taken over: the last heartbeat is recent, and none before was late."""
        return max(at - then for at, then in zip(now, self.written_at, strict=True)) < LEASE_SECONDS / 2


@contextmanager
def leased(bucket: Bucket, name: str, *, seconds: float, tries_store: bool = False) -> Iterator[Lease]:
    """Hold the lease of this name, waiting up to `seconds` for it, or until a silent holder has lost it.

    The first lease of a name tests whether the store has conditional writes. With `tries_store`, any lease
    does, as for each ingestion: a desk can be moved to a store that lacks them. Raises as `locked`.
    """
    lease, over = _acquire(bucket, name, seconds, tries_store=tries_store), threading.Event()
    beating = threading.Thread(target=_beat, args=(lease, over), name=f"lease {name}", daemon=True)
    beating.start()
    content = ENDED
    try:
        yield lease
        lease.check()  # if another process has taken over, what this one did may have been refused
        content = ENDED if lease.inherited and not lease.settled else b""
    finally:
        over.set()
        beating.join()
        lease.write(content)


def _beat(lease: Lease, over: threading.Event) -> None:
    beats = 0
    while not over.wait(BEAT_SECONDS):
        beats += 1
        lease.write(_holder_json(beats))


@dataclass(frozen=True, slots=True)
class _Object:
    """A listed lease. `age` is the seconds from its last heartbeat, by the store's clock, to now, by ours."""

    number: int
    size: int
    tag: str | None
    age: float

    @property
    def is_free(self) -> bool:
        return self.size <= len(ENDED)


def _acquire(bucket: Bucket, name: str, seconds: float, *, tries_store: bool) -> Lease:
    began = since = time.monotonic()
    former: _Object | None = None
    is_alive = False
    while True:
        there, now = _listed(bucket, name), time.monotonic()
        last = there[-1] if there else None
        if last and former and last.tag != former.tag:  # a heartbeat, told without comparing any clocks
            is_alive, since = True, now
        former = last
        expired = now - since > LEASE_SECONDS or (last and last.age > LEASE_SECONDS + SKEW_SECONDS)
        if last is None or last.is_free or expired:
            if lease := _take(bucket, name, there, tries_store=tries_store or name == CATALOG):
                return lease
        elif is_alive and now - began > seconds:  # a silent holder is waited for: it may have been killed
            raise BusyError(
                f"{_holder_of(bucket, name, last)} is writing to {name!r} in {bucket}. Try again when it has "
                "finished."
            )
        time.sleep(LOOK_SECONDS)


def _holder_of(bucket: Bucket, name: str, listed: _Object) -> str:
    content, _ = bucket.read_now(_object(name, listed.number))
    try:
        return str(json.loads(content or b"")["holder"])
    except (ValueError, KeyError, TypeError):  # the holder has just ended
        return "Another process"


def _take(bucket: Bucket, name: str, there: list[_Object], *, tries_store: bool = False) -> Lease | None:
    """The lease with the next number; None if another process was faster."""
    number, began = there[-1].number + 1 if there else 1, _clocks()
    if not put_new(bucket, _object(name, number), _holder_json(0)):
        return None
    if (number == 1 or tries_store) and put_new(bucket, _object(name, number), b""):  # must fail
        delete(bucket, [_object(name, number)])
        raise unfit_store(bucket)
    if len(there) > 2 * KEPT:
        delete(bucket, [_object(name, former.number) for former in there[:-KEPT]])
    # A holder that ended well has emptied its object, so any content means that it may have left something.
    return Lease(bucket, name, number, bool(there and there[-1].size), written_at=began)


def _clocks() -> tuple[float, float]:
    """The time by two clocks: one stops while the machine sleeps, the other can be set."""
    return time.monotonic(), time.time()


def _listed(bucket: Bucket, name: str) -> list[_Object]:
    """The leases of this name, the newest last."""
    now = datetime.now(UTC)
    return sorted(
        (
            _Object(
                int(entry["path"].rpartition("/")[2]),
                entry["size"],
                entry["e_tag"],
                (now - entry["last_modified"]).total_seconds(),
            )
            for entry in entries_of(bucket, f"{LEASES}/{name}")
        ),
        key=lambda listed: listed.number,
    )


def _object(name: str, number: int) -> str:
    return f"{LEASES}/{name}/{number:08d}"


def _holder_json(beats: int) -> bytes:
    """The content of a lease that is held; `beats` makes each heartbeat another object."""
    return json.dumps({"holder": _this_process(f" on {socket.gethostname()}"), "beats": beats}).encode()


async def open_in_turn(
    data: Home, lease: Lease | None, *names: str, last: bool = True
) -> tuple[lancedb.AsyncConnection, list[lancedb.AsyncTable]]:
    """The database and tables, opened for the holder of their lock (`lease` is None in a data folder).

    With `last`, these are all tables of the lock, and a killed holder left nothing else to clean up.

    Raises:
        BusyError: another process has taken over the lease.
        StoreError: a table can't be opened.
    """
    with engine_errors("opening the tables"):
        database = await connect(data, writes=True)
        tables = [await database.open_table(name) for name in names]
        if lease is not None:
            for table in tables if lease.inherited else ():  # otherwise nobody is left to be fenced
                await _fence(table)
            lease.check()  # after opening: a later holder fences what these tables commit
            lease.settled |= last
    return database, tables


async def _fence(table: lancedb.AsyncTable) -> None:
    """Fence a table: commit a restore of its newest version, so that writes begun earlier are refused."""
    before = await table.version()
    await table.restore(before)
    if (now := await table.version()) > before + 1:
        await table.restore(now - 1)  # the former holder committed in between: bring that back
