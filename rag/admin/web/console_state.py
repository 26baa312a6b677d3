"""The console's state between requests: the doctor's findings, the ingestion, cached lists of documents.

The doctor runs in the background. An ingestion is `refdesk-admin ingest` in a process of its own. A list of
documents is cached until its collection changes: reading 10,000 sources takes 0.2 s, filtering them in memory
a few milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rag.access.rule import visible
from rag.admin.doctor_command import HealthLine, check_machine, data_findings, health_line
from rag.config.settings import Settings
from rag.corpus import Access, Collection, LetterCase, Principal
from rag.errors import BusyError, RefdeskError
from rag.runtime import grouped, installed_command, lines_of
from rag.store.care.folder_checks import Finding
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import StoredSource

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process, TaskGroup


class Health:
    """The results of the doctor's last checks, without checks that call a model or start a server."""

    def __init__(self, settings: Settings, config: Path) -> None:
        self._settings = settings
        self._config = config
        self._lock = anyio.Lock()
        self.lines: tuple[HealthLine, ...] = ()
        self.at: datetime | None = None

    @property
    def wrong(self) -> int:
        """How many parts are not as they should be."""
        return sum(line.state == "wrong" for line in self.lines)

    async def look(self) -> None:
        """Run all checks again."""
        async with self._lock:
            machine, data = check_machine(self._settings, self._config), data_findings(self._settings)
            try:
                health = [finding for checks in (machine, data) async for finding in checks]
            except (RefdeskError, OSError) as error:  # nothing may end the console
                health = [Finding("data folder", str(self._settings.data), str(error))]
            self.lines = tuple(map(health_line, health))
            self.at = datetime.now(UTC)


LINES = 500  # of files that are shown
END_SECONDS = 10  # for an ingestion that is interrupted
LINES_FOR_PEOPLE = ("refdesk-admin: ", "Note: ", "Not logged: ", "Interrupted")
"""How the lines for people begin; the storage engine writes lines of its own."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """The outcome of a file."""

    outcome: str
    path: str
    reason: str


@dataclass(slots=True)
class Job:
    """An ingestion: the number of `files`, how many are `done`, the last outcomes, and the exit code.

    The paths in `lines` are relative to `folder`. `messages` are its lines for people. `code` is None while
    it runs.
    """

    collection: str
    folder: Path
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    files: int | None = None
    done: int = 0
    lines: deque[FileLine] = field(default_factory=lambda: deque(maxlen=LINES))
    messages: list[str] = field(default_factory=list)
    code: int | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def tenant(self) -> str:
        """The tenant of the documents: `upload_folder` puts it into the path."""
        return self.folder.parent.name

    @property
    def by_outcome(self) -> dict[str, list[FileLine]]:
        """The last files by outcome: failures first, and the latest first within each outcome."""
        groups = grouped((line.outcome, line) for line in reversed(self.lines))
        failed = groups.pop("skipped", None)
        return ({"skipped": failed} if failed else {}) | groups

    @property
    def runs(self) -> bool:
        """Whether it is still running."""
        return self.code is None

    def note(self, line: str) -> None:
        """Process a line of standard error: a JSON line of the log, or one for people."""
        with suppress(ValueError):
            match json.loads(line):
                case {"event": "started", "files": files}:
                    self.files = files
                case {"event": "file", "outcome": outcome, "path": path, **others}:
                    self.done += 1
                    path = path.removeprefix(f"{self.folder}{os.sep}")
                    self.lines.append(FileLine(outcome, path, str(others.get("reason", ""))))
            return self._tell()
        if line.startswith(LINES_FOR_PEOPLE):
            self.messages.append(line)
        return self._tell()

    def say(self, line: str) -> None:
        """Process a line of standard output, which is part of the summary."""
        if line.strip():
            self.messages.append(line)
        self._tell()

    def end(self, code: int) -> None:
        """Note the exit code, and wake all waiting tasks."""
        self.code = code
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Jobs:
    """Runs one ingestion at a time, in the task group `tasks`, which interrupts it when the console ends."""

    def __init__(self) -> None:
        self.last: Job | None = None
        self.tasks: TaskGroup | None = None
        self._process: Process | None = None

    def check_free(self) -> None:
        """Raise BusyError if an ingestion is running."""
        if self.last and self.last.runs:
            raise BusyError("An ingestion is running. Wait until it has ended, or stop it.")

    def start(self, collection: str, folder: Path, arguments: Sequence[str]) -> None:
        """Start an ingestion.

        Raises:
            BusyError: another one is running, or the console is ending.
            ConfigurationError: the command isn't installed.
        """
        self.check_free()
        path = installed_command("refdesk-admin")
        if self.tasks is None:
            raise BusyError("The console is ending.")
        self.last = Job(collection, folder)
        self.tasks.start_soon(self._run, self.last, [path, "ingest", *arguments])

    def stop(self) -> None:
        """Interrupt the ingestion like Ctrl-C. Committed work stays."""
        if self._process and self._process.returncode is None:
            if os.name == "nt":
                self._process.terminate()
            else:
                self._process.send_signal(signal.SIGINT)

    async def _run(self, job: Job, command: Sequence[str]) -> None:
        try:
            # A session of its own: Ctrl-C in the terminal reaches the console only, which then interrupts it.
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
    if stream is None:
        return
    with suppress(anyio.ClosedResourceError):
        async for line in lines_of(stream):
            take(line)


@dataclass(frozen=True, slots=True)
class IndexedSource:
    """A source, and its title, URI and id in lower case."""

    stored: StoredSource
    words: str


@dataclass(frozen=True, slots=True)
class CollectionSources:
    """The sources of a collection, sorted by title, at a version of its tables."""

    collection: Collection
    version: tuple[int, int]
    sources: tuple[IndexedSource, ...]
    kinds: frozenset[str]


class SourceLists:
    """A cache of the sources of each collection, by tenant and name."""

    def __init__(self) -> None:
        self._cached: dict[tuple[str, str], CollectionSources] = {}

    async def of(self, table: CollectionReader) -> CollectionSources:
        """The present sources of a collection."""
        collection, version = table.collection, await table.version()
        key = collection.tenant, collection.name
        cached = self._cached.get(key)
        if cached is None or (cached.collection, cached.version) != (collection, version):
            cached = self._cached[key] = _index_sources(collection, version, await table.all_sources())
        return cached


def _index_sources(
    collection: Collection, version: tuple[int, int], stored: Iterable[StoredSource]
) -> CollectionSources:
    sources = [
        IndexedSource(source, f"{source.source.title}\n{source.source.uri}\n{source.id}".casefold())
        for source in stored
    ]
    sources.sort(key=lambda source: (source.words, source.stored.id))
    kinds = frozenset(source.stored.source.mime_type for source in sources)
    return CollectionSources(collection, version, tuple(sources), kinds)


def matching_documents(
    collections: Iterable[CollectionSources], text: str, kind: str, reader: Principal | None, case: LetterCase
) -> list[StoredSource]:
    """The documents with this text in title, URI or id, of this type, that `reader` may see, in order."""
    text, decisions = text.casefold(), dict[Access | None, bool]()
    chosen = []
    for indexed in (source for collection in collections for source in collection.sources):
        stored = indexed.stored
        if text not in indexed.words or kind not in {"", stored.source.mime_type}:
            continue
        if reader:
            if stored.access not in decisions:  # most documents share their record with others
                decisions[stored.access] = visible(reader, stored.access, case)
            if not decisions[stored.access]:
                continue
        chosen.append(stored)
    return chosen
