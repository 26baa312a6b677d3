"""What the console keeps between requests: the doctor's findings, an ingestion, lists of documents.

The doctor looks in the background. An ingestion is `refdesk-admin ingest` in a process of its own. What the
list of documents is filtered by is kept until a collection changes: reading 10,000 sources takes a fifth of a
second, and looking for a word in what is kept a few milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from rag.access.rule import visible
from rag.admin.doctor_command import check_machine, data_findings, state_and_text
from rag.corpus import Access, Collection, LetterCase, Principal
from rag.errors import BusyError, ConfigurationError, RefdeskError
from rag.store.care.folder_checks import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process, TaskGroup

    from rag.config.settings import Settings
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.stored_rows import StoredSource


@dataclass(frozen=True, slots=True)
class HealthLine:
    """What a check says of a part: its state is fine, note or wrong."""

    check: str
    part: str
    state: str
    text: str


class Health:
    """The lines of the doctor's last visit, without what asks models or starts servers."""

    def __init__(self, settings: Settings, config: Path) -> None:
        self._settings = settings
        self._config = config
        self._visits = anyio.Lock()
        self.lines: tuple[HealthLine, ...] = ()
        self.at: datetime | None = None

    @property
    def wrong(self) -> int:
        """How many parts are not as they should be."""
        return sum(line.state == "wrong" for line in self.lines)

    async def look(self) -> None:
        """Look at everything again."""
        async with self._visits:
            machine, data = check_machine(self._settings, self._config), data_findings(self._settings)
            try:
                found = [one for checks in (machine, data) async for one in checks]
            except (RefdeskError, OSError) as error:  # nothing may end the console
                found = [Finding("data folder", str(self._settings.data), str(error))]
            self.lines = tuple(HealthLine(one.check, one.part, *state_and_text(one)) for one in found)
            self.at = datetime.now(UTC)


