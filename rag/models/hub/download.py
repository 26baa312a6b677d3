"""Downloads one file: resumable, and present under its name only when its bytes are the expected ones."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub.file_download import http_get
from huggingface_hub.utils.tqdm import silent_tqdm

from rag.errors import ConfigurationError, ProviderError, StoreError
from rag.models.hub.protocol import Hub, LaterError, RemoteFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

PART = ".part"
READ_BYTES = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


class WrongBytesError(ProviderError):
    """A file's bytes don't match its checksum or size. It was deleted."""


@dataclass(frozen=True, slots=True)
class HubCommit:
    """Where a file comes from: the hub, the repository and the commit."""

    hub: Hub
    repository: str
    commit: str

    def url(self, file: RemoteFile) -> str:
        """The address of a file."""
        return self.hub.file_url(self.repository, self.commit, file.path)


def download(origin: HubCommit, file: RemoteFile, target: Path, came: Callable[[int], None]) -> str:
    """Fetch a file to `target`, and return its SHA-256. `came` is told of the bytes as they come.

    It resumes an interrupted download, and reconnects if the connection breaks.

    Raises:
        WrongBytesError: the bytes are not those of `file`; none are kept.
        LaterError: the hub can't be reached, or breaks off again and again; what came is kept.
        ConfigurationError: the hub refuses, or the folder can't be written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    with _writing(part):
        resumed = _size(part)
        came(resumed)
        if not file.size or resumed < file.size:
            _append(origin, file, part, came)
        if sha256 := _checked_digest(part, file):
            part.replace(target)
            return sha256
        came(-_size(part))
        part.unlink()
    if resumed:  # perhaps of another file: once more, as a whole
        return download(origin, file, target, came)
    raise WrongBytesError(
        f"{origin.url(file)} has not the bytes that it must have, so it was deleted. If a mirror or a proxy "
        "stands between, it may have changed the file."
    )


def _append(origin: HubCommit, file: RemoteFile, part: Path, came: Callable[[int], None]) -> None:
    """Fetch what `part` lacks.

    Raises:
        LaterError: the connection broke too often.
        WrongBytesError: the file is larger than it must be.
    """
    try:
        with _Part(part, file.size, came) as opened, origin.hub.errors(origin.repository):
            http_get(
                origin.url(file),
                opened,
                resume_size=opened.tell(),
                headers=origin.hub.headers,
                tqdm_class=silent_tqdm,  # type: ignore[arg-type]  # the library's own stand-in
            )
    except WrongBytesError as error:
        part.unlink()
        raise WrongBytesError(f"{origin.url(file)} {error}") from error
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise LaterError(f"{origin.hub.endpoint} states no possible size of {file.path}.") from error
    if _size(part) < file.size:
        raise LaterError(
            f"{origin.hub.endpoint} sent only a part of {file.path}. What came is kept: run the same command "
            "again."
        )


class _Part(FileIO):
    """What came of a file so far. The library appends, or begins again where a hub ignores the range.

    At most `limit` bytes are accepted, any number if it is 0.
    """

    def __init__(self, path: Path, limit: int, came: Callable[[int], None]) -> None:
        super().__init__(path, "ab")
        self._limit, self._came = limit, came

    def write(self, block: Buffer) -> int:
        """Append a block.

        Raises:
            WrongBytesError: there would be more than allowed.
        """
        if self._limit and self.tell() + memoryview(block).nbytes > self._limit:
            raise WrongBytesError(f"is larger than {self._limit:,} bytes, its size. It was deleted.")
        count = super().write(block)
        self._came(count)
        return count

    def truncate(self, size: int | None = None) -> int:
        """Cut the file."""
        before = os.fstat(self.fileno()).st_size
        after = super().truncate(size)
        self._came(after - before)
        return after


def _checked_digest(path: Path, file: RemoteFile) -> str:
    """The SHA-256 of a file; empty if its bytes don't match `file`."""
    size = _size(path)
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(READ_BYTES):
            sha256.update(block)
            if file.blob:  # large files have a SHA-256 alone
                blob.update(block)
    digest = sha256.hexdigest()
    is_right = (
        (not file.size or size == file.size)
        and file.sha256 in {"", digest}
        and file.blob in {"", blob.hexdigest()}
    )
    return digest if is_right else ""


def checked_copy(source: Path, file: RemoteFile, target: Path) -> str:
    """Copy a file from a folder, and return its SHA-256; the same check as of a download.

    Raises:
        WrongBytesError: the bytes are not those of `file`; the copy is deleted.
        ConfigurationError: a file can't be read or written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    with _writing(part):
        shutil.copyfile(source, part)
        if sha256 := _checked_digest(part, file):
            part.replace(target)
            return sha256
        part.unlink()
    raise WrongBytesError(f"{source} has other bytes than it must have. Copy it from the hub again.")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns the operating system's errors about a file into ours."""
    try:
        yield
    except OSError as error:
        name = error.filename or path
        if error.errno in FULL:
            raise StoreError(
                f"The disk is full: {name}. Make room, and run the same command again."
            ) from error
        raise ConfigurationError(f"{name} can't be read or written: {error.strerror}.") from error
