"""Opens files that contain documents, and copies these documents into the spool.

A container is opened in the sandbox. Each part becomes a separate document, right after its container. A part
that can't be extracted is reported, and its stored version stays.

The spool is a folder of temporary copies: mail attachments, archive members and documents of remote origins.
It lets every step of a run read files. It lies in the data folder, only its owner can read it, and it is
removed when the run ends. The next writer of the collection, or a purge, removes what a killed run left.

A cache remembers which parts earlier runs extracted. If a container, the settings for opening it and its
stored parts are all unchanged, the container is read, but not opened again: its parts count as unchanged
files, and their rights follow this run and their container. Without the cache file, every container is
opened.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from anyio import to_thread

from rag.config.settings import IngestSettings
from rag.corpus import Collection
from rag.errors import ParseError, RefdeskError, WithheldError
from rag.home import Home
from rag.ingest.discover import Discovery, is_left_out, unsupported
from rag.ingest.parse import parsers
from rag.ingest.parse.document_parts import Member, UniqueNames
from rag.ingest.prepare import access_requested, read_sidecar, stated_json
from rag.ingest.report import Outcome, Outcomes
from rag.ingest.requested_access import Rights
from rag.ingest.sandbox.parser_pool import members_safely
from rag.ingest.source_files import (
    LocalFile,
    is_local,
    over_limit,
    part_uri,
    parts_prefix,
    path_of,
    place_of,
    prefixes,
    printable,
    read,
)
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX
from rag.report import counted
from rag.store.write.desk_folder import empty_spool, origins_folder, spool_folder, unwritable, write_whole
from rag.store.write.table_rows import KnownSource

MAX_DEPTH = 3  # an archive of mails with archives
MAX_MEMBERS = 10_000  # of a file, with the members of the files in it
MAX_BYTES = 1 << 30  # that a file may unpack to
MAX_RATIO = 100  # to its own size; texts reach 20
SMALL_BYTES = 100 << 20  # below that the ratio doesn't matter
MAX_CONTAINER_BYTES = 256 << 20  # a file of thousands of documents may be larger than one document


async def open_containers(
    discovery: Discovery,
    spool: Spool,
    settings: IngestSettings,
    stored: Iterable[str],
    opened: ContainerCache,
) -> None:
    """Open the containers, and insert the documents in them right after each container.

    A container that isn't itself a document leaves `discovery.files`. `stored` are the URIs of stored
    sources. A container that `opened` recognizes as unchanged is not opened.
    """
    stored_parts = sorted(uri for uri in stored if "#" in uri)
    files = tuple(discovery.files.values())
    discovery.files.clear()
    for file in files:
        discovery.files[file.uri] = file
        if _may_hold_documents(file, settings):
            await _Opening(discovery, spool, settings, stored_parts, opened).open(file)
    opened.restore_unchanged(discovery)


def _may_hold_documents(file: LocalFile, settings: IngestSettings) -> bool:
    """Whether to look into a file: its name says that it is a container, or doesn't tell its type."""
    name = file.path.name
    return parsers.may_contain(name, archives=settings.archives) or parsers.is_unnamed(name)


