"""Data folders that begin alike are filled once: the same change of the same files is then copied, not made.

A write of a few rows takes the engine 50 ms of CPU, and hundreds of tests begin with the same few.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from rag.store.write.desk_folder import prepare, reserve_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files that a change wrote, the names of those that it deleted, and what it returned."""

    folder: Path
    deleted: tuple[str, ...]
    result: object


class Snapshots:
    """Changes that were made before, by the names of the files that they began with.

    The engine puts a UUID into the names of the files of each write, so folders whose files have the same
    names are in the same state, whoever wrote them. Don't change a folder by this while the code that
    writes is patched: other tests would get what it wrote.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[frozenset[str], str], Snapshot] = {}

    async def changed(self, data: Path, change: str, make: Callable[[], Awaitable[T]]) -> T:
        """Make a change, or do to the folder what the same one did. `change` says all that it goes by."""
        before = _files(data)
        key = (frozenset(before), change)
        if key in self._made:
            return cast("T", _repeat(self._made[key], data))
        result = await make()
        after = _files(data)
        snapshot = Snapshot(self._folder / str(len(self._made)), tuple(before.keys() - after.keys()), result)
        snapshot.folder.mkdir()
        for name, state in after.items():
            if state != before.get(name):
                copy = snapshot.folder / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(data / name, copy)
        self._made[key] = snapshot
        return result


def _files(data: Path) -> dict[str, tuple[int, int]]:
    """The size and time of each file but the reserve, by its name in the folder."""
    files = {}
    for parent, _, names in os.walk(data):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 a tenth of the time of a Path
            status = os.stat(path)  # noqa: PTH116 the same
            files[os.path.relpath(path, data)] = (status.st_size, status.st_mtime_ns)
    files.pop(reserve_file(data).name, None)
    return files


def _repeat(snapshot: Snapshot, data: Path) -> object:
    prepare(data)  # with the reserve, which is no copy: that would take its 4 MiB from the disk
    for name in snapshot.deleted:
        (data / name).unlink()
    shutil.copytree(snapshot.folder, data, dirs_exist_ok=True)
    return snapshot.result
