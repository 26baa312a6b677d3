"""Which parts earlier runs took out of containers: an unchanged container is read, but not opened again.

The parts of a container are sources of their own. If a container is as it was, and so is how it would be
opened, and what was stored of it is still stored, then a run treats its parts as files that did not change:
their rights follow the run and what contains them, and nothing is unpacked or parsed. The notes lie beside
those of the origins. They are only a shortcut: without them everything is opened once more.
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
    """What a run took out of a container.

    `recipe` and `content` are digests of how it was opened and of what it was, and `parts` of what is stored
    of it. `outcomes` are the lines of the report on the rest: path, outcome, reason, kind and cause.
    """

    recipe: str
    content: str
    parts: str
    outcomes: list[list[Any]]


def file_of(data: Path, collection: Collection) -> Path:
    """Where the notes on a collection's containers are."""
    return origins_folder(data, collection.tenant, collection.name) / FILE


@dataclass(slots=True)
class ContainerCache:
    """The containers of a collection, by URI, as earlier runs and this one opened them.

    `recipe` says how they are opened now. Only containers that lie in no other one have an entry: it is for
    all that is in them.
    """

    recipe: str
    _taken: dict[str, CachedContainer]
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
        """What earlier runs noted; nothing if it is missing or damaged. `known` is what is stored, by URI."""
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
        """Whether what was in a container is stored, as it would be taken out of it now."""
        cached, stored = self._taken.get(uri), self._stored.get(uri, {})
        if cached is None or cached.recipe != self.recipe:
            return False
        records = [source.record for source in stored.values()]
        if any(not record.content or self._rights.asks(record.requested) for record in records):
            return False
        return cached.parts == _parts_digest({part: source.digest for part, source in stored.items()})

    def may_skip(self, uri: str) -> bool:
        """Whether a document that its origin calls unchanged needs no fetching for what may be in it."""
        contains = uri in self._stored or may_contain(place_of(uri).name, archives=True)
        return not contains or self.is_current(uri)

    def is_as_before(self, uri: str, content: str) -> bool:
        """Whether a container with this digest (`container_digest`) need not be opened."""
        cached = self._taken.get(uri)
        return cached is not None and cached.content == content and self.is_current(uri)

    def restore(self, container: LocalFile, discovery: Discovery) -> None:
        """Put what is stored of a container among the found documents, and repeat the lines on the rest."""
        discovery.whole.add(parts_prefix(container.uri))
        discovery.containers[container.uri] = container
        for uri, source in sorted(self._stored.get(container.uri, {}).items()):
            around = next(prefix[:-1] for prefix in prefixes(uri) if prefix[:-1] in discovery.containers)
            name = source.metadata.get("path", "")
            part = LocalFile(uri, place_of(uri), name, container.read_from, container=around, as_stored=True)
            discovery.files[uri] = discovery.containers[uri] = part
        discovery.outcomes += [
            Outcome(path, outcome, reason, kind=kind, cause=cause)
            for path, outcome, reason, kind, cause in self._taken[container.uri].outcomes
        ]

    def note_plain(self, uri: str) -> None:
        """Note a file from an origin that could contain documents by its name, and contains none."""
        if not is_local(uri) and "#" not in uri:
            self._new[uri] = CachedContainer(self.recipe, "", "", [])

    def restore_unchanged(self, discovery: Discovery) -> None:
        """Restore the containers that an origin knows to be unchanged."""
        for uri in sorted(discovery.unchanged):
            if self.is_current(uri):
                path = place_of(uri)
                self.restore(LocalFile(uri, path, "", path, as_stored=True), discovery)

    def note(self, uri: str, content: str, outcomes: Iterable[Outcome]) -> None:
        """Note a container that was opened without any failure, and the lines on what isn't wanted of it."""
        self._new[uri] = CachedContainer(self.recipe, content, "", [*map(_written, outcomes)])

    def keep(self, file: Path, discovery: Discovery, outcomes: Outcomes) -> None:
        """Write the notes for the next run: of a container only if all of its parts are stored, or empty."""
        parts: dict[str, list[str]] = defaultdict(list)
        for uri in discovery.files:
            if "#" in uri:
                parts[uri.partition("#")[0]].append(uri)
        is_there = discovery.containers.__contains__
        containers = {
            uri: cached for uri, cached in self._taken.items() if is_there(uri) or not discovery.is_gone(uri)
        }
        for uri, opened in self._new.items():
            containers.pop(uri, None)
            digests = {part: outcomes.parts.get(part) for part in parts[uri] if part not in outcomes.empty}
            if all(digests.values()):
                empty = [_written(outcomes.empty[part]) for part in parts[uri] if part in outcomes.empty]
                containers[uri] = opened._replace(
                    parts=_parts_digest(digests), outcomes=opened.outcomes + empty
                )
        if containers != self._taken:
            with suppress(OSError, RefdeskError):  # then the next run opens them again
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(file, json.dumps({"version": VERSION, "containers": containers}).encode())


def container_digest(container: LocalFile, data: bytes) -> str:
    """A digest of a container, its name, its sidecar and what is stated of it: all that its parts depend on.

    Raises:
        ParseError: its sidecar can't be read.
    """
    digest = hashlib.blake2b(data, digest_size=16)
    about = repr((container.name, read_sidecar(container), stated_json(container)))
    digest.update(about.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _parts_digest(digests: Mapping[str, str | None]) -> str:
    return _digest(sorted(digests.items()))


def _digest(of: object) -> str:
    return hashlib.blake2b(repr(of).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _written(outcome: Outcome) -> list[Any]:
    return [outcome.path, outcome.outcome, outcome.reason, outcome.kind, outcome.cause]
