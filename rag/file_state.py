"""Whether a file is still as it was when it was ingested, told without reading it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

Staleness: TypeAlias = Literal["changed", "gone"]
"""What became of a source's file since it was ingested."""
COARSE_NS = 2_000_000_000  # FAT and some archives keep times to two seconds


@dataclass(frozen=True, slots=True)
class FileState:
    """The time of a file's last modification, in nanoseconds since 1970 by its file system, and its bytes."""

    modified: int
    size: int

    def same_as(self, other: FileState) -> bool:
        """Whether both can be of one content: of one size, and of one time as far as file systems keep it.

        Times are compared with each other, never with a clock of ours: a file server's may be behind.
        """
        return self.size == other.size and abs(self.modified - other.modified) < COARSE_NS


def local_path(uri: str) -> str:
    """The path that a file's URI was made from, whatever bytes it holds."""
    path = urlsplit(uri).path
    return url2pathname(path) if os.name == "nt" else os.fsdecode(unquote_to_bytes(path))


def state_of(path: str | os.PathLike[str]) -> FileState:
    """The state of a regular file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be told.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(path)
    return FileState(status.st_mtime_ns, status.st_size)


def staleness(uri: str, name: str, ingested: FileState) -> Staleness | None:
    """What became of the file at `uri`, which was `ingested` in this state; None if nothing or unknown.

    `name` is its path below the folder that was ingested. If that folder is missing or empty, it is not
    mounted here, and nothing is known of its files.
    """
    path = local_path(uri)
    try:
        return None if state_of(path).same_as(ingested) else "changed"
    except (FileNotFoundError, NotADirectoryError):
        inside = urlsplit(uri).fragment  # the end of a part's name tells where it lies in its file
        return (
            "gone"
            if _is_mounted(path, len(name.split("/")) - len(inside.split("/")) * bool(inside))
            else None
        )
    except OSError:
        return None


def _is_mounted(path: str, parts: int) -> bool:
    """Whether the folder that so many parts of the path lie in holds anything."""
    root = path
    for _ in range(parts):
        root = os.path.dirname(root)  # noqa: PTH120 a path of any bytes
    try:
        with os.scandir(root) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