@dataclass(slots=True)
class _Opening:
    """One outermost container and everything nested in it; the limits hold for all of it together."""

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
    max_unpacked: int = 0

    async def open(self, container: LocalFile, depth: int = 1) -> None:
        """Extract the parts of a container, and open those parts that are containers themselves."""
        name, parts = container.path.name, _Parts(self, container)
        is_source = parsers.is_supported(name)  # by its name, until its content can be read
        max_bytes = max(MAX_CONTAINER_BYTES, self.settings.max_file_bytes)
        before = len(self.discovery.outcomes)
        try:
            data = await to_thread.run_sync(read, container, max_bytes)
            is_source = parsers.is_document(data, name)
            if not parsers.is_container(data, name, archives=self.settings.archives):
                self.opened.note_plain(container.uri)
            elif not (depth == 1 and await self._is_as_before(container, data)):
                # The size of the outermost container limits everything nested in it.
                limit = min(MAX_BYTES, max(SMALL_BYTES, MAX_RATIO * len(data)))
                self.max_unpacked = self.max_unpacked or limit
                await self._take_out(data, parts, depth)
        except ParseError as error:
            self._note_failure(container, error, is_source=is_source)
        else:
            if not is_source and not self.as_before:
                reason = f"{counted(len(parts.documents), 'document')} in it"
                self.discovery.outcomes.append(Outcome(printable(container.path), "ignored", reason))
        if not is_source:
            del self.discovery.files[container.uri]
        for part in parts.documents.values():  # parts extracted before a failure are kept
            self.discovery.files[part.uri] = part
            if _may_hold_documents(part, self.settings):
                await self.open(part, depth + 1)
        # A failure anywhere inside must be tried again, so only a complete opening is cached.
        if depth == 1 and self.content and not (self.failed or self.as_before):
            self.opened.note(container.uri, self.content, self.discovery.outcomes[before:])

    async def _is_as_before(self, container: LocalFile, data: bytes) -> bool:
        """Whether an earlier run opened the same file; then its stored parts are restored from the cache."""
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
        # From the innermost container outwards, as each may narrow the access of the part.
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
            parts.attach_sidecars()  # also after a failure: an extracted part needs its rights
        self.discovery.whole.add(parts_prefix(container.uri))

    def _note_failure(self, container: LocalFile, error: ParseError, *, is_source: bool) -> None:
        """Report a failed container: a remark if it is a document too, else an outcome of its own."""
        prefix, self.failed = parts_prefix(container.uri), True
        self.discovery.partly.add(prefix)  # its stored parts must not count as gone
        stays = "; its stored parts stay" if self.first_stored(prefix).startswith(prefix) else ""
        if isinstance(error, WithheldError) and self.opened.rights.of_documents:
            self.discovery.withheld.add(container.uri)
            stays = ""
        if is_source:
            remark = f"not all documents in it can be taken out: {error}{stays}"
            self.discovery.remarks[container.uri] = remark
        else:
            path = printable(container.path)
            self.discovery.outcomes.append(Outcome(path, "skipped", f"{error}{stays}", cause=error.cause))

    def first_stored(self, start: str) -> str:
        """The first stored part's URI at or after `start` in sort order; "" if all sort before it."""
        at = bisect_left(self.stored, start)
        return self.stored[at] if at < len(self.stored) else ""


@dataclass(slots=True)
class _Parts:
    """The parts of a container that are documents, by their paths in it."""

    opening: _Opening
    container: LocalFile
    requests: tuple[Mapping[str, str], ...] = ()
    documents: dict[str, LocalFile] = field(default_factory=dict)
    names: UniqueNames = field(default_factory=UniqueNames)
    sidecars: dict[str, Path] = field(default_factory=dict)

    def receive(self, member: Member) -> None:
        """Put a member into the spool, or report why not.

        Raises:
            ParseError: the container exceeds the limits on members or unpacked bytes.
        """
        opening, settings = self.opening, self.opening.settings
        opening.members += 1
        opening.unpacked += len(member.data)
        if opening.members > MAX_MEMBERS:
            raise ParseError(f"it holds more than {MAX_MEMBERS:,} files", "too large")
        if opening.unpacked > opening.max_unpacked:
            raise ParseError(f"it unpacks to more than {opening.max_unpacked >> 20} MB", "too large")
        path = inner_path(member.name)
        if path is None or member.refused:
            reason = member.refused or "its name leads out of the file that contains it"
            self._report(Outcome(self._place(member.name), "skipped", reason, cause=member.cause))
        elif path.endswith(SIDECAR_SUFFIX):
            content = member.data[: SIDECAR_BYTES + 1]  # a longer one is refused later, when it is read
            self.sidecars[path] = opening.spool.add(content)
        elif is_left_out(path, settings):
            return
        elif self._is_wanted(path, member):
            self._add_if_small(self.names.take(path), member)
        else:
            self._report(Outcome(self._place(path), "ignored", unsupported(path), kind="unsupported"))

    def _is_wanted(self, path: str, member: Member) -> bool:
        contains = parsers.may_contain(path, archives=self.opening.settings.archives)
        return parsers.is_supported(path) or contains or parsers.is_recognized(member.data, path)

    def _add_if_small(self, path: str, member: Member) -> None:
        """Add a member; report it if it is over the size limit of documents and not a container."""
        opening, max_bytes, size = self.opening, self.opening.settings.max_file_bytes, len(member.data)
        if size <= max_bytes or parsers.is_container(member.data, path, archives=opening.settings.archives):
            self._add(path, member)
            return
        uri, error = part_uri(self.container.uri, path), over_limit(size, max_bytes)
        opening.discovery.retained.add(uri)  # an earlier, smaller version must not count as gone
        stays = "; the earlier version stays" if opening.first_stored(uri) == uri else ""
        self._report(Outcome(self._place(path), "skipped", f"{error}{stays}", cause=error.cause))

    def _add(self, path: str, member: Member) -> None:
        outer = self.container
        self.documents[path] = LocalFile(
            part_uri(outer.uri, path),
            outer.path / path,
            f"{outer.name}/{path}",
            self.opening.spool.add(member.data),
            member.stated,
            outer.uri,
            self.requests,
        )

    def attach_sidecars(self) -> None:
        """Put each sidecar among the members next to the document that it describes."""
        for path, sidecar in self.sidecars.items():
            if described := self.documents.get(path.removesuffix(SIDECAR_SUFFIX)):
                self.opening.spool.attach_sidecar(described.read_from, sidecar)

    def _report(self, outcome: Outcome) -> None:
        self.opening.discovery.outcomes.append(outcome)

    def _place(self, name: str) -> str:
        return printable(f"{self.container.path}/{name}")


