"""Opening the database, and translating the engine's errors."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

import lancedb
from lancedb.query import AsyncQuery

from rag.errors import BusyError, ConfigurationError, RefdeskError, StoreError
from rag.home import ANSWER_SECONDS, CONNECT_SECONDS, RETRIES, Bucket, Home, newest_manifest, reason

if TYPE_CHECKING:
    from lancedb.index import IndexConfig

INDEX_CACHE_BYTES = 64 << 20
METADATA_CACHE_BYTES, METADATA_IN_BUCKET_BYTES = 16 << 20, 32 << 20
"""The engine's defaults are 6 GiB and 1 GiB, which keep superseded indexes, and their files open."""

MAX_VERSION = 2**64 - 1
LOOPBACK = {"127.0.0.1", "::1", "localhost"}

T = TypeVar("T")

log = logging.getLogger(__name__)

PANICS = frozenset({"PanicException", "RustPanic"})
"""The types of the engine's panics, in a call and in an awaited call. Neither can be imported."""

_REFUSALS = {
    errno.EIO: "The disk fails (input/output error). See the log of the system (dmesg); when the disk works "
    "again, run refdesk-admin doctor.",
    errno.EACCES: "This user may not read or write a file of it. Run refdesk-admin doctor, which names it "
    "and what helps.",
    errno.EMFILE: "This process has too many open files. Raise the limit (ulimit -n), and try again.",
}
"""Errors of the system, after which data may be undamaged, with what helps."""

OBJECT_STORE = re.compile(r"Generic (S3|MicrosoftAzure|GCS) error|store: \"(S3|MicrosoftAzure|GCS)\"")
"""Matches the engine's errors from reading or writing a bucket."""


def database_folder(data: Path) -> Path:
    """The folder of all tables in a data folder."""
    return data / "tables"


def table_folder(data: Path, table: str) -> Path:
    """The folder of a table."""
    return database_folder(data) / f"{table}.lance"


async def connect(
    data: Home, *, index_cache_bytes: int = INDEX_CACHE_BYTES, writes: bool = False
) -> lancedb.AsyncConnection:
    """The database of a desk. In a bucket, reads look for commits every `consistency_seconds`.

    A connection that `writes` there sees the versions that it opened, and its own commits
    (`rag.store.write.locks`). All writers of a process share it with its cache: connecting costs a request,
    and a command opens its tables a dozen times. Files of one name never change there, except those of a
    table that was dropped and made again, which the engine tells apart by their tags.
    """
    if isinstance(data, Bucket):
        if not writes:
            return await _connect_to_bucket(data, index_cache_bytes, data.consistency_seconds)
        data.connection = data.connection or await _connect_to_bucket(data, index_cache_bytes, None)
        return cast("lancedb.AsyncConnection", data.connection)
    # Absolute, because the engine mistakes a relative path that starts with "db" for a cloud address.
    with engine_errors("opening the tables"):
        return await connect_to(str(database_folder(data).absolute()), index_cache_bytes)


async def _connect_to_bucket(
    bucket: Bucket, index_cache_bytes: int, seconds: float | None
) -> lancedb.AsyncConnection:
    with engine_errors(f"opening the tables in {bucket}"):
        return await connect_to(
            f"{bucket}/tables", index_cache_bytes, seconds=seconds, options=bucket.engine_options
        )


async def connect_to(
    database: str,
    index_cache_bytes: int = INDEX_CACHE_BYTES,
    *,
    seconds: float | None = 0,
    options: Mapping[str, str] | None = None,
) -> lancedb.AsyncConnection:
    """The database at an absolute path or URI.

    Every read sees the commits of all processes, except those of the last `seconds`. With None, an opened
    table changes only by its own commits.
    """
    return await lancedb.connect_async(
        database,
        read_consistency_interval=None if seconds is None else timedelta(seconds=seconds),
        storage_options=dict(options) if options else None,
        session=lancedb.Session(
            index_cache_size_bytes=index_cache_bytes,
            metadata_cache_size_bytes=METADATA_CACHE_BYTES if options is None else METADATA_IN_BUCKET_BYTES,
        ),
    )


SERVICE = "db://"
SERVICE_KEY, SERVICE_HOST, SERVICE_REGION = "LANCEDB_API_KEY", "LANCEDB_HOST_OVERRIDE", "LANCEDB_REGION"
"""The variables for LanceDB Enterprise and Cloud. The key goes only to this host, or to the region's."""


