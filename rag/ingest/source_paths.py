"""The URIs of sources as paths, for the file system, for rules and for people.

A file has the URI of its path. A part of a file has that URI, "#" and its percent-encoded path inside:
file:///d/mails.zip#june/a.eml/report.pdf is an attachment of a mail in an archive. A document of another
origin has origin:NAME/PATH.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from rag.originals import local_path
from rag.store.write.source_ids import is_uri
from rag.text.invisible import without_hidden


def printable(path: Path | str) -> str:
    """A path as valid text on one line, whatever bytes its name holds."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return without_hidden("".join(character if character.isprintable() else "�" for character in text))


def is_local(uri: str) -> bool:
    """Whether a URI is that of a local file, or of a part of one."""
    return uri.startswith("file:")


def place_of(uri: str) -> Path:
    """The place of a source as an absolute path, which rules match. A container counts as a folder.

    Example: file:///d/mails.zip#june/a.eml -> /d/mails.zip/june/a.eml; origin:wiki/a.md -> /origin:wiki/a.md.
    """
    outer, _, inside = uri.partition("#")
    at = Path(local_path(outer)) if is_local(uri) else Path("/", unquote(outer, errors="surrogateescape"))
    return at / unquote(inside, errors="surrogateescape") if inside else at


def container_places(uri: str) -> tuple[Path, ...]:
    """The places of the containers of a part, outermost first; empty for a document that is not a part.

    Example: file:///d/a.zip#b/c.eml -> /d/a.zip, /d/a.zip/b.
    """
    outer, _, inside = uri.partition("#")
    if not inside:
        return ()
    inner = PurePosixPath(unquote(inside, errors="surrogateescape"))
    return (place_of(outer), *(place_of(outer) / folder for folder in reversed(inner.parents[:-1])))


def path_of(uri: str) -> str:
    """The place of a source, for people: a path, or the name of an origin and a path."""
    path = printable(place_of(uri))
    return path if is_local(uri) else path.removeprefix("/")


def part_uri(container: str, path: str) -> str:
    """The URI of a part with this relative path in a container, which may be a part itself.

    Example: (file:///d/a.zip, "x y.eml") -> file:///d/a.zip#x%20y.eml, and for "b" in that one,
    file:///d/a.zip#x%20y.eml/b.
    """
    inside = quote(path, safe="/", errors="surrogateescape")
    return f"{parts_prefix(container)}{inside}"


def parts_prefix(container: str) -> str:
    """The prefix of the URIs of all parts of a container."""
    return f"{container}/" if "#" in container else f"{container}#"


def prefixes(uri: str, above: str = "") -> Iterator[str]:
    """The prefixes of a URI that end in "/" or "#" and are longer than `above`, longest first.

    Example: (file:///d/a.zip#b/c, file:///d/a.zip) -> file:///d/a.zip#b/, file:///d/a.zip#.
    """
    ends = [at + 1 for at, character in enumerate(uri) if character in "/#" and at + 1 > len(above)]
    return (uri[:end] for end in reversed(ends))


def prefix_of(folder: Path) -> str:
    """The prefix of the URIs of all files below a folder."""
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
    """A file's name for comparing: case-folded, in NFC."""
    return _folded(uri).rpartition("/")[2]


def folder_of(uri: str) -> str:
    """A file's folder for comparing, as in `name_of`. It works for purged URIs, too."""
    return _folded(uri).rpartition("/")[0]


def _folded(uri: str) -> str:
    if not is_uri(uri):
        return uri
    path = str(place_of(uri))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
