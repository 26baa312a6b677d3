"""The home of a desk: its data folder, or a bucket of an object store.

The engine reads and writes tables in either. Other data of a desk is small: keys, tenants, the history of
runs, and the key that ids are derived from. In a bucket each is an object with the same name, which is read
and written as a whole by `obstore`. It is based on the engine's library for object stores, so both use the
same addresses, options and credentials. Credentials come from the environment only.

`data_folder_problem` says why a data folder isn't a desk: it is missing, empty, a file or another program's.
A wrong path must not look like a desk without documents. Servers check it at their start and whenever a
search finds no collections, so a folder that appears later is searched.

Root may read and write everything, so its commands work in the data folder of another user, such as a
service's. But what they make there belongs to root, and the service may not read it. So `for_owner` gives it
to the folder's owner. `refusal` says why a user may not read something, and what helps: nothing is damaged.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from rag.errors import ConfigurationError, StoreError
from rag.runtime import extra_needed

Home: TypeAlias = "Path | Bucket"

MANIFEST_CHARS = len("18446744073709551614.manifest")
ANSWER_SECONDS, CONNECT_SECONDS = 10, 3  # of one request
RETRIES, RETRY_SECONDS = 2, 5  # the library's defaults, 10 in three minutes, are too long for callers
PART_SECONDS = 120  # for a part of a large object: nobody waits for it, and connections can be slow
WORDS = {  # parts of an error's text, which says more than its type
    "NoSuchBucket": "there is no such bucket",
    "ContainerNotFound": "there is no such bucket",
    "ExpiredToken": "the credentials in the environment have expired",
    "RequestTimeTooSkewed": "the clock of this machine is too far off",
    **dict.fromkeys(
        ("SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthenticationFailed"),
        "the credentials in the environment are not valid",
    ),
    "AccessDenied": "the credentials in the environment don't allow it",
    "kind: Timeout": "the object store takes too long to answer",
    "kind: Connect": "the object store can't be reached at its address",
}
MISBEHAVES = "the object store doesn't answer as it should"
REASONS = {
    "FileNotFoundError": "there is no such bucket or object",
    "PermissionDeniedError": "the credentials in the environment don't allow it",
    "UnauthenticatedError": "the credentials in the environment are missing or not valid",
}


class _Seen(NamedTuple):
    """A cached object; None as content means that it didn't exist."""

    at: float
    content: bytes | None
    tag: str | None


