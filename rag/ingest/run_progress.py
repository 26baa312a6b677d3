"""The progress of a run in bytes of files, so that a bar can show its rate and the time left.

The number of files says little, as they differ in size, and the number of chunks is known only at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rag.ingest.local_files import LocalFile
    from rag.ingest.prepare import Prepared
    from rag.ingest.report import Outcome


class Progress(Protocol):
    """Follows a run."""

    def started(self, files: int, work: int) -> None:
        """The number of files to finish (removed ones come on top), and their bytes to work on."""

    def worked(self, work: int) -> None:
        """`work` more bytes were embedded, or need no embedding."""

    def embedded(self, chunks: int) -> None:
        """`chunks` more were embedded."""

    def finished(self, outcome: Outcome) -> None:
        """A file is finished."""


class SilentProgress:
    """Shows nothing of a run."""

    def started(self, files: int, work: int) -> None:
        """Nothing."""

    def worked(self, work: int) -> None:
        """Nothing."""

    def embedded(self, chunks: int) -> None:
        """Nothing."""

    def finished(self, outcome: Outcome) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class ByteProgress:
    """Reports progress in bytes; `sizes` are those of the run's files by URI."""

    sizes: Mapping[str, int]
    progress: Progress

    def pass_over(self, uri: str) -> None:
        """Count a file that needs no embedding."""
        self.progress.worked(self.sizes[uri])

    def counter(self, wave: Sequence[Prepared]) -> Callable[[int], None]:
        """A function to call with a number of embedded texts; each counts an equal share of its file."""
        shares = (
            share
            for prepared in wave
            for share in _shares(self.sizes[prepared.file.uri], len(prepared.chunked.passages))
        )

        def count(texts: int) -> None:
            self.progress.embedded(texts)
            self.progress.worked(sum(islice(shares, texts)))

        return count


def _shares(size: int, parts: int) -> Iterator[int]:
    """Split a size into parts that differ by at most one: (5, 2) -> 2, 3."""
    return (size * (part + 1) // parts - size * part // parts for part in range(parts))


def sizes(files: Iterable[LocalFile], max_bytes: int) -> dict[str, int]:
    """The bytes of files by URI, at most `max_bytes` each; 0 for one that is gone or not read."""
    return {file.uri: 0 if file.as_stored else min(_size(file.read_from), max_bytes) for file in files}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
