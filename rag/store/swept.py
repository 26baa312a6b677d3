"""Notes which versions of a collection's tables hold no leftovers, so that the next writer needn't look.

Looking reads all chunks. A writer that ends well notes the newest version of each table (`note_swept`), after
everything was flushed to disk. Whoever writes afterwards makes other versions, and whoever ends in between
doesn't note them. So a note that is missing, can't be read, or is of other versions means: look.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from rag.errors import RefdeskError
from rag.store.builds import table_names
from rag.store.connection import table_folder
from rag.store.folder import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from rag.corpus import Collection


def is_swept(data: Path, collection: Collection) -> bool:
    """Whether the tables, as they are now, are noted to hold no leftovers."""
    try:
        noted = json.loads(_file(data, collection.tenant, collection.name).read_bytes())
        return bool(noted == _versions(data, collection))
    except (OSError, ValueError):
        return False


def note_swept(data: Path, collection: Collection) -> None:
    """Note that the tables, as they are now, hold no leftovers; if that fails, the next writer looks."""
    with suppress(OSError, RefdeskError):
        file = _file(data, collection.tenant, collection.name)
        write_whole(file, json.dumps(_versions(data, collection)).encode())


def forget_swept(data: Path, tenant: str, name: str) -> None:
    """Let the next writer of a collection look, whatever is noted."""
    _file(data, tenant, name).unlink(missing_ok=True)


def _file(data: Path, tenant: str, name: str) -> Path:
    return data / "locks" / f"{tenant}.{name}.swept"


def _versions(data: Path, collection: Collection) -> dict[str, list[object]]:
    """The file of the newest version of each table. A table made anew can have the same number, not the file.

    Raises:
        OSError: there is none.
    """
    return {name: _newest(table_folder(data, name) / "_versions") for name in table_names(collection)}


def _newest(versions: Path) -> list[object]:
    newest = min(versions.glob("*.manifest"), default=versions / "none")  # names sort newest first
    status = newest.stat()
    return [newest.name, status.st_ino, status.st_mtime_ns, status.st_size]
