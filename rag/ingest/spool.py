"""The spool: private copies, for one run, of documents that don't lie in files of their own.

Attachments of mails, members of archives and documents from other origins are put here, so that all steps of
a run read files. The folder is inside the data folder, only its owner can read it, and it is removed when the
run ends. What a killed run left is removed by the next writer of the collection, also by a purge.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rag.originals import SIDECAR_SUFFIX
from rag.store.write.desk_folder import cannot, empty_spool, spool_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Collection


@dataclass(frozen=True, slots=True)
class Spool:
    """The spool folder of a run. Nothing in it is named by what is put there."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def add(self, data: bytes, sidecar: bytes = b"") -> Path:
        """A file with this content, and with its sidecar beside it if it has one.

        Raises:
            ConfigurationError: it can't be written.
            StoreError: the disk is full.
        """
        file = self.folder / str(next(self._numbers))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, data)
        except OSError as error:
            raise cannot(f"{file} can't be written", error) from error
        if sidecar:
            self.add_sidecar(file, sidecar)
        return file

    def attach_sidecar(self, file: Path, sidecar: Path) -> None:
        """Put a file of the spool beside another one as its sidecar; errors as in `add`."""
        try:
            sidecar.rename(f"{file}{SIDECAR_SUFFIX}")
        except OSError as error:
            raise cannot(f"{file} can't be written", error) from error

    def add_sidecar(self, file: Path, data: bytes) -> None:
        """Put its sidecar beside a file of the spool; errors as in `add`."""
        try:
            _write(Path(f"{file}{SIDECAR_SUFFIX}"), data)
        except OSError as error:
            raise cannot(f"{file} can't be written", error) from error


@contextmanager
def spooling(data: Path, collection: Collection) -> Iterator[Spool]:
    """The spool of a run on this collection, which the caller has open for writing; removed afterwards."""
    key = collection.tenant, collection.name
    try:
        yield Spool(Path(os.path.realpath(spool_folder(data, *key))))
    finally:
        empty_spool(data, *key)


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
