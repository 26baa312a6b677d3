"""The data folder: its tenants, their storages, its key, the ids derived from it, and its reserve.

The reserve is a file of a few MiB without content. On a full disk it is deleted to make room for a change
that revokes rights (`spending_reserve`). Without a complete reserve, no command may add documents or grant
rights, because revoking them might be impossible. What can't be written raises a `ConfigurationError`, on a
full disk a `StoreError` (`unwritable`).

A tenant can have its own storage: a folder or a bucket with a desk of this tenant alone. The file `owner` is
written first there and deleted last. It names the desk and the tenant (`rag.access.tenants.owner_of`), or
nobody while the tenant is being removed. So creating and removing can be repeated after a kill, and no other
tenant or desk gets the same storage under another address.

Ids of sources, and the pseudonyms of purged sources, are keyed hashes of a URI. Without the key nobody can
compute the id of a document from a guessed path.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path

from rag.access.tenants import OWNER, owner_in, owner_of
from rag.corpus import AccessRecord, Collection
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.home import (
    SET_PATH,
    Bucket,
    Home,
    desk_around,
    for_owner,
    give,
    local_folder,
    overview_file,
    unfinished_copy,
)
from rag.store.read.connection import database_folder
from rag.store.write.bucket_objects import check_fit, delete, object_facts, put, put_new
from rag.uris import TAG_CHARS

RESERVE_BYTES = 4 << 20  # keys and access records need some KiB, a rewritten source more
RESERVE_STEP = 64 << 10  # bytes; small, so that the reserve can take the last free space of a disk
FETCHING = "fetching"
"""The mark of an incompletely fetched desk (`rag.store.care.bucket_moves`)."""

ANOTHER = f"Let this user write there, or name another folder with {SET_PATH}."
FULL = (errno.ENOSPC, errno.EDQUOT)


def prepare(home: Home, *, fetches: bool = False) -> None:
    """Create the folder with its reserve, if it doesn't exist; only its owner may access it.

    For a desk in a bucket, that is the folder of this machine. Only a command that `fetches` may change an
    incompletely fetched desk.

    Raises:
        ConfigurationError: it can't be created, or the fetch of its desk or the copy to it was interrupted.
        StoreError: the disk has no room for the reserve, or the bucket's store doesn't answer.
    """
    data = local_folder(home)
    if isinstance(home, Bucket) and (problem := unfinished_copy(home)):
        raise ConfigurationError(problem)
    if not fetches and (data / FETCHING).exists():
        raise ConfigurationError(
            f"The desk in {data} is not complete: fetching it was interrupted. Run refdesk-admin storage "
            "fetch again."
        )
    with writable(f"The data folder {data} can't be created", ANOTHER):
        desk = () if isinstance(home, Bucket) else (data / "tenants", database_folder(data))
        for folder in (data, data / "locks", *desk):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writable(f"The data folder's reserve {reserve_file(data)} can't be created"):
        _make_reserve(reserve_file(data))


def make_private(folder: Path) -> None:
    """Create a folder and those above it, if they don't exist, so that only their owner may access them.

    `Path.mkdir` applies its mode to the last folder only.

    Raises:
        OSError: it can't be created.
    """
    if not folder.is_dir():
        if folder.parent != folder:
            make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def reserve_file(data: Path) -> Path:
    """The file of the reserve."""
    return data / "reserve"


def _make_reserve(file: Path) -> None:
    """Create or complete the reserve, as large as free space allows.

    Raises:
        OSError: the disk is full, or the folder can't be written.
    """
    if file.exists() and _allocated_bytes(file) >= RESERVE_BYTES:
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        for start in range(0, RESERVE_BYTES, RESERVE_STEP):
            _allocate(descriptor, start)
    finally:
        os.close(descriptor)


def _allocated_bytes(file: Path) -> int:
    """The bytes that a file takes on the disk: a copied reserve may be sparse."""
    status = file.stat()
    blocks: int | None = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else blocks * 512  # as POSIX counts them


def _allocate(descriptor: int, start: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, RESERVE_STEP)
        return
    os.lseek(descriptor, start, os.SEEK_SET)
    if os.write(descriptor, secrets.token_bytes(RESERVE_STEP)) < RESERVE_STEP:  # zeros would be compressed
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def spending_reserve(home: Home) -> Iterator[AbstractContextManager[None]]:
    """Attempts at a small write that must succeed on a full disk: `for attempt in …: with attempt: …`.

    If the first attempt fails because the disk is full, the reserve is deleted for a second one, and created
    again afterwards. The write must be idempotent. Other errors are raised, as is any of the second attempt.
    """
    again, data = False, local_folder(home)

    @contextmanager
    def first() -> Iterator[None]:
        nonlocal again
        try:
            yield
        except (OSError, RefdeskError) as error:
            if not is_full(error):
                raise
            again = True
            with suppress(OSError):  # then the second attempt fails with the reason
                reserve_file(data).unlink(missing_ok=True)

    @contextmanager
    def second() -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(OSError):  # `prepare` completes it later
                _make_reserve(reserve_file(data))

    yield first()
    if again:
        yield second()


def is_full(error: BaseException | None) -> bool:
    """Whether the cause is a full disk or an exhausted quota. Only the text of the engine's error says so."""
    while error:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(os.strerror(code) in str(error) for code in FULL):
            return True
        error = error.__cause__
    return False