async def open_in_service(table: str) -> lancedb.AsyncTable:
    """The table of LanceDB Enterprise or Cloud at `db://database/table`, with namespaces in between.

    Every read sees all earlier commits.

    Raises:
        ConfigurationError: the variable for the key isn't set, or the key would be sent unencrypted.
        ValueError, RuntimeError: the engine's; the table doesn't exist, or the service fails.
    """
    key, host = os.environ.get(SERVICE_KEY), os.environ.get(SERVICE_HOST) or None
    if not key:
        raise ConfigurationError(f"{table} needs an API key of LanceDB. Set {SERVICE_KEY}.")
    if host and urlsplit(host).scheme != "https" and urlsplit(host).hostname not in LOOPBACK:
        raise ConfigurationError(f"{SERVICE_HOST} is not encrypted. Begin it with https://.")
    database, *namespace, name = table.removeprefix(SERVICE).split("/")
    connection = await lancedb.connect_async(
        SERVICE + database,
        api_key=key,
        region=os.environ.get(SERVICE_REGION) or "us-east-1",
        host_override=host,
        read_consistency_interval=timedelta(0),
        client_config={
            "timeout_config": {"read_timeout": ANSWER_SECONDS, "connect_timeout": CONNECT_SECONDS},
            "retry_config": {"retries": RETRIES, "connect_retries": RETRIES, "read_retries": RETRIES},
        },
    )
    return await connection.open_table(name, namespace_path=namespace or None)


class LocalTable(lancedb.AsyncTable):
    """A table in a folder, whose newest version is read from the names of its files.

    That takes 20 us instead of the engine's 250, and each search asks for several versions.
    """

    def __init__(self, table: lancedb.AsyncTable, data: Path) -> None:
        vars(self).update(vars(table))  # the engine has no public way to make one
        self._folder = table_folder(data, table.name)

    async def version(self) -> int:
        """The newest version that any process has committed."""
        with suppress(OSError):  # no manifest, or one of an older naming scheme: the engine knows more
            return MAX_VERSION - int(newest_manifest(self._folder).partition(".")[0])
        return await super().version()

    def query(self) -> AsyncQuery:
        """As the engine's, without its support of blobs, for which each query asks for the schema first."""
        return AsyncQuery(self._inner.query())

    async def list_indices(self) -> Iterable[IndexConfig]:
        """As the engine's; a table without a folder of indexes, like a small one, has none."""
        return await super().list_indices() if (self._folder / "_indices").exists() else ()


async def open_if_there(database: lancedb.AsyncConnection, name: str) -> lancedb.AsyncTable | None:
    """The table, None if it doesn't exist. Listing tables would cost 27 ms with 5,000 of them.

    Raises:
        StoreError: it is damaged.
    """
    with engine_errors(f"opening the table {name}"):
        try:
            return await database.open_table(name)
        except ValueError as error:  # the engine has no type for it
            if "was not found" not in str(error):
                raise
            return None


async def of_newest(tables: Iterable[lancedb.AsyncTable], read: Callable[[], Awaitable[T]]) -> T:
    """The result of `read`, repeated on the newest versions if a table's version was pruned meanwhile."""
    try:
        return await read()
    except RuntimeError as error:  # a file of the version is gone; again, only the text says so
        if "Not found" not in str(error):
            raise
        for table in tables:
            await table.checkout_latest()  # type: ignore[no-untyped-call]
        return await read()


def taken_over() -> BusyError:
    """The error of a writer whose lease expired while it was suspended or cut off from the store."""
    return BusyError(
        "This command was held up for so long that another one took over, so it stopped. What it had stored "
        "stays. Run the same command again."
    )


def refused_by_system(error: BaseException) -> str:
    """Sentences if the error is of `_REFUSALS`, else "". Only the text of the engine's error says so.

    Nothing may be dropped because of this error.
    """
    number = getattr(error, "errno", None)
    found = (text for code, text in _REFUSALS.items() if number == code or f"(os error {code})" in str(error))
    return next(found, "")


def _service_fault(status: int | None) -> str:
    """Why LanceDB Enterprise or Cloud failed, by the status of its answer."""
    if status in {401, 403}:
        return f" The service refuses the API key in {SERVICE_KEY}. Set another one."
    answer = f"answers with status {status}" if status else "can't be reached"
    return f" The service {answer}. Check {SERVICE_HOST} and {SERVICE_REGION}, then try again."


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn the engine's errors and panics into a `StoreError`.

    The engine's messages quote stored rows, so they go to the debug log only.
    """
    try:
        yield
    except RefdeskError:
        raise
    except BaseException as error:  # a panic of the engine isn't an `Exception`
        if not isinstance(error, RuntimeError | ValueError | OSError) and type(error).__name__ not in PANICS:
            raise
        log.debug("the engine failed while %s", doing, exc_info=True)
        if "concurrent transaction Restore" in str(error):  # the fence of the next holder (`write.locks`)
            raise taken_over() from error
        if refusal := refused_by_system(error):
            raise StoreError(f"The storage engine failed while {doing}: {refusal}") from error
        message = f"The storage engine failed while {doing}."
        if type(error).__module__ == "lancedb.remote.errors":  # which isn't imported for others
            message += _service_fault(getattr(error, "status_code", None))
        elif OBJECT_STORE.search(str(error)):
            message += f" The bucket can't be read: {reason(error)}. Run refdesk-admin doctor storage."
        elif isinstance(error, OSError) or "No space left" in str(error):
            message += " Check that the data folder is readable and its disk is not full."
        else:
            message += " If it fails again, run refdesk-admin doctor."
        raise StoreError(message) from error