class Bucket:
    """The part of a bucket below a prefix, `s3://bucket/prefix`. Its methods wait for the network.

    If the store doesn't answer, or refuses, they raise a `StoreError`.

    Objects are cached for up to `consistency_seconds` (the maximum staleness); 0 reads the store each time. A
    command reads each object once (`look_once`). If the store doesn't answer, reading fails and never returns
    older content.

    `local` is the data folder of this machine, for data that belongs to one machine (`local_folder`).
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str],
        *,
        consistency_seconds: float = 0,
        local: Path | None = None,
    ) -> None:
        self.uri = uri.rstrip("/")
        self.options = options
        self.consistency_seconds = consistency_seconds
        self.local = local
        self.connection: Any = None  # the engine's connection of writers (`rag.store.read.connection`)
        self._seen: dict[str, _Seen] = {}
        self._listed: dict[str, tuple[float, dict[str, int]]] = {}
        self._looks_once = False

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"Bucket({self.uri!r})"

    @property
    def engine_options(self) -> dict[str, str]:
        """The options for the engine, with the same limits of time."""
        return {
            **self.options,
            "timeout": f"{ANSWER_SECONDS}s",
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "client_max_retries": str(RETRIES),
            "client_retry_timeout": str(RETRY_SECONDS),
        }

    @cached_property
    def store(self) -> Any:  # noqa: ANN401 its package is only there with the extra
        """The library's store; `store_errors` translates its errors.

        Raises:
            ConfigurationError: the package is not installed, or an option is not valid.
        """
        return self._open_store(ANSWER_SECONDS)

    @cached_property
    def carrier(self) -> Any:  # noqa: ANN401 as above
        """The same store with a longer timeout, for parts of large objects."""
        return self._open_store(PART_SECONDS)

    def _open_store(self, seconds: int) -> Any:  # noqa: ANN401 as above
        try:
            from obstore.store import from_url  # noqa: PLC0415 few desks are in a bucket
        except ModuleNotFoundError as error:
            raise ConfigurationError(extra_needed("cloud", self.uri)) from error
        options: Any = {name: value for name, value in self.options.items() if name != "allow_http"}
        try:
            return from_url(
                self.uri,
                config=options,
                client_options={
                    "allow_http": self.options.get("allow_http", "").lower() == "true",
                    "timeout": f"{seconds}s",
                    "connect_timeout": f"{CONNECT_SECONDS}s",
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
            )
        except Exception as error:
            raise ConfigurationError(
                f"{self.uri} can't be opened: storage.uri or an option in storage.options is not valid."
            ) from error

    def read_now(self, name: str) -> tuple[bytes | None, str | None]:
        """The present content of an object, None if it doesn't exist, and its tag; uncached, for writers."""
        fresh = self._read(name, None, time.monotonic())
        return fresh.content, fresh.tag and fresh.tag.strip('"')

    def read(self, name: str) -> bytes | None:
        """The content of an object, None if it doesn't exist."""
        cached, now = self._seen.get(name), time.monotonic()
        if cached and self._is_fresh(cached.at, now):
            return cached.content
        folder, _, name_there = name.rpartition("/")
        listed = self._listed.get(folder)
        if listed and self._is_fresh(listed[0], now) and not (size := listed[1].get(name_there)):
            return None if size is None else b""  # as the records of most tenants: no request for each
        fresh = self._seen[name] = self._read(name, cached, now)
        return fresh.content

    def _read(self, name: str, cached: _Seen | None, now: float) -> _Seen:
        """The present object; `cached` if it hasn't changed."""
        tag = cached.tag if cached else None
        store = self.store
        from obstore.exceptions import NotModifiedError  # noqa: PLC0415 few desks are in a bucket

        with self.store_errors("read"):
            try:
                answer = store.get(name, options={"if_none_match": tag} if tag else None)
                return _Seen(now, bytes(answer.bytes()), answer.meta["e_tag"])
            except NotModifiedError:
                return _Seen(now, cached.content if cached else None, tag)
            except FileNotFoundError:
                return _Seen(now, None, None)

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the objects directly in a folder, sorted."""
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of these objects by name, sorted."""
        cached, now = self._listed.get(folder), time.monotonic()
        if cached and self._is_fresh(cached[0], now):
            return cached[1]
        with self.store_errors("read"):
            listed = self.store.list_with_delimiter(folder)
        sizes = {entry["path"].rpartition("/")[2]: entry["size"] for entry in listed["objects"]}
        self._listed[folder] = now, dict(sorted(sizes.items()))
        return self._listed[folder][1]

    def _is_fresh(self, at: float, now: float) -> bool:
        return self._looks_once or now - at < self.consistency_seconds

    def look_once(self) -> None:
        """Read each object only once from now on, until this process writes it: for a command."""
        self._seen.clear()
        self._listed.clear()
        self._looks_once = True

    def forget(self, name: str) -> None:
        """Drop an object from the cache, because this process has written it, or tried to."""
        self._seen.pop(name, None)
        self._listed.pop(name.rpartition("/")[0], None)

    @contextmanager
    def store_errors(self, done: Literal["read", "written"]) -> Iterator[None]:
        """Turn the library's errors into a `StoreError`. Their texts go only to the log."""
        try:
            yield
        except ConfigurationError:
            raise
        except Exception as error:
            raise StoreError(
                f"{self.uri} can't be {done}: {reason(error)}. Run refdesk-admin doctor storage."
            ) from error


def look_once(*homes: Home) -> None:
    """Read each object of these homes only once from now on, if they are buckets (`Bucket.look_once`)."""
    for home in homes:
        if isinstance(home, Bucket):
            home.look_once()


def local_folder(home: Home) -> Path:
    """The data folder of this machine, also for a bucket: caches, spools, models and the audit log."""
    if not isinstance(home, Bucket):
        return home
    assert home.local is not None  # noqa: S101 for the type checker: the settings name one
    return home.local


def reason(error: BaseException) -> str:
    """Why an object store failed, for the end of a sentence, by an error of the library or the engine."""
    usual = REASONS.get(type(error).__name__, MISBEHAVES)
    return next((wording for word, wording in WORDS.items() if word in str(error)), usual)