def unwritable(problem: str, error: OSError, remedy: str = "") -> RefdeskError:
    """The error to raise if a `problem` has this cause. `remedy` is what to do, unless the disk is full."""
    if error.errno in FULL:
        return StoreError(f"{problem}: {error.strerror}. Free some disk space and try again.")
    return ConfigurationError(f"{problem}: {error.strerror}. {remedy}".rstrip())


@contextmanager
def writable(problem: str, remedy: str = "") -> Iterator[None]:
    """Raise the error of `unwritable` if the block fails."""
    try:
        yield
    except OSError as error:
        raise unwritable(problem, error, remedy) from error


def spool_folder(home: Home, tenant: str, name: str) -> Path:
    """The folder for copies of documents during a run on this collection; see `rag.ingest.containers`."""
    spools = local_folder(home) / "spool"
    if isinstance(home, Bucket):  # one per process: runs on a bucket share no file locks
        spools = local_folder(home) / "spools" / hashlib.sha256(home.uri.encode()).hexdigest()[:16]
    return spools / f"{tenant}.{name}"


def empty_spool(home: Home, tenant: str, name: str) -> None:
    """Delete what can be deleted of a collection's spool; the caller holds its lock."""
    _remove(spool_folder(home, tenant, name))


def _remove(folder: Path) -> None:
    """Delete as much of a folder as possible, and its parent if that is empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def uploads_folder(data: Path) -> Path:
    """The folder of the console's uploads, by tenant and collection."""
    return data / "uploads"


def judged_folder(data: Path, tenant: str) -> Path:
    """The folder of the judged questions that the console keeps for a tenant."""
    return data / "judged" / tenant


def forget_console(data: Path, tenant: str) -> None:
    """Remove a tenant's uploads and judged questions, so that a later tenant of this name can't see them."""
    for folder in (uploads_folder(data) / tenant, judged_folder(data, tenant)):
        shutil.rmtree(folder, ignore_errors=True)


def origins_folder(home: Home, tenant: str, name: str) -> Path:
    """The folder for the state of a collection's origins, by which they fetch only changes."""
    return local_folder(home) / "origins" / f"{tenant}.{name}"


def forget_origins(home: Home, tenant: str, name: str) -> None:
    """Remove the origins' state, which names removed documents; the next run fetches everything."""
    _remove(origins_folder(home, tenant, name))


def note_tenant(data: Home, tenant: str, storage: str = "") -> None:
    """Create a tenant if it doesn't exist; `storage` is the address of its own storage, if any."""
    _create(data, f"tenants/{tenant}", storage.encode())


def _create(home: Home, name: str, content: bytes) -> None:
    """Write a file of the desk, unless it exists."""
    if isinstance(home, Bucket):
        put_new(home, name, content)
    elif not (home / name).exists():
        write_whole(home / name, content)


def write(home: Home, name: str, content: bytes) -> None:
    """Write a file of the desk in one step, over any earlier one; its folder exists."""
    if isinstance(home, Bucket):
        put(home, name, content)
    else:
        write_whole(home / name, content)


def remove(home: Home, *names: str) -> None:
    """Delete these files of the desk if they exist."""
    if isinstance(home, Bucket):
        delete(home, names)
        return
    for name in names:
        (home / name).unlink(missing_ok=True)


