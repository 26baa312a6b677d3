"""The file of a backup: a plain tar archive of JSON and Arrow files, with their SHA-256 digests at its end.

    backup.json       format, refdesk's version, tenant, moment, and the collections with their definitions
    key               the key of the data folder; source ids are derived from it
    keys.json         the tenant's API keys, as hashes
    access/00000.arrow, …                    the access records
    collections/NAME/sources/00000.arrow, …
    collections/NAME/chunks/00000.arrow, …
    checksums.json    the digest of each file above

An archive without its last file was cut short. Everything is written and read part by part, so neither needs
memory or disk space for more than one part.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from rag.errors import ConfigurationError, StoreError
from rag.store.folder import cannot, flush_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 1
ABOUT, KEY, KEYS, CHECKSUMS = "backup.json", "key", "keys.json", "checksums.json"
MAX_PART_BYTES = 1 << 31  # of a part that is read; ours have some MiB
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class Member(BaseModel):
    """A collection of a backup: its row in the catalog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    definition: str
    created_at: str


class About(BaseModel):
    """What a backup is of. `at` is the moment whose state it holds, in ISO 8601."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    refdesk: str
    tenant: str
    at: str
    collections: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose parts match their digests."""

    file: Path
    about: About


class ArchiveWriter:
    """An archive that is being written."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._digests: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a part."""
        part = tarfile.TarInfo(name)
        part.size, part.mode = len(content), 0o600
        self._archive.addfile(part, io.BytesIO(content))
        self._digests[name] = hashlib.sha256(content).hexdigest()

    def add_rows(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows as an Arrow file with compressed columns."""
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, batch.schema, options=_COMPRESSED) as written:
            written.write_batch(batch)
        self.add(name, buffer.getvalue())

    def finish(self) -> None:
        """Add the digests."""
        self.add(CHECKSUMS, json.dumps(self._digests, indent=1).encode())


@contextmanager
def writing(file: Path) -> Iterator[ArchiveWriter]:
    """An archive for its owner alone, which is at its path when the block has ended without an error.

    Raises:
        ConfigurationError: it can't be written.
        StoreError: the disk is full.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".new")
    except OSError as error:
        raise cannot(f"The backup {file} can't be written", error) from error
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            with tarfile.open(fileobj=opened, mode="w", format=tarfile.PAX_FORMAT) as archive:
                writer = ArchiveWriter(archive)
                yield writer
                writer.finish()
            opened.flush()
            os.fsync(descriptor)
        new.replace(file)
    except OSError as error:
        raise cannot(f"The backup {file} can't be written", error) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    flush_folder(file.parent)


def parts(file: Path) -> Iterator[tuple[str, bytes]]:
    """The parts of an archive by name, in order.

    Raises:
        ConfigurationError: it can't be read, or it is no archive.
    """
    try:
        with tarfile.open(file, mode="r:") as archive:
            for part in archive:
                content = archive.extractfile(part) if part.size < MAX_PART_BYTES else None
                if content is None:
                    raise ConfigurationError(f"{file} is not a backup of refdesk: it contains {part.name!r}.")
                yield part.name, content.read()
    except OSError as error:
        raise ConfigurationError(
            f"The backup {file} can't be read: {error.strerror or 'it is damaged'}."
        ) from error
    except tarfile.TarError as error:
        raise ConfigurationError(f"{file} is not a backup of refdesk, or it was cut short.") from error


def checked(file: Path) -> Archive:
    """The archive, after every part was read and compared with its digest.

    Raises:
        ConfigurationError: it can't be read, is damaged, or is of another version.
    """
    digests: dict[str, str] = {}
    about = None
    end: Any = None
    for name, content in parts(file):
        if name == CHECKSUMS:
            end = content
            break
        about = about or (_about(file, content) if name == ABOUT else None)
        digests[name] = hashlib.sha256(content).hexdigest()
    if about is None:
        raise ConfigurationError(f"{file} is not a backup of refdesk.")
    if end is None:
        raise ConfigurationError(f"The backup {file} was cut short. Use another backup.")
    stated = _stated(end)
    if wrong := sorted(
        name for name in digests.keys() | stated.keys() if digests.get(name) != stated.get(name)
    ):
        raise ConfigurationError(
            f"The backup {file} is damaged: {wrong[0]!r} does not match its checksum. Use another backup."
        )
    return Archive(file, about)


def _stated(end: bytes) -> dict[str, str]:
    with suppress(ValueError):
        read = json.loads(end)
        if isinstance(read, dict):
            return read
    return {}


def _about(file: Path, content: bytes) -> About:
    try:
        about = About.model_validate_json(content)
    except ValidationError as error:
        raise ConfigurationError(
            f"The backup {file} was made by another version of refdesk. Use that one."
        ) from error
    if about.format != FORMAT:
        raise ConfigurationError(f"The backup {file} was made by refdesk {about.refdesk}. Use that version.")
    return about


def rows_of(content: bytes) -> pa.Table:
    """The rows of a part.

    Raises:
        StoreError: they can't be read.
    """
    try:
        return pa.ipc.open_file(pa.BufferReader(content)).read_all()
    except pa.ArrowInvalid as error:
        raise StoreError("A part of the backup can't be read.") from error