def read(home: Home, name: str) -> bytes | None:
    """The content of a file of a desk, None if it doesn't exist.

    Raises:
        OSError: a file can't be read.
        StoreError: an object can't be read. So do the functions below.
    """
    if isinstance(home, Bucket):
        return home.read(name)
    try:
        return (home / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def newest_manifest(table: Path) -> str:
    """The file name of the newest version of a table in a data folder: 2^64 - 1 minus its number, 20 digits.

    It needs no engine. The file appears atomically, by a link.

    Raises:
        OSError: the table has no manifest, or uses an older naming scheme of the engine.
    """
    manifests = [name for name in os.listdir(f"{table}/_versions") if name.endswith(".manifest")]  # noqa: PTH208 a third of the time
    # Names of one length sort by number, and these count down, so the first one is the newest.
    if not manifests or {*map(len, manifests)} != {MANIFEST_CHARS}:
        raise FileNotFoundError(f"{table} has no manifest of a newest version.")
    return min(manifests)


def newest_version(table: Path) -> list[object]:
    """The newest manifest and its file's attributes, because a recreated table counts versions from 1 again.

    Raises:
        OSError: as `newest_manifest`.
    """
    manifest = newest_manifest(table)
    status = (table / "_versions" / manifest).stat()
    return [manifest, status.st_ino, status.st_mtime_ns, status.st_size]


def overview_file(data: Path, tenant: str) -> Path:
    """The file of a tenant's overview, which servers read before they open the engine; it may not exist."""
    return data / "overviews" / f"{tenant}.json"


def names(home: Home, folder: str) -> tuple[str, ...]:
    """The names of the entries of a folder of a desk; none if the folder doesn't exist."""
    if isinstance(home, Bucket):
        return home.names(folder)
    try:
        return tuple(sorted(entry.name for entry in (home / folder).iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def sizes(home: Home, folder: str) -> dict[str, int]:
    """The sizes of the files in a folder of a desk by name, sorted; none if the folder doesn't exist."""
    if isinstance(home, Bucket):
        return home.sizes(folder)
    return {name: (home / folder / name).stat().st_size for name in names(home, folder)}


PARTS_OF_DESK = frozenset({"locks", "reserve", "tables", "tenants"})
"""The entries of each data folder from its creation on."""


def desk_around(path: Path) -> Path | None:
    """The data folder that a path is in, below it."""
    desks = (folder for folder in path.parents if all((folder / name).exists() for name in PARTS_OF_DESK))
    return next(desks, None)


def folders(home: Home, folder: str) -> tuple[str, ...]:
    """The names of the folders in a folder of a desk; none if it doesn't exist."""
    if not isinstance(home, Bucket):
        return names(home, folder)
    with home.store_errors("read"):
        listed = home.store.list_with_delimiter(folder)["common_prefixes"]
    return tuple(sorted(name.rstrip("/").rpartition("/")[2] for name in listed))


SET_PATH = "--data, REFDESK_DATA, or data in the settings"
INGEST = "refdesk-admin ingest PATH"


def data_folder_problem(data: Home) -> str | None:
    """What is wrong with a data folder and what to do, in sentences; None if refdesk has prepared it.

    Of a bucket: None if there is a desk in it.
    """
    if isinstance(data, Bucket):
        return _problem_of(data)
    try:
        os.listdir(data / "tenants")  # noqa: PTH208 only whether it can be read
    except (FileNotFoundError, NotADirectoryError):
        return _without_tenants(data)
    except OSError as error:
        return unreadable(data, error)
    return None


COPYING = "copying"  # the object that marks a bucket to which a desk is being copied


def unfinished_copy(bucket: Bucket) -> str | None:
    """What is wrong with a bucket whose copy has not ended: nothing but the copy may write there.

    The list of tenants comes last. A desk that were begun meanwhile would hide what has been copied.
    """
    if names(bucket, "tenants") or bucket.read_now(COPYING)[0] is None:
        return None
    return (
        f"The copy of a desk to {bucket} has not ended. Run it again where the desk is: "
        f"refdesk-admin storage copy --to {bucket}. If there is no such desk any more, name an empty bucket "
        "or prefix."
    )


def _problem_of(bucket: Bucket) -> str | None:
    try:
        if names(bucket, "tenants"):
            return None
        problem = unfinished_copy(bucket)
    except StoreError as error:
        return str(error)
    return problem or (
        f"There is no desk in {bucket}. If the address is wrong, name the right one with storage.uri. "
        f"Otherwise begin one ({INGEST}), or move one there: refdesk-admin storage copy --to {bucket}."
    )


def check_data_folder(data: Home) -> None:
    """Reject a data folder that refdesk hasn't prepared.

    Raises:
        ConfigurationError: the folder doesn't exist, or isn't one of refdesk's.
    """
    if problem := data_folder_problem(data):
        raise ConfigurationError(problem)


def _without_tenants(data: Path) -> str:
    try:
        names = os.listdir(data)  # noqa: PTH208 the same
    except FileNotFoundError:
        return f"There is no data folder {data}. {_remedy('to create it')}"
    except NotADirectoryError:
        return f"The data folder {data} is a file, or below one. Name a folder with {SET_PATH}."
    except OSError as error:
        return unreadable(data, error)
    if names:
        return f"{data} is not a data folder of refdesk. Name another folder with {SET_PATH}."
    return f"The data folder {data} is empty. {_remedy('to fill it')}"


def unreadable(data: Path, error: OSError) -> str:
    """What is wrong with a data folder that the system doesn't let this user read, and what helps."""
    remedy = "Make it readable for this user."
    if isinstance(error, PermissionError):
        remedy = refusal(data / "tenants", data)
    return f"The data folder {data} can't be read: {error.strerror}. {remedy} Or name another: {SET_PATH}."


def _remedy(purpose: str) -> str:
    return (
        f"If its drive is not mounted, mount it. If the path is wrong, name the right one with {SET_PATH}. "
        f"Otherwise run {INGEST} {purpose}."
    )


# Whose the files of a data folder are.

ROOT = 0
OTHERS = stat.S_IRWXG | stat.S_IRWXO
FOR_READERS = 0o022  # the umask whose files everybody may read who may enter their folder
CLOCK_STEP = 1.0  # seconds by which the time of a new file can lag behind the clock
PARTS = (
    *("tenants", "tables", "locks", "runs", "overviews", "origins"),
    *("reserve", "key", "keys.json", "owner", "audit.jsonl", "embeddings.sqlite"),
)
"""The entries of a data folder that all commands need. Others can be of the system, like `lost+found`."""


@contextmanager
def for_owner(data: Path, *others: Path) -> Iterator[None]:
    """As root, give what the block makes in a data folder of another user to that user, even if it fails.

    The same goes for `others`, folders that belong to the desk. If nobody else may enter the data folder, a
    server of that user can read what is new before the block ends.
    """
    owner = _owner_but_root(data)
    if owner is None:
        yield
        return
    began, umask = time.time() - CLOCK_STEP, os.umask(FOR_READERS)
    if data.stat().st_mode & OTHERS:  # others may enter, so the mode would let them read, too
        os.umask(umask)
    try:
        yield
    finally:
        os.umask(umask)
        for folder in (data, *others):
            with suppress(OSError):  # as in a container whose root may not enter it
                _give_new(folder, owner, began)


def give(descriptor: int, folder: Path) -> None:
    """As root, give a new file to the owner of its folder, who may need it before the command ends."""
    owner = _owner_but_root(folder)
    if owner:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _owner_but_root(data: Path) -> os.stat_result | None:
    """The status with the owner: of `tenants`, which the first command made, or of the folder itself."""
    if os.name == "nt" or os.geteuid() != ROOT:
        return None
    for path in (data / "tenants", data):
        with suppress(OSError):
            status = path.stat()
            return status if status.st_uid != ROOT else None
    return None


def _give_new(top: Path, owner: os.stat_result, began: float) -> None:
    """Give root's files and folders that are new since `began`. No link leads out of the folder."""
    for _, _, names, folder in os.fwalk(top.resolve()):
        _give_if_new(folder, owner, began)
        for name in names:
            with suppress(OSError):
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                try:
                    _give_if_new(file, owner, began)
                finally:
                    os.close(file)


def _give_if_new(descriptor: int, owner: os.stat_result, began: float) -> None:
    status = os.fstat(descriptor)
    is_new = status.st_uid == ROOT and status.st_ctime >= began
    # With a second link, it could also be a file outside of the folder.
    if is_new and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
        with suppress(OSError):  # a file system without owners, or one of another machine
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def closed_part(data: Path) -> Path | None:
    """A file or folder of a data folder that this user may not read; None without one.

    If this user may write the data folder, also a folder or a lock that it may not write.
    """
    writes = os.W_OK if os.access(data, os.W_OK) else 0
    for path in _parts(data):
        needed = os.R_OK | (writes if path.suffix == ".lock" else 0)
        if path.is_dir():
            needed = os.R_OK | os.X_OK | writes
        if not os.access(path, needed) and os.path.lexists(path):
            return path
    return None


def _parts(data: Path) -> Iterator[Path]:
    for part in PARTS:
        yield data / part
        for parent, folders, names in os.walk(data / part):
            yield from (Path(parent, name) for name in (*folders, *names))


def refusal(path: Path, data: Path) -> str:
    """Why this user may not read or write a file or folder of a data folder, and what helps, as sentences."""
    if os.name == "nt":
        return "Make it readable for this user."
    shut = next((folder for folder in (*reversed(path.parents), path) if not _enterable(folder)), path)
    user, owner = os.geteuid(), shut.lstat().st_uid
    if owner == user:
        return f"The mode of {shut} shuts out its owner. Run: chmod -R u+rwX {shlex.quote(str(data))}"
    if shut not in (data, *data.parents) and data.stat().st_uid == user:
        return (
            f"{shut} belongs to {_name(owner)}. Nothing in it is lost. Run: "
            f"sudo chown -R {_name(user)}: {shlex.quote(str(data))}"
        )
    return (
        f"{shut} belongs to {_name(owner)}. Run the command as that user (sudo -u {_name(owner)} …), or let "
        f"{_name(user)} in."
    )


def _enterable(path: Path) -> bool:
    return os.access(path, os.X_OK if path.is_dir() else os.R_OK, effective_ids=True)


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415 not on Windows

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in containers
        return f"user {user}"