def forget_tenant(data: Home, tenant: str) -> None:
    """Delete a tenant without collections, and the remaining files about its documents."""
    if not isinstance(data, Bucket):
        overview_file(data, tenant).unlink(missing_ok=True)
    remove(data, f"tenants/{tenant}")


def claim_storage(data: Home, tenant: str, storage: Home) -> None:
    """Make a desk for a tenant of the desk `data` in an empty folder or bucket, or complete it.

    Raises:
        ConfigurationError: it holds something else, lies in another desk or contains one, or is a folder
            while the desk is in a bucket.
        StoreError: it can't be read or written.
    """
    _check_apart(data, storage)
    owner, present = owner_of(data, tenant), owner_in(storage)
    if present == b"":  # left by a killed removal
        _delete_desk(storage)
    elif present is not None and present != owner:
        raise ConfigurationError(
            f"{storage} belongs to another tenant, or to another desk. Name another storage."
        )
    elif present is None:
        if _has_something(storage):
            raise ConfigurationError(f"{storage} is not empty. Name an empty or new one.")
        if isinstance(storage, Bucket):
            check_fit(storage)
    with for_owner(local_folder(data), local_folder(storage)):
        if present != owner:  # otherwise a killed command has written it, and the rest is completed
            _write_owner(storage, owner, is_new=present is None)
        prepare(storage)
        note_tenant(storage, tenant)


def is_given_up(storage: Home) -> bool:
    """Whether a removal emptied the storage, and was killed before its end."""
    return owner_in(storage) == b""


def give_up(storage: Home) -> None:
    """Delete the desk of a tenant without collections, except for a note that nobody owns it."""
    _write_owner(storage, b"", is_new=False)
    _delete_desk(storage)


def forget_owner(storage: Home) -> None:
    """Delete the note of `give_up`, and the folder if it is empty then."""
    remove(storage, OWNER)
    if not (isinstance(storage, Bucket) or _has_something(storage)):  # others may have put files there
        storage.rmdir()


def _check_apart(data: Home, storage: Home) -> None:
    if isinstance(data, Bucket) and not isinstance(storage, Bucket):
        raise ConfigurationError(
            f"The desk is in {data}, whose servers may run on other machines, and {storage} is a folder of "
            "this machine. Name a bucket: --storage s3://bucket/tenant."
        )
    outer = _outer_bucket(storage, data) if isinstance(storage, Bucket) else _outer_folder(storage, data)
    if outer:
        raise ConfigurationError(
            f"{outer} is a desk, and {storage} is inside it or contains it. Name another storage."
        )


def _outer_folder(storage: Path, data: Home) -> str:
    """The desk that a folder is in; also `data` if that is in the folder."""
    folder, common = storage.resolve(), local_folder(data).resolve()
    if common.is_relative_to(folder) or folder.is_relative_to(common):
        return str(common)
    return str(desk_around(folder) or "")


def _outer_bucket(storage: Bucket, data: Home) -> str:
    """The same for a bucket, as far as the credentials allow."""
    if isinstance(data, Bucket):
        common, inner = f"{data}/", f"{storage}/"
        if common.startswith(inner) or inner.startswith(common):
            return data.uri
    scheme, _, path = storage.uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        outer = Bucket(f"{scheme}://{path}", storage.options)
        try:
            # A folder of this name alone may be anybody's.
            if outer.names("tenants") and (outer.read("key") or outer.read(OWNER)):
                return outer.uri
        except StoreError:  # the credentials are for the inner prefix only
            continue
    return ""


def _has_something(storage: Home) -> bool:
    if isinstance(storage, Bucket):
        return bool(object_facts(storage))
    with writable(f"The storage {storage} can't be read"), suppress(FileNotFoundError):
        return any(storage.iterdir())
    return False


