"""Archives: ZIP, tar, gzip, bzip2 and xz. Their members are documents of their own.

Nothing is written to disk: contents are only passed on. Links, devices, encrypted members and members above
the size limit are refused. What all members take is limited where they arrive (`rag.ingest.containers`).
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.document_parts import Member

if TYPE_CHECKING:
    _Stream = IO[bytes] | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile

SUFFIXES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz")

MAX_MEMBER_BYTES = 64 << 20  # no document may be larger; ingest.max_file_bytes is usually less
_ENCRYPTED, _UTF_8 = 0x1, 0x800  # flags of an entry
_FIELD = struct.Struct("<HH")  # id and length of an extra field of an entry
_UNICODE_NAME = 0x7075  # Info-ZIP's: a version, the CRC of the name that it is for, and that name in UTF-8

_OPENERS: dict[bytes, Callable[[IO[bytes]], _Stream]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""Decompressors, by the first bytes of a stream."""
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)


def members(data: bytes, name: str) -> Iterator[Member]:
    """The files in an archive; a compressed file has one, named without the suffix.

    Raises:
        ParseError: the archive is damaged, or of another format.
    """
    try:
        if data.startswith(b"PK"):
            yield from _zip_members(data)
            return
        openers = (opener for start, opener in _OPENERS.items() if data.startswith(start))
        opener = next(openers, None)
        file = opener(io.BytesIO(data)) if opener else io.BytesIO(data)
        beginning = file.read(tarfile.BLOCKSIZE)
        file.seek(0)
        if beginning[257:262] == b"ustar" or (beginning and not beginning.strip(b"\0")):
            yield from _tar_members(file)
        elif opener:
            yield _sized_member(name.rpartition(".")[0] or name, file.read(MAX_MEMBER_BYTES + 1))
        else:
            raise ParseError("the archive is damaged, or of another format")
    except NotImplementedError as error:
        raise ParseError(
            "the archive is packed with a method that refdesk can't unpack", "unsupported"
        ) from error
    except _DAMAGE as error:
        raise ParseError("the archive is damaged") from error


def _zip_members(data: bytes) -> Iterator[Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry, name in zip(archive.infolist(), _names(archive.infolist()), strict=True):
            entry.filename = name
            mode = entry.external_attr >> 16
            if entry.is_dir():
                continue
            if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
                yield Member(entry.filename, refused="a link or a device, not a file")
            elif entry.flag_bits & _ENCRYPTED:
                reason = "encrypted with a password; store a copy without one"
                yield Member(entry.filename, refused=reason, cause="encrypted")
            elif entry.file_size > MAX_MEMBER_BYTES:
                yield _too_large(entry.filename)
            else:
                yield _zip_member(archive, entry)


def _names(entries: list[zipfile.ZipInfo]) -> list[str]:
    """The names of the members. Names without a stated encoding are in the encoding of the packing system.

    It is detected from all names together, as a single one is too short. DOS's code page comes first.
    """
    names = {at: _stated_name(entry) for at, entry in enumerate(entries)}
    raw = {at: entries[at].filename.encode("cp437") for at, name in names.items() if name is None}
    is_dos = all(entries[at].create_system == 0 for at in raw)  # packed by DOS, or as if by it
    label = "cp437" if is_dos else ""
    read = decode_part(b"\n".join(raw.values()), label).text.split("\n")
    if len(read) != len(raw):  # a name may hold a line end
        read = [decode_part(name, label).text for name in raw.values()]
    names |= dict(zip(raw, read, strict=True))
    return [name or "" for name in names.values()]


def _stated_name(entry: zipfile.ZipInfo) -> str | None:
    """The name of a member by its flag, its Unicode field, or in UTF-8; None for another encoding."""
    if entry.flag_bits & _UTF_8 or entry.filename.isascii():
        return entry.filename
    raw, extra = entry.filename.encode("cp437"), entry.extra
    while len(extra) >= _FIELD.size:
        id_, size = _FIELD.unpack_from(extra)
        field, extra = extra[_FIELD.size : _FIELD.size + size], extra[_FIELD.size + size :]
        if id_ == _UNICODE_NAME and field[1:5] == zlib.crc32(raw).to_bytes(4, "little"):
            raw = field[5:]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _zip_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    try:
        with archive.open(entry) as file:
            return _sized_member(entry.filename, file.read(MAX_MEMBER_BYTES + 1))  # whatever size it states
    except (*_DAMAGE, NotImplementedError, RuntimeError):
        return Member(entry.filename, refused="it can't be unpacked: the archive is damaged", cause="damaged")


def _tar_members(file: _Stream) -> Iterator[Member]:
    with tarfile.open(fileobj=file, mode="r|") as archive:  # as a stream: it isn't unpacked as a whole
        for entry in archive:
            if entry.isdir():
                continue
            raw = entry.name.encode("utf-8", "surrogateescape")  # an archive doesn't state its encoding
            name = decode_part(raw, "").text
            if entry.issparse() or not entry.isreg():
                yield Member(name, refused="a link, a device or a file with holes")
            elif entry.size > MAX_MEMBER_BYTES:
                yield _too_large(name)
            elif content := archive.extractfile(entry):
                yield _sized_member(name, content.read())


def _sized_member(name: str, data: bytes) -> Member:
    return _too_large(name) if len(data) > MAX_MEMBER_BYTES else Member(name, data)


def _too_large(name: str) -> Member:
    reason = f"unpacked it takes over {MAX_MEMBER_BYTES >> 20} MB"
    return Member(name, refused=reason, cause="too large")
