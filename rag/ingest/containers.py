"""Opens files that contain documents, and puts what they contain into the spool.

A container is opened in the sandbox. Its parts are documents of their own, right after it. What can't be
taken out is a line of the report, and what is stored of it stays.

The spool holds private copies, for one run, of documents that don't lie in files of their own: attachments of
mails, members of archives and documents from other origins. So all steps of a run read files. Its folder is
inside the data folder, only its owner can read it, and it is removed when the run ends. What a killed run
left is removed by the next writer of the collection, also by a purge.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.corpus import Collection
from rag.errors import ParseError
from rag.ingest.container_cache import ContainerCache, container_digest
from rag.ingest.discover import Discovery, left_out, unsupported
from rag.ingest.local_files import LocalFile, over_limit, read
from rag.ingest.metadata import access_requested
from rag.ingest.parse.document_parts import Member, Names
from rag.ingest.parse.parsers import (
    is_container,
    is_document,
    is_recognized,
    is_supported,
    is_unnamed,
    may_contain,
)
from rag.ingest.report import Outcome
from rag.ingest.sandbox.parser_pool import members_safely
from rag.ingest.source_paths import part_uri, parts_prefix, prefixes, printable
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX
from rag.report.text_and_html import counted
from rag.store.write.desk_folder import cannot, empty_spool, spool_folder

if TYPE_CHECKING:
    from rag.config.settings import IngestSettings

MAX_DEPTH = 3  # an archive of mails with archives
MAX_MEMBERS = 10_000  # of a file, including those of the files in it
MAX_BYTES = 1 << 30  # that a file may unpack to
MAX_RATIO = 100  # to its own size; texts reach 20
SMALL_BYTES = 100 << 20  # below that the ratio doesn't matter
MAX_CONTAINER_BYTES = 256 << 20  # a file of thousands of documents may be larger than one document


async def open_containers(
    discovery: Discovery, spool: Spool, settings: IngestSettings, known: Iterable[str], opened: ContainerCache
) -> None:
    """Open what contains documents, and put these among the found ones, each right after its container.

    A container that is no document itself is taken from the found ones. `known` are the URIs of stored
    sources. What `opened` knows to be as before is not opened.
    """
    stored = sorted(uri for uri in known if "#" in uri)
    found = tuple(discovery.files.values())
    discovery.files.clear()
    for one in found:
        discovery.files[one.uri] = one
        if may_contain(one.path.name, archives=settings.archives) or is_unnamed(one.path.name):
            await _Opening(discovery, spool, settings, stored, opened).open(one)
    opened.restore_unchanged(discovery)


@dataclass(slots=True)
class _Opening:
    """The opening of a file and of what it contains, within limits that hold for all of it."""

    discovery: Discovery
    spool: Spool
    settings: IngestSettings
    stored: Sequence[str]
    opened: ContainerCache
    content: str = ""
    as_before: bool = False
    failed: bool = False
    members: int = 0
    unpacked: int = 0
    most: int = 0

    async def open(self, container: LocalFile, depth: int = 1) -> None:
        """Take out the parts of a container, and open those that are containers."""
        name, parts = container.path.name, _Parts(self, container)
        is_source = is_supported(name)
        most, before = max(MAX_CONTAINER_BYTES, self.settings.max_file_bytes), len(self.discovery.outcomes)
        try:
            data = await to_thread.run_sync(read, container, most)
            is_source = is_document(data, name)
            if not is_container(data, name, archives=self.settings.archives):
                self.opened.note_plain(container.uri)
            elif not (depth == 1 and await self._is_as_before(container, data)):
                self.most = self.most or min(MAX_BYTES, max(SMALL_BYTES, MAX_RATIO * len(data)))
                await self._take_out(data, parts, depth)
        except ParseError as error:
            self._note_failure(container, error, is_source=is_source)
        else:
            if not is_source and not self.as_before:
                reason = f"{counted(len(parts.found), 'document')} in it"
                self.discovery.outcomes.append(Outcome(printable(container.path), "ignored", reason))
        if not is_source:
            del self.discovery.files[container.uri]
        for part in parts.found.values():
            self.discovery.files[part.uri] = part
            if may_contain(part.path.name, archives=self.settings.archives) or is_unnamed(part.path.name):
                await self.open(part, depth + 1)
        if depth == 1 and self.content and not (self.failed or self.as_before):
            self.opened.note(container.uri, self.content, self.discovery.outcomes[before:])

    async def _is_as_before(self, container: LocalFile, data: bytes) -> bool:
        """Whether an earlier run took the same out of a file; then its parts are those that are stored."""
        self.content = await to_thread.run_sync(container_digest, container, data)
        self.as_before = self.opened.is_as_before(container.uri, self.content)
        if self.as_before:
            self.opened.restore(container, self.discovery)
        return self.as_before

    async def _take_out(self, data: bytes, parts: _Parts, depth: int) -> None:
        container = parts.container
        if depth > MAX_DEPTH:
            raise ParseError(f"files in files are opened {MAX_DEPTH} deep at most", "too large")
        requested = await to_thread.run_sync(access_requested, container)
        parts.requests = (requested, *container.requests) if requested else container.requests
        self.discovery.containers[container.uri] = container
        budget = self.discovery.budget(container.uri, self.settings.parse_timeout_seconds)
        try:
            await members_safely(data, printable(container.path.name), parts.receive, budget=budget)
        except ParseError as error:
            self.discovery.note_broken(container.uri, error)
            raise
        finally:
            self.discovery.spent[container.uri] = budget.spent
            parts.attach_sidecars()
        self.discovery.whole.add(parts_prefix(container.uri))

    def _note_failure(self, container: LocalFile, error: ParseError, *, is_source: bool) -> None:
        """A document gets a remark, since its text may be fine; what only contains others is skipped."""
        prefix, self.failed = parts_prefix(container.uri), True
        self.discovery.partly.add(prefix)
        kept = "; what is stored of it stays" if self.first_stored(prefix).startswith(prefix) else ""
        if is_source:
            remark = f"not all documents in it can be taken out: {error}{kept}"
            self.discovery.remarks[container.uri] = remark
        else:
            path = printable(container.path)
            self.discovery.outcomes.append(Outcome(path, "skipped", f"{error}{kept}", cause=error.cause))

    def first_stored(self, start: str) -> str:
        """The first URI of a stored part that is not before `start`, in order; "" if there is none."""
        at = bisect_left(self.stored, start)
        return self.stored[at] if at < len(self.stored) else ""


@dataclass(slots=True)
class _Parts:
    """The parts of a container that are documents, by their paths in it."""

    opening: _Opening
    container: LocalFile
    requests: tuple[Mapping[str, str], ...] = ()
    found: dict[str, LocalFile] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    sidecars: dict[str, Path] = field(default_factory=dict)

    def receive(self, member: Member) -> None:
        """Put a member into the spool, or report why it isn't wanted.

        Raises:
            ParseError: the file has more members, or larger ones, than any may have.
        """
        opening, settings = self.opening, self.opening.settings
        opening.members += 1
        opening.unpacked += len(member.data)
        if opening.members > MAX_MEMBERS:
            raise ParseError(f"it holds more than {MAX_MEMBERS:,} files", "too large")
        if opening.unpacked > opening.most:
            raise ParseError(f"it unpacks to more than {opening.most >> 20} MB", "too large")
        path = inner_path(member.name)
        if path is None or member.refused:
            reason = member.refused or "its name leads out of the file that contains it"
            self._report(Outcome(self._place(member.name), "skipped", reason, cause=member.cause))
        elif path.endswith(SIDECAR_SUFFIX):
            kept = member.data[: SIDECAR_BYTES + 1]  # a longer one is refused where it is read
            self.sidecars[path] = opening.spool.add(kept)
        elif left_out(path, settings):
            return
        elif self._is_wanted(path, member):
            self._add_if_small(self.names.take(path), member)
        else:
            self._report(Outcome(self._place(path), "ignored", unsupported(path), kind="unsupported"))

    def _is_wanted(self, path: str, member: Member) -> bool:
        contains = may_contain(path, archives=self.opening.settings.archives)
        return is_supported(path) or contains or is_recognized(member.data, path)

    def _add_if_small(self, path: str, member: Member) -> None:
        """Add a member, unless it is larger than a document may be, and contains none."""
        opening, most, size = self.opening, self.opening.settings.max_file_bytes, len(member.data)
        if size <= most or is_container(member.data, path, archives=opening.settings.archives):
            self._add(path, member)
            return
        uri, error = part_uri(self.container.uri, path), over_limit(size, most)
        opening.discovery.kept.add(uri)
        kept = "; the earlier version stays" if opening.first_stored(uri) == uri else ""
        self._report(Outcome(self._place(path), "skipped", f"{error}{kept}", cause=error.cause))

    def _add(self, path: str, member: Member) -> None:
        outer = self.container
        self.found[path] = LocalFile(
            part_uri(outer.uri, path),
            outer.path / path,
            f"{outer.name}/{path}",
            self.opening.spool.add(member.data),
            member.stated,
            outer.uri,
            self.requests,
        )

    def attach_sidecars(self) -> None:
        """Put the sidecars that were among the members beside the documents that they describe."""
        for path, sidecar in self.sidecars.items():
            if described := self.found.get(path.removesuffix(SIDECAR_SUFFIX)):
                self.opening.spool.attach_sidecar(described.file, sidecar)

    def _report(self, outcome: Outcome) -> None:
        self.opening.discovery.outcomes.append(outcome)

    def _place(self, name: str) -> str:
        return printable(f"{self.container.path}/{name}")


MAX_NAME_CHARS = (
    1_024  # of a member's path: the folders above it are looked at in time that grows as their square
)


def inner_path(name: str) -> str | None:
    """A member's path as a relative path without odd parts; None if it leads out, or is too long.

    Backslashes count as slashes. Example: "./x//y.md" -> "x/y.md"; "/etc/passwd" and "a/../../b.md" -> None.
    """
    if len(name) > MAX_NAME_CHARS:
        return None
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or "\0" in name:
        return None
    leads_out = ".." in path.parts or path.parts[0].endswith(":")
    return None if leads_out else str(path)


def unopened(known: Iterable[str], discovery: Discovery) -> Iterator[str]:
    """A note on sources that stay because what contains them was not opened, although it is there."""
    parts = [uri for uri in known if "#" in uri and not discovery.is_gone(uri) and uri not in discovery.kept]
    outer = {uri.partition("#")[0] for uri in parts if any(one in discovery.whole for one in prefixes(uri))}
    if left := outer - {uri.partition("#")[0] for uri in discovery.containers} - discovery.unchanged:
        yield (
            f"{counted(len(left), 'archive')} with stored documents not opened; the documents stay. Add "
            "--archives to bring them up to date, or remove them with refdesk-admin remove."
        )


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
