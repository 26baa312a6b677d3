"""File URIs as paths, for the file system and for people."""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rag.file_state import local_path
from rag.hidden import without_hidden
from rag.store.source_ids import is_uri

if TYPE_CHECKING:
    from pathlib import Path


def printable(path: Path | str) -> str:
    """A path as valid text on one line, whatever bytes its name holds."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return without_hidden("".join(character if character.isprintable() else "�" for character in text))


def path_of(uri: str) -> str:
    """The path of a file's URI, for people."""
    return printable(local_path(uri))


def prefix_of(folder: Path) -> str:
    """What the URIs of all files below a folder start with."""
    return folder.as_uri().rstrip("/") + "/"


def is_gone(path: str) -> bool:
    """Whether the path certainly doesn't exist. A file in an unreadable folder may exist."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def name_of(uri: str) -> str:
    """A file's name as people compare names: without letter case, in one Unicode normal form."""
    return _folded(uri).rpartition("/")[2]


def folder_of(uri: str) -> str:
    """A file's folder, compared in the same way. It works for purged URIs, too."""
    return _folded(uri).rpartition("/")[0]


def _folded(uri: str) -> str:
    if not is_uri(uri):
        return uri
    path = unquote(urlsplit(uri).path, errors="surrogateescape")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
