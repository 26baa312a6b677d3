"""The files that a browser sends: where they go, and under which names."""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.names import valid_name
from rag.errors import InvalidRequestError
from rag.hidden import without_hidden
from rag.store.folder import cannot, make_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

NAME_BYTES = 200  # file systems take 255; a draft beside it has a few more
UNWANTED = '<>:"|?*'  # in names on Windows
PORTS = (f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10))
DEVICES = frozenset({"con", "prn", "aux", "nul", *PORTS})  # no names on Windows


def folder_of(uploads: Path, tenant: str, collection: str) -> Path:
    """Where the files of a collection go.

    Raises:
        ConfigurationError: the collection can't have this name.
    """
    return uploads / valid_name(tenant) / valid_name(collection)


def file_name(given: str) -> str:
    r"""The name under which a file is kept: the last part of what the browser says, without tricks.

    Example: "../../etc/passwd" -> "passwd", "C:\\\\docs\\\\a?.md" -> "a_.md", ".env" -> "env".

    Raises:
        InvalidRequestError: nothing is left of it.
    """
    last = without_hidden(unicodedata.normalize("NFC", given)).replace("\\", "/").rpartition("/")[2]
    name = "".join(c if c.isprintable() and c not in UNWANTED else "_" for c in last).strip(" .")
    if not name:
        raise InvalidRequestError("A file needs a name.")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > NAME_BYTES // 2:
        stem, suffix = name, ""
    if stem.casefold() in DEVICES:
        stem = f"_{stem}"
    room = NAME_BYTES - len(dot.encode()) - len(suffix.encode())
    stem = stem.encode()[:room].decode(errors="ignore")
    return f"{stem}.{suffix}" if suffix else stem


def save(folder: Path, files: Sequence[tuple[str, BinaryIO]], most_bytes: int) -> list[Path]:
    """Put files into a folder, in place of those of the same names. Returns their paths.

    Raises:
        InvalidRequestError: a file has no name, is too large, or has the name of another one.
        ConfigurationError, StoreError: the folder can't be written.
    """
    names = [file_name(given) for given, _ in files]
    if len({name.casefold() for name in names}) < len(names):  # one file where the case of names is lost
        raise InvalidRequestError("Two of these files have the same name. Send them one after the other.")
    for name, (_, file) in zip(names, files, strict=True):
        if file.seek(0, os.SEEK_END) > most_bytes:
            raise InvalidRequestError(
                f"{name} has more than {most_bytes:,} bytes, which is the limit of ingest.max_file_bytes. "
                "Nothing was ingested."
            )
    try:
        make_private(folder)
        return [_saved(folder, name, file) for name, (_, file) in zip(names, files, strict=True)]
    except OSError as error:
        raise cannot(f"The folder {folder} can't be written", error) from error


def _saved(folder: Path, name: str, file: BinaryIO) -> Path:
    """The path of a file that is there as a whole, or not at all."""
    file.seek(0)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            shutil.copyfileobj(file, opened)
        return Path(draft).replace(folder / name)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