COMMAND = "refdesk-admin"
LINES = 500  # of files that are shown
LONGEST_LINE = 1_000_000  # bytes
END_SECONDS = 10  # for an ingestion that is interrupted
LINES_FOR_PEOPLE = ("refdesk-admin: ", "Note: ", "Not logged: ", "Interrupted")
"""How the lines for people begin; the storage engine writes lines of its own."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """What became of a file."""

    outcome: str
    path: str
    reason: str


@dataclass(slots=True)
class Job:
    """A run: how many `files` it has, how many are `done`, what became of the last ones, and its exit code.

    Its files are in `folder`, which their paths leave out. `said` holds its lines for people. `code` is None
    while it runs.
    """

    collection: str
    folder: Path
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    files: int | None = None
    done: int = 0
    lines: deque[FileLine] = field(default_factory=lambda: deque(maxlen=LINES))
    said: list[str] = field(default_factory=list)
    code: int | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def tenant(self) -> str:
        """Whose documents these are: `uploads.folder_of` has it."""
        return self.folder.parent.name

    @property
    def by_outcome(self) -> dict[str, list[FileLine]]:
        """The last files by what became of them, failures first, the latest first in each."""
        groups: dict[str, list[FileLine]] = {"skipped": []}
        for line in reversed(self.lines):
            groups.setdefault(line.outcome, []).append(line)
        return {outcome: lines for outcome, lines in groups.items() if lines}

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    def note(self, line: str) -> None:
        """Take in a line of the standard error: one of the log, or one for people."""
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == "started":
                self.files = entry["files"]
            elif isinstance(entry, dict) and entry.get("event") == "file":
                self.done += 1
                self.lines.append(
                    FileLine(
                        entry["outcome"],
                        entry["path"].removeprefix(f"{self.folder}{os.sep}"),
                        entry.get("reason", ""),
                    )
                )
            return self._tell()
        if line.startswith(LINES_FOR_PEOPLE):
            self.said.append(line)
        return self._tell()

    def say(self, line: str) -> None:
        """Take in a line of the standard output, which sums the run up."""
        if line.strip():
            self.said.append(line)
        self._tell()

    def end(self, code: int) -> None:
        """It has ended."""
        self.code = code
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Jobs:
    """One run at a time. `tasks` runs it, and interrupts it when the console ends."""

    def __init__(self) -> None:
        self.last: Job | None = None
        self.tasks: TaskGroup | None = None
        self._process: Process | None = None

    def check_free(self) -> None:
        """Check that no run has not ended.

        Raises:
            BusyError: one hasn't.
        """
        if self.last and self.last.runs:
            raise BusyError("An ingestion is running. Wait until it has ended, or stop it.")

    def start(self, collection: str, folder: Path, arguments: Sequence[str]) -> None:
        """Begin a run.

        Raises:
            BusyError: another one hasn't ended.
            ConfigurationError: the command isn't installed.
        """
        self.check_free()
        scripts = sysconfig.get_path("scripts")
        path = shutil.which(COMMAND, path=scripts)
        if path is None:
            raise ConfigurationError(f"There is no {COMMAND} in {scripts}; install it as a whole.")
        if self.tasks is None:
            raise BusyError("The console is ending.")
        self.last = Job(collection, folder)
        self.tasks.start_soon(self._run, self.last, [path, "ingest", *arguments])

    def stop(self) -> None:
        """Interrupt the run, as Ctrl-C does. What is complete is kept."""
        if self._process and self._process.returncode is None:
            if os.name == "nt":
                self._process.terminate()
            else:
                self._process.send_signal(signal.SIGINT)

    async def _run(self, job: Job, command: Sequence[str]) -> None:
        try:
            # In a session of its own: Ctrl-C in the terminal ends the console, which interrupts it then.
            self._process = await anyio.open_process(
                command, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            job.say(f"It could not be started: {error.strerror}.")
            job.end(1)
            return
        process = self._process
        try:
            async with anyio.create_task_group() as readers:
                readers.start_soon(_read, process.stderr, job.note)
                readers.start_soon(_read, process.stdout, job.say)
            job.end(await process.wait())
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    self.stop()
                    with anyio.move_on_after(END_SECONDS):
                        await process.wait()
                await process.aclose()  # kills it if it still runs


async def _read(stream: ByteReceiveStream | None, take: Callable[[str], None]) -> None:
    """Pass each line of a stream on, until it ends."""
    if stream is None:
        return
    lines = BufferedByteReceiveStream(stream)
    with suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError):
        while True:
            line = await lines.receive_until(b"\n", LONGEST_LINE)
            take(line.decode("utf-8", "replace").rstrip("\r"))


@dataclass(frozen=True, slots=True)
class IndexedSource:
    """A source, and its title and URI with letter case folded."""

    stored: StoredSource
    words: str


@dataclass(frozen=True, slots=True)
class CollectionSources:
    """The sources of a collection by title, as of a version of its tables."""

    collection: Collection
    version: tuple[int, int]
    books: tuple[IndexedSource, ...]
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents: those with this text in their title or URI, of a kind, and that somebody may see."""

    text: str = ""
    kind: str = ""
    reader: Principal | None = None


class SourceLists:
    """The shelves that were looked at."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], CollectionSources] = {}

    async def of(self, table: CollectionReader) -> CollectionSources:
        """The shelf of a collection as it is now."""
        made, version = table.collection, await table.version()
        key = made.tenant, made.name
        kept = self._kept.get(key)
        if kept is None or (kept.collection, kept.version) != (made, version):
            kept = self._kept[key] = _shelf(made, version, await table.stored())
        return kept


def _shelf(made: Collection, version: tuple[int, int], stored: Iterable[StoredSource]) -> CollectionSources:
    books = [
        IndexedSource(one, f"{one.source.title}\n{one.source.uri}\n{one.id}".casefold()) for one in stored
    ]
    books.sort(key=lambda book: (book.words, book.stored.id))
    return CollectionSources(
        made, version, tuple(books), frozenset(book.stored.source.mime_type for book in books)
    )


def matching_documents(
    shelves: Iterable[CollectionSources], wanted: DocumentFilter, case: LetterCase
) -> list[StoredSource]:
    """The documents that are wanted, in the order of the shelves."""
    text, known = wanted.text.casefold(), dict[Access | None, bool]()
    chosen = []
    for book in (book for shelf in shelves for book in shelf.books):
        stored = book.stored
        if text not in book.words or wanted.kind not in {"", stored.source.mime_type}:
            continue
        if wanted.reader:
            if stored.access not in known:  # most documents have the rights of others
                known[stored.access] = visible(wanted.reader, stored.access, case)
            if not known[stored.access]:
                continue
        chosen.append(stored)
    return chosen
