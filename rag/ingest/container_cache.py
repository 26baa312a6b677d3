"""A cache of which parts earlier runs extracted: an unchanged container is read, but not opened again.

The parts of a container are sources of their own. If the container, the settings for opening it and its
stored parts are all unchanged, the parts count as unchanged files: nothing is unpacked or parsed, and their
rights follow this run and their container. Without the cache file, every container is opened again.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.corpus import Collection
from rag.errors import RefdeskError
from rag.ingest.file_digests import stated_json
from rag.ingest.local_files import LocalFile
from rag.ingest.metadata import read_sidecar
from rag.ingest.parse.parsers import SUFFIXES, may_contain
from rag.ingest.report import Outcome
from rag.ingest.source_paths import is_local, parts_prefix, place_of, prefixes
from rag.store.write.desk_folder import origins_folder, write_whole

if TYPE_CHECKING:
    from rag.config.settings import IngestSettings
    from rag.ingest.discover import Discovery
    from rag.ingest.rights.requested_rights import Rights
    from rag.ingest.run_outcomes import Outcomes
    from rag.store.write.table_rows import KnownSource

VERSION = 1
FILE = ".containers.json"  # no origin has such a name


class CachedContainer(NamedTuple):
    """One opened container: digests of how it was opened, of its content and of its stored parts.

    `outcomes` are those of its members that weren't stored: path, outcome, reason, kind and cause.
    """

    recipe: str
    content: str
    parts: str
    outcomes: list[list[Any]]


def file_of(data: Path, collection: Collection) -> Path:
    """The path of a collection's cache."""
    return origins_folder(data, collection.tenant, collection.name) / FILE


@dataclass(slots=True)
class ContainerCache:
    """The outermost containers of a collection by URI, as earlier runs (`_before`) and this one opened them.

    `recipe` is the digest of how this run opens them. An entry covers everything nested in the container.
    """

    recipe: str
    _before: dict[str, CachedContainer]
    _stored: Mapping[str, Mapping[str, KnownSource]]
    _rights: Rights
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
        how = (recipe, files.model_dump_json(), sorted(SUFFIXES))
        stored: dict[str, dict[str, KnownSource]] = defaultdict(dict)
        for uri, source in sources.items():
            if "#" in uri:
                stored[uri.partition("#")[0]][uri] = source
        containers = {}
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            noted = json.loads(file.read_bytes())
            if noted.get("version") == VERSION:
                containers = {uri: CachedContainer(*entry) for uri, entry in noted["containers"].items()}
        return cls(_digest(how), containers, stored, rights)

    def is_current(self, uri: str) -> bool:
        """Whether the stored parts of a container are what opening it now would give."""
        cached, stored = self._before.get(uri), self._stored.get(uri, {})
        if cached is None or cached.recipe != self.recipe:
            return False
        records = [source.record for source in stored.values()]
        # A part that requests access must be parsed again for its request.
        if any(not record.content or self._rights.asks(record.requested) for record in records):
            return False
        return cached.parts == _parts_digest({part: source.digest for part, source in stored.items()})

    def may_skip(self, uri: str) -> bool:
        """Whether a document that its origin calls unchanged needs no fetching on account of its parts."""
        contains = uri in self._stored or may_contain(place_of(uri).name, archives=True)
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
            name = source.metadata.get("path", "")
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
        """Note a container that was opened without any failure, and the outcomes of its rejected members."""
        self._new[uri] = CachedContainer(self.recipe, content, "", [*map(_as_list, outcomes)])

    def keep(self, file: Path, discovery: Discovery, outcomes: Outcomes) -> None:
        """Write the cache for the next run: containers all of whose parts are stored, or have no text."""
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
            with suppress(OSError, RefdeskError):  # then the next run opens them again
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(file, json.dumps({"version": VERSION, "containers": containers}).encode())


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