def _write_owner(storage: Home, owner: bytes, *, is_new: bool) -> None:
    conflict = ConfigurationError(f"Somebody else has just taken {storage}. Name another storage.")
    if isinstance(storage, Bucket):
        if not is_new:
            put(storage, OWNER, owner)
        elif not put_new(storage, OWNER, owner):
            raise conflict
        return
    with writable(f"The storage {storage} can't be created"):
        try:
            make_private(storage)
            if is_new:
                os.close(os.open(storage / OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            raise conflict from error
    write_whole(storage / OWNER, owner)


def _delete_desk(storage: Home) -> None:
    if isinstance(storage, Bucket):
        delete(storage, [name for name in object_facts(storage) if name != OWNER])
        return
    for entry in storage.iterdir():
        if entry.name != OWNER:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    flush_folder(storage)


def make_key(data: Home) -> None:
    """Create the key of the desk, 32 random bytes, if it has none. Source ids are derived from it."""
    _create(data, "key", secrets.token_bytes(32))


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically; only its owner may read it."""
    new = file.with_name(f".{file.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            give(descriptor, file.parent)  # before the rename: a server may read the file at once
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise unwritable(f"{file} can't be written", error) from error
    flush_folder(file.parent)


def flush(path: str | os.PathLike[str]) -> None:
    """Flush a file, or the entries of a folder, to the disk.

    Raises:
        OSError: it can't be opened, or the system can't flush it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder where the system can, so that a power failure restores no revoked key."""
    with suppress(OSError):
        flush(folder)


def read_key(data: Home) -> bytes:
    """The key of the desk.

    Raises:
        ConfigurationError: it can't be read.
        StoreError: the bucket can't be read.
    """
    if isinstance(data, Bucket):
        if (key := data.read("key")) is None:
            raise ConfigurationError(f"{data}/key is missing. Source ids are derived from it.")
        return key
    try:
        return (data / "key").read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The data folder's key {data / 'key'} can't be read ({error.strerror}). Source ids are derived "
            "from it. Restore it from a backup, or ingest into a new data folder."
        ) from error


PURGED = "purged:"


class SourceIds:
    """The ids of one collection's sources.

    An id stays with its document when that moves. The next document at the old URI gets another id.
    """

    def __init__(self, collection: Collection, key: bytes) -> None:
        self._collection = collection
        self._key = key
        self._by_uri: dict[str, str] = {}
        self._taken: set[str] = set()
        self._to_learn: Mapping[str, AccessRecord] = {}

    def learn(self, records: Mapping[str, AccessRecord]) -> None:
        """Note the ids in use, of present and removed sources, by the tenant's access records.

        They are read on the first use of an id: a run on known documents uses none.
        """
        self._to_learn = records

    def _learn(self) -> None:
        name = self._collection.name
        ours = [record for record in self._to_learn.values() if record.collection == name]
        ours.sort(key=lambda record: record.present)  # the present source of a URI wins
        self._by_uri |= {record.uri: record.id for record in ours}
        self._taken |= {record.id for record in ours}
        self._to_learn = {}

    def of(self, uri: str) -> str:
        """The id of the source at `uri`."""
        if self._to_learn:
            self._learn()
        purged = self.purged(uri)  # a purged document that comes back keeps its id, and so its access record
        if purged in self._by_uri:
            return self._by_uri[purged]
        if uri not in self._by_uri:
            # The first id of a URI may have moved away with its document.
            derived = (self._derived_id(uri, number) for number in count())
            self._by_uri[uri] = next(id_ for id_ in derived if id_ not in self._taken)
            self._taken.add(self._by_uri[uri])
        return self._by_uri[uri]

    def of_folder(self, uri: str) -> str:
        """The id of the record of a folder."""
        return self._derived_id(uri, -1)

    def purged(self, uri: str) -> str:
        """The pseudonym of a URI after a purge. With the key, the URI and its folder can be recognized."""
        folder, _, name = uri.rpartition("/")
        parts = [
            hashlib.blake2b(part.encode(), key=self._key, digest_size=16).hexdigest()
            for part in (folder, name)
        ]
        return PURGED + "/".join(parts)

    def _derived_id(self, uri: str, number: int) -> str:
        parts = [self._collection.tenant, self._collection.name, uri, *([number] if number else [])]
        digest = hashlib.blake2b(json.dumps(parts).encode(), key=self._key, digest_size=10).digest()
        return base64.b32encode(digest).decode().lower()


def tag_letters(tag: Collection, key: bytes) -> str:
    """The suffix of the ids in a tag. A later tag of this name gets another, because its texts differ."""
    parts = [tag.tenant, tag.name, tag.created_at.isoformat()]
    digest = hashlib.blake2b(json.dumps(parts).encode(), key=key, digest_size=TAG_CHARS * 5 // 8).digest()
    return base64.b32encode(digest).decode().lower()


def is_uri(former: str) -> bool:
    """Whether an entry of `AccessRecord.former` is a readable URI, not a digest or a purged URI."""
    return ":" in former and not former.startswith(PURGED)