MAX_NAME_CHARS = 1_024  # of a member's path: checking its folders takes time that grows as their square


def inner_path(name: str) -> str | None:
    """A member's normalized relative path; None if it escapes the container or is too long.

    Backslashes count as slashes. Example: "./x//y.md" -> "x/y.md"; "/etc/passwd" and "a/../../b.md" -> None.
    """
    if len(name) > MAX_NAME_CHARS:
        return None
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or "\0" in name:
        return None
    leads_out = ".." in path.parts or path.parts[0].endswith(":")
    return None if leads_out else str(path)


def unopened_notes(stored: Iterable[str], discovery: Discovery) -> Iterator[str]:
    """A note on sources that stay because their container exists but wasn't opened."""
    parts = [
        uri for uri in stored if "#" in uri and not discovery.is_gone(uri) and uri not in discovery.retained
    ]
    outer = {
        uri.partition("#")[0] for uri in parts if any(prefix in discovery.whole for prefix in prefixes(uri))
    }
    opened = {uri.partition("#")[0] for uri in discovery.containers}
    reported = {outcome.path for outcome in discovery.outcomes}  # without files that a pattern excludes
    skipped = outer - opened - discovery.unchanged
    if skipped := {uri for uri in skipped if path_of(uri) in reported or not is_local(uri)}:
        yield (
            f"{counted(len(skipped), 'archive')} with stored documents not opened; the documents stay. Add "
            "--archives to bring them up to date, or remove them with refdesk-admin remove."
        )


@dataclass(frozen=True, slots=True)
class Spool:
    """The spool folder of a run. Its files have numbers for names: no member's name reaches the disk."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def add(self, data: bytes, sidecar: bytes = b"") -> Path:
        """Write `data` to a new file, with its sidecar, and return its path.

        Raises:
            ConfigurationError: the folder can't be written to.
            StoreError: the disk is full.
        """
        file = self.folder / str(next(self._numbers))
        with _writing(file):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, data)
            if sidecar:
                _write(Path(f"{file}{SIDECAR_SUFFIX}"), sidecar)
        return file

    def attach_sidecar(self, file: Path, sidecar: Path) -> None:
        """Make one spooled file the sidecar of another; errors as in `add`."""
        with _writing(file):
            sidecar.rename(f"{file}{SIDECAR_SUFFIX}")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(f"{file} can't be written", error) from error


@contextmanager
def spooling(data: Path, collection: Collection) -> Iterator[Spool]:
    """Yields the spool of a run, and removes it afterwards. The caller holds the collection's write lock."""
    key = collection.tenant, collection.name
    try:
        yield Spool(Path(os.path.realpath(spool_folder(data, *key))))
    finally:
        empty_spool(data, *key)


def _write(file: Path, data: bytes) -> None:
    # A new file of the owner alone: never into a file or a link that somebody put there.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)


CACHE_FILE = ".containers.json"  # no origin has such a name


class CachedContainer(NamedTuple):
    """A cached container: digests of the settings for opening it, its content and its stored parts.

    `outcomes` tell of the members that weren't stored: path, outcome, reason, kind and cause.
    """

    recipe: str
    content: str
    parts: str
    outcomes: list[list[Any]]


def container_cache_file(data: Home, collection: Collection) -> Path:
    """The path of a collection's cache."""
    return origins_folder(data, collection.tenant, collection.name) / CACHE_FILE


