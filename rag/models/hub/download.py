"""Downloads one file: resumable, and present under its name only when its bytes are the expected ones."""

from __future__ import annotations

import errno
import hashlib
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
import httpx2

from rag.errors import ConfigurationError, ProviderError, StoreError
from rag.models.hub.protocol import LaterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.models.hub.protocol import Hub, RemoteFile

PART = ".part"
READ_BYTES = 1 << 20
ATTEMPTS = 4  # without a single new byte; a slow line may break more often
FULL = (errno.ENOSPC, errno.EDQUOT)


class WrongBytesError(ProviderError):
    """A file has not the bytes that it must have. It was deleted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file comes from: the hub, the repository and the commit."""

    hub: Hub
    repository: str
    commit: str

    def url(self, file: RemoteFile) -> str:
        """The address of a file."""
        return self.hub.file_url(self.repository, self.commit, file.path)


async def download(
    place: Place, file: RemoteFile, target: Path, came: Callable[[int], None], *, pause_seconds: float = 1.0
) -> str:
    """Fetch a file to `target`, and return its SHA-256. `came` is told of the bytes as they come.

    What an interrupted download left is used. A connection that breaks is made again.

    Raises:
        WrongBytesError: the bytes are not those of `file`; none are kept.
        LaterError: the hub can't be reached, or breaks off again and again; what came is kept.
        ConfigurationError: the hub refuses, or the folder can't be written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    came(_size(part))
    failed, joined = 0, False
    while True:
        before = _size(part)
        joined = joined or before > 0
        try:
            with _writing(part):
                await _append(place, file, part, came)
        except LaterError as error:
            failed = 1 if _size(part) > before else failed + 1
            if failed == ATTEMPTS:
                raise
            await anyio.sleep(max(error.after_seconds, pause_seconds * 2 ** (failed - 1)))
            continue
        with _writing(part):
            found = await anyio.to_thread.run_sync(_checked, part, file)
            if found:
                part.replace(target)
                return found
            came(-_size(part))
            part.unlink()
        if not joined:
            raise WrongBytesError(
                f"{place.url(file)} has not the bytes that it must have, so it was deleted. If a mirror or a "
                "proxy stands between, it may have changed the file."
            )
        joined = False  # the parts may have been of different files: once more, as a whole


async def _append(place: Place, file: RemoteFile, part: Path, came: Callable[[int], None]) -> None:
    """Fetch what `part` lacks.

    Raises:
        LaterError: the connection broke.
        WrongBytesError: the file is larger than it must be.
    """
    start = _size(part)
    if file.size and start >= file.size:
        return
    url = place.url(file)
    headers = {"Range": f"bytes={start}-"} if start else {}
    async with place.hub.answer(url, place.repository, headers) as reply:
        if reply.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        goes_on = reply.status_code == HTTPStatus.PARTIAL_CONTENT and _begins(reply) == start
        if not goes_on:
            came(-start)
            start = 0
        with part.open("ab" if goes_on else "wb") as opened:
            size = start
            try:
                async for block in reply.aiter_raw():  # as it comes: what is gathered is lost with the line
                    size += len(block)
                    if file.size and size > file.size:
                        break
                    opened.write(block)
                    came(len(block))
            except httpx2.TransportError as error:
                raise LaterError(
                    f"{reply.url.host} broke off {file.path}. What came is kept: run the same command again."
                ) from error
    if file.size and size > file.size:
        await anyio.Path(part).unlink()
        raise WrongBytesError(f"{url} is larger than {file.size:,} bytes, its size. It was deleted.")
    stated = reply.headers.get("content-length", "")
    if (file.size and size < file.size) or (stated.isdecimal() and size < start + int(stated)):
        raise LaterError(
            f"{reply.url.host} sent only a part of {file.path}. What came is kept: run the same command "
            "again."
        )


def _begins(reply: httpx2.Response) -> int:
    """The first byte of a partial answer; -1 if it doesn't say."""
    found = re.match(r"bytes (\d+)-", reply.headers.get("content-range", ""))
    return int(found[1]) if found else -1


def _checked(path: Path, file: RemoteFile) -> str:
    """The SHA-256 of a file's bytes; empty if they aren't those of `file`."""
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {_size(path)}\0".encode(), usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(READ_BYTES):
            sha256.update(block)
            blob.update(block)
    found = sha256.hexdigest()
    right = (
        (not file.size or _size(path) == file.size)
        and file.sha256 in {"", found}
        and file.blob in {"", blob.hexdigest()}
    )
    return found if right else ""


def checked_copy(source: Path, file: RemoteFile, target: Path) -> str:
    """Copy a file from a folder, and return its SHA-256; the same check as of a download.

    Raises:
        WrongBytesError: the bytes are not those of `file`; the copy is deleted.
        ConfigurationError: a file can't be read or written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    with _writing(part):
        with source.open("rb") as opened, part.open("wb") as written:
            while block := opened.read(READ_BYTES):
                written.write(block)
        found = _checked(part, file)
        if found:
            part.replace(target)
            return found
        part.unlink()
    raise WrongBytesError(f"{source} has other bytes than it must have. Copy it from the hub again.")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class _writing:  # noqa: N801 reads like a function
    """Turns the operating system's errors about a file into ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, OSError):
            return
        name = error.filename or self._path
        if error.errno in FULL:
            raise StoreError(
                f"The disk is full: {name}. Make room, and run the same command again."
            ) from error
        raise ConfigurationError(f"{name} can't be read or written: {error.strerror}.") from error
