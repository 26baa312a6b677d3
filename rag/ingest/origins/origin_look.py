"""The input of an origin from a run (`OriginContext`), its result (`OriginFindings`), and its errors.

An error of a single document becomes an outcome in the report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias
from urllib.parse import quote

from rag.config.settings import IngestSettings
from rag.ingest.containers import MAX_CONTAINER_BYTES, Spool
from rag.ingest.discover import Discovery, fits, is_left_out, is_wanted, unsupported
from rag.ingest.parse.parsers import is_recognized, is_supported, is_unnamed, may_contain
from rag.ingest.report import Outcome
from rag.ingest.source_files import LocalFile, place_of, printable


class FetchError(Exception):
    """The document can't be fetched now. Its stored version stays."""


class RefusedError(FetchError):
    """refdesk won't fetch it: its address, size or type is not allowed."""


class GoneError(FetchError):
    """The document doesn't exist any more."""


State: TypeAlias = "dict[str, dict[str, Any]]"
"""The state of an origin for the next run: an entry with "uri" for each document, by name at the origin."""


@dataclass(frozen=True, slots=True)
class OriginContext:
    """The parts of a run that an origin uses.

    `before` is the origin's state from the last run. `stored` are the URIs of its stored documents.
    `is_current` says whether the stored version of a document can stay if the origin calls it unchanged.
    `agent` is the User-Agent for servers.
    """

    name: str
    spool: Spool
    settings: IngestSettings
    before: Mapping[str, Mapping[str, Any]]
    stored: frozenset[str]
    is_current: Callable[[str], bool]
    agent: str = "refdesk"

    @property
    def prefix(self) -> str:
        """The prefix of the URIs of all its documents."""
        return prefix_of_origin(self.name)

    def uri(self, path: str) -> str:
        """The URI of the document at a path."""
        return self.prefix + quote(path, safe="/", errors="surrogateescape")

    def local_file(
        self,
        path: str,
        data: bytes,
        *,
        stated: Mapping[str, str] | None = None,
        sidecar: bytes = b"",
        suffix: str = "",
    ) -> LocalFile:
        """Put a document into the spool. `suffix` is its type if its path doesn't have one."""
        uri = self.uri(path)
        logical_path = place_of(uri)
        if suffix:
            logical_path = logical_path.with_name(logical_path.name + suffix)
        return LocalFile(uri, logical_path, path, self.spool.add(data, sidecar), stated or {})

    def knows(self, path: str) -> bool:
        """Whether a file of this name is read."""
        return is_wanted(path.rpartition("/")[2], self.settings)

    def may_read(self, path: str) -> bool:
        """Whether a file of this name is read, or may be, depending on its content (`reads`)."""
        return self.knows(path) or is_unnamed(path.rpartition("/")[2])

    def reads(self, path: str, data: bytes) -> bool:
        """Whether a file is read, by its name or else by its content."""
        return self.knows(path) or is_recognized(data, path.rpartition("/")[2])

    def most_bytes(self, path: str) -> int:
        """The size limit of a file: higher for one that is only a container."""
        name, max_bytes = path.rpartition("/")[2], self.settings.max_file_bytes
        contains = may_contain(name, archives=self.settings.archives) and not is_supported(name)
        return max(MAX_CONTAINER_BYTES, max_bytes) if contains else max_bytes

    def unseen(self, discovery: Discovery) -> set[str]:
        """The stored documents that the origin named neither as present nor as deleted, with their parts."""
        reported = discovery.files.keys() | discovery.unchanged | discovery.deleted
        return {uri for uri in self.stored if uri.partition("#")[0] not in reported}

    def is_wanted(self, path: str) -> bool:
        """Whether `hidden`, `include` and `exclude` admit a document at this path."""
        if is_left_out(path, self.settings):
            return False
        return not self.settings.include or matches(path, self.settings.include)


@dataclass(slots=True)
class OriginFindings:
    """The discovery, and the state for the next run."""

    discovery: Discovery = field(default_factory=Discovery)
    state: State = field(default_factory=dict)

    async def take(
        self,
        context: OriginContext,
        path: str,
        token: str,
        read: Callable[[], Awaitable[tuple[bytes, bytes]]],
        stated: Mapping[str, str] | None = None,
    ) -> None:
        """Read a document and its sidecar, unless its `token` tells that both are as in the last run.

        Without a token it is read in any case.
        """
        uri, before = context.uri(path), context.before.get(path, {})
        is_as_before = bool(token) and before.get("token") == token
        if is_as_before and before.get("other"):
            self.ignored(path, uri)
            self.state[path] = dict(before)
            return
        if is_as_before and context.is_current(uri):
            self.discovery.unchanged.add(uri)
            self.state[path] = {"uri": uri, "token": token}
            return
        try:
            data, sidecar = await read()
        except GoneError:
            return  # deleted since the listing
        except FetchError as error:
            self.failed(path, str(error))
            self.discovery.retained.add(uri)
            return
        self.state[path] = {"uri": uri, "token": token}
        if context.reads(path, data):
            self.discovery.files[uri] = context.local_file(path, data, stated=stated, sidecar=sidecar)
        else:
            self.ignored(path, uri)
            self.state[path]["other"] = True  # so that it isn't fetched again until it changes

    def failed(self, path: str, reason: str) -> None:
        """Report a document that could not be fetched."""
        self.discovery.outcomes.append(Outcome(printable(path), "skipped", reason, cause="not fetched"))

    def unreachable(self, path: str, reason: str) -> None:
        """Report that the origin, or an address in its settings, can't be read: in no run is that known."""
        self.discovery.outcomes.append(Outcome(printable(path), "skipped", reason, cause="unreachable"))

    def ignored(self, path: str, uri: str = "", kind: str = "") -> None:
        """Report a file of an unsupported type (`kind`). The stored parts of an archive at `uri` stay."""
        name, reason = path.rpartition("/")[2], f"unsupported file type ({kind})"
        if may_contain(name, archives=True):
            self.discovery.retained.add(uri)  # opened by an earlier run with --archives
        if may_contain(name, archives=True) or not kind:
            reason = unsupported(name)
        self.discovery.outcomes.append(Outcome(printable(path), "ignored", reason, kind="unsupported"))

    def ignored_for(self, path: str, reason: str) -> None:
        """Report a file that is ignored for another reason."""
        self.discovery.outcomes.append(Outcome(printable(path), "ignored", reason))


def prefix_of_origin(name: str) -> str:
    """The prefix of the URIs of all documents of an origin."""
    return f"origin:{name}/"


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the path, its last part, or a folder in it; * matches across folders."""
    return any(fits(head, patterns) for head in accumulate(path.split("/"), "{}/{}".format))
