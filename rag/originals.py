"""The file that a source was made from: how its bytes are recognized, also by those who only read.

A picture of a page is drawn from the file as it is now. It may show only what the stored text was made from:
the rights and the policies of the collection were applied to that.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rag.errors import InvalidRequestError
from rag.file_state import local_path

if TYPE_CHECKING:
    from rag.corpus import Source

RECIPE = 12
"""Part of every digest. Raise it when parsers or the chunker change: every source is then stored anew."""
SIDECAR_SUFFIX = ".meta.toml"
"""`report.pdf.meta.toml` holds the metadata of `report.pdf`; see `rag.ingest.metadata`."""
SIDECAR_BYTES = 64_000
FILE_BYTES = 50_000_000  # larger files are read for a whole run, but not for a single page
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

ELSEWHERE = "it doesn't lie in a file of its own on the server's machine."
GONE = "its file is not where it was, or the server may not read it."
LARGE = f"its file is larger than {FILE_BYTES // 1_000_000} MB."
OTHER = (
    "its file is not the one that was ingested, or the collection masks or moderates what it stores, "
    "so the page may show what the text doesn't."
)


def digest_of(data: bytes) -> str:
    """A digest of all that a stored text depends on: the file, its sidecar, and what else ingestion adds."""
    return hashlib.blake2b(data, key=str(RECIPE).encode(), digest_size=16).hexdigest()


def original(source: Source) -> bytes:
    """The file of a source, if it is the very one whose text is stored, and nothing was masked in that.

    The stored digest covers the file, its sidecar and the policies that were applied. So whatever lies at the
    file's place now, only bytes that were ingested without any policy have it.

    Raises:
        InvalidRequestError: there is no such file, or it can't be read; the message is for callers.
    """
    parts = urlsplit(source.uri)
    if parts.scheme != "file" or parts.fragment:
        raise unavailable(ELSEWHERE)
    path = local_path(source.uri)
    try:
        data = _content(path, FILE_BYTES)
    except OSError as error:
        raise unavailable(GONE) from error
    try:
        sidecar = _content(path + SIDECAR_SUFFIX, SIDECAR_BYTES)
    except OSError:
        sidecar = b""  # if there was one, the digest differs
    if digest_of(data + sidecar) != source.digest.partition("/")[0]:
        raise unavailable(OTHER)
    return data


def unavailable(why: str) -> InvalidRequestError:
    """The error for a page that can't be shown."""
    return InvalidRequestError(f"There is no picture of this page: {why}")


def _content(path: str, most: int) -> bytes:
    """The bytes of a regular file; a pipe doesn't block.

    Raises:
        InvalidRequestError: it is larger than `most`.
        OSError: it can't be read.
    """
    descriptor = os.open(path, _READ)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(path)
        data = file.read(most + 1)
    if len(data) > most:
        raise unavailable(LARGE)
    return data
