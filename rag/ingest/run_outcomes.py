"""How far a run is, the outcomes of its files so far, and the notes of its report on all of them.

Progress is in bytes of files, so that a bar can show its rate and the time left. The number of files says
little, as they differ in size, and the number of chunks is known only at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path, PurePath
from typing import Protocol

from rag.config.settings import IngestSettings
from rag.corpus import Access, Source
from rag.errors import ConfigurationError, EmptyFileError, ParseError
from rag.ingest.chunk_vectors import vector_notes
from rag.ingest.parse import xberg_formats
from rag.ingest.parse.parsers import OF_EXTRA
from rag.ingest.prepare import Prepared
from rag.ingest.report import Outcome, OutcomeKind, flag_notes, policy_notes
from rag.ingest.source_files import LocalFile, path_of
from rag.runtime import install_command
from rag.store.write.table_rows import KnownSource
from rag.text.flags import Flag
from rag.text.languages import LANGUAGE


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
    """Reports progress in bytes; `sizes` are the sizes of the run's files by URI."""

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


@dataclass(slots=True)
class Outcomes:
    """The outcomes so far, in the order in which files were finished; each is passed on to `progress`.

    Remarks on a source are collected by its URI until it is finished. `parts` are the digests of stored
    parts of containers, and `empty` the outcomes of parts without text, by URI. `undeclared` counts documents
    by the names of metadata without a declared field.
    """

    progress: Progress
    finished: list[Outcome] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    empty: dict[str, Outcome] = field(default_factory=dict)
    undeclared: Counter[str] = field(default_factory=Counter)
    _remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _flags: dict[str, tuple[Flag, ...]] = field(default_factory=dict)
    _masked: dict[str, Mapping[Flag, int]] = field(default_factory=dict)

    def remark(self, uri: str, *remarks: str) -> None:
        """Add remarks to the outcome of a source."""
        self._remarks[uri] += remarks

    def note_text(self, uri: str, flags: tuple[Flag, ...], masked: Mapping[Flag, int]) -> None:
        """Set the flags of a source's text, and the numbers of values that were masked in it."""
        self._flags[uri], self._masked[uri] = flags, masked

    def finish(self, outcomes: Iterable[Outcome]) -> None:
        """Add the outcomes of finished files."""
        for outcome in outcomes:
            self.finished.append(outcome)
            self.progress.finished(outcome)

    def finish_source(
        self,
        kind: OutcomeKind,
        source: Source | KnownSource,
        remarks: Iterable[str] = (),
        access: Access | None = None,
    ) -> None:
        """Add the outcome of a stored source, with its collected remarks and these."""
        lacking, chunks, uri = source.without_vector, source.chunk_count, source.uri
        about_vectors = [f"{lacking} of {chunks} chunks without a vector"] if lacking else []
        reason = "; ".join([*self._remarks[uri], *remarks, *about_vectors])
        flags, masked = self._flags.get(uri, ()), self._masked.get(uri, {})
        path = path_of(uri)
        if "#" in uri:
            self.parts[uri] = source.digest
        language = source.metadata.get(LANGUAGE, "")
        self.finish(
            [
                Outcome(
                    path,
                    kind,
                    reason,
                    source.id,
                    chunks,
                    access,
                    lacking,
                    flags,
                    masked=masked,
                    language=language,
                )
            ]
        )

    def fail(self, file: LocalFile, error: ParseError, *, has_earlier: bool) -> None:
        """Add the outcome of a file that can't be stored. An empty file fails only if it had text before."""
        path = path_of(file.uri)
        if not isinstance(error, EmptyFileError):
            stays = "; the earlier version stays" if has_earlier else ""
            self.finish([Outcome(path, "skipped", f"{error}{stays}", cause=error.cause)])
        elif has_earlier:
            reason = f"{error} any more; the earlier version stays"
            self.finish([Outcome(path, "skipped", reason, cause="no text")])
        else:
            self.empty[file.uri] = Outcome(path, "ignored", str(error), kind="empty")
            self.finish([self.empty[file.uri]])

    def ids(self, *kinds: OutcomeKind) -> set[str | None]:
        """The ids of the sources with one of these outcomes."""
        return {outcome.source_id for outcome in self.finished if outcome.outcome in kinds}

    def notes(self, *, vectors_added: int) -> Iterator[str]:
        """Notes on the documents as a whole; `vectors_added` stored chunks got their vectors in this run."""
        yield from vector_notes(self.finished, vectors_added=vectors_added)
        yield from flag_notes(self.finished)
        yield from extra_notes(self.finished)
        yield from policy_notes(self.finished)


def check_extras(settings: IngestSettings) -> None:
    """Check that the extras that the settings need are installed.

    Raises:
        ConfigurationError: OCR is on and the extra isn't installed.
    """
    if settings.ocr != "off" and not find_spec("rapidocr"):
        raise ConfigurationError(
            f'ingest.ocr is "{settings.ocr}", but OCR is not installed. '
            f'Run {install_command("ocr")}, or set ingest.ocr to "off".'
        )


def extra_notes(outcomes: Iterable[Outcome]) -> list[str]:
    """A note on the files that could be read after installing an extra."""
    left_out = (
        PurePath(outcome.path).suffix.lower()
        for outcome in outcomes
        if outcome.outcome in {"ignored", "skipped"}
    )
    counts = Counter(suffix for suffix in left_out if suffix in OF_EXTRA)
    if not counts or xberg_formats.is_installed():
        return []
    number, kinds = counts.total(), ", ".join(sorted(counts))
    files = "file" if number == 1 else "files"
    return [f"{number} {files} ({kinds}) can be read after: {install_command('formats')}"]