@dataclass(slots=True)
class ContainerCache:
    """The outermost containers of a collection by URI, as earlier runs (`_before`) and this one opened them.

    `recipe` is the digest of the settings for opening them. An entry includes everything nested in it.
    """

    recipe: str
    _before: dict[str, CachedContainer]
    _stored: Mapping[str, Mapping[str, KnownSource]]
    rights: Rights
    _new: dict[str, CachedContainer] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        file: Path,
        recipe: str,
        files: IngestSettings,
        rights: Rights,
        sources: Mapping[str, KnownSource],
    ) -> ContainerCache:
        """Read the cache; empty if it is missing or damaged. `sources` are the stored ones by URI."""
        how = (recipe, files.model_dump_json(), sorted(parsers.SUFFIXES))
        stored: dict[str, dict[str, KnownSource]] = defaultdict(dict)
        for uri in sources:
            if "#" in uri:
                stored[uri.partition("#")[0]][uri] = sources[uri]
        containers = {}
        # What is damaged is as if missing: all containers are opened again.
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            noted = json.loads(file.read_bytes())
            containers = {uri: CachedContainer(*entry) for uri, entry in noted.items()}
        return cls(_digest(how), containers, stored, rights)

    def is_current(self, uri: str) -> bool:
        """Whether opening a container now would give its stored parts."""
        cached, stored = self._before.get(uri), self._stored.get(uri, {})
        if cached is None or cached.recipe != self.recipe:
            return False
        records = [source.record for source in stored.values()]
        # A part that requests access must be parsed again for its request.
        if any(not record.content or self.rights.asks(record.requested) for record in records):
            return False
        return cached.parts == _parts_digest({part: source.digest for part, source in stored.items()})

    def may_skip(self, uri: str) -> bool:
        """Whether a document that its origin calls unchanged needs no fetching, parts included."""
        contains = uri in self._stored or parsers.may_contain(place_of(uri).name, archives=True)
        return not contains or self.is_current(uri)

    def is_as_before(self, uri: str, content: str) -> bool:
        """Whether a container with this digest (`container_digest`) need not be opened."""
        cached = self._before.get(uri)
        return cached is not None and cached.content == content and self.is_current(uri)

    def restore(self, container: LocalFile, discovery: Discovery) -> None:
        """Add the stored parts of an unchanged container to the discovery, and repeat its other outcomes."""
        discovery.whole.add(parts_prefix(container.uri))
        discovery.containers[container.uri] = container
        for uri, source in sorted(self._stored.get(container.uri, {}).items()):
            around = next(prefix[:-1] for prefix in prefixes(uri) if prefix[:-1] in discovery.containers)
            inside = place_of(uri).relative_to(container.path).as_posix()
            name = f"{container.name}/{inside}" if container.name else source.metadata.get("path", "")
            part = LocalFile(uri, place_of(uri), name, container.read_from, container=around, as_stored=True)
            discovery.files[uri] = discovery.containers[uri] = part
        discovery.outcomes += [
            Outcome(path, outcome, reason, kind=kind, cause=cause)
            for path, outcome, reason, kind, cause in self._before[container.uri].outcomes
        ]

    def note_plain(self, uri: str) -> None:
        """Note a file of an origin that is not a container, although its name says so."""
        if not is_local(uri) and "#" not in uri:
            self._new[uri] = CachedContainer(self.recipe, "", "", [])

    def restore_unchanged(self, discovery: Discovery) -> None:
        """Restore the containers that an origin knows to be unchanged."""
        for uri in sorted(discovery.unchanged):
            if self.is_current(uri):
                path = place_of(uri)
                self.restore(LocalFile(uri, path, "", path, as_stored=True), discovery)

    def note(self, uri: str, content: str, outcomes: Iterable[Outcome]) -> None:
        """Note a completely opened container, and the outcomes of its rejected members."""
        self._new[uri] = CachedContainer(self.recipe, content, "", [*map(_as_list, outcomes)])

    def keep(self, file: Path, discovery: Discovery, outcomes: Outcomes) -> None:
        """Write the cache for the next run: the containers whose parts are all stored, or without text."""
        parts: dict[str, list[str]] = defaultdict(list)
        for uri in discovery.files:
            if "#" in uri:
                parts[uri.partition("#")[0]].append(uri)
        is_there = discovery.containers.__contains__
        containers = {
            uri: cached for uri, cached in self._before.items() if is_there(uri) or not discovery.is_gone(uri)
        }
        for uri, opened in self._new.items():
            containers.pop(uri, None)
            digests = {part: outcomes.parts.get(part) for part in parts[uri] if part not in outcomes.empty}
            if all(digests.values()):
                empty = [_as_list(outcomes.empty[part]) for part in parts[uri] if part in outcomes.empty]
                containers[uri] = opened._replace(
                    parts=_parts_digest(digests), outcomes=opened.outcomes + empty
                )
        if containers != self._before:
            with suppress(OSError, RefdeskError):  # on failure the next run opens them again
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(file, json.dumps(containers).encode())


def container_digest(container: LocalFile, data: bytes) -> str:
    """A digest of everything that the parts depend on: the container's bytes, name, sidecar and metadata.

    Raises:
        ParseError: its sidecar can't be read.
    """
    digest = hashlib.blake2b(data, digest_size=16)
    about = repr((container.name, read_sidecar(container), stated_json(container)))
    digest.update(about.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _parts_digest(digests: Mapping[str, str | None]) -> str:
    return _digest(sorted(digests.items()))


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _as_list(outcome: Outcome) -> list[Any]:
    return [outcome.path, outcome.outcome, outcome.reason, outcome.kind, outcome.cause]
