"""Stored sources: recognizes moves, keeps unchanged texts, and removes sources whose files are gone.

Moved and renamed files and folders keep their ids and rights. A run can change the URI, the access and the
recorded file state of a source without changing its text.

An unmounted share looks like a folder from which everything was deleted. If too many files of a folder are
gone at once, nothing is removed until an operator confirms it with --yes. The same holds for containers and
origins. For origins, and folders without a file to read, the last document needs confirmation, too.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.corpus import AccessRecord, Document, FileState
from rag.ingest.parse.chat_exports import channel_day
from rag.ingest.parse.parsers import named_after
from rag.ingest.report import Outcome, OutcomeKind, digest_of_ids
from rag.ingest.source_files import (
    LocalFile,
    is_local,
    name_of,
    path_of,
    prefix_of,
    prefixes,
    printable,
)
from rag.originals import local_path
from rag.report import counted
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import KnownSource, SourceMove

if TYPE_CHECKING:
    from rag.ingest.access_decision import Claims
    from rag.ingest.discover import Discovery
    from rag.ingest.prepare import FileContent
    from rag.ingest.report import Outcomes
    from rag.store.write.collection_writer import CollectionWriter

MAX_END = 64  # folders compared for the common end of two paths


def moved_sources(
    contents: Mapping[str, str], stored: Mapping[str, KnownSource], discovery: Discovery
) -> dict[str, KnownSource]:
    """The stored sources that moved, by their new URI. `contents` are the digests of new files by URI.

    A source moved if a new file has its content and its own file is certainly gone. A copy is not a move:
    while the original exists, the new file is another document. Each source moves at most once. Files of
    equal content are matched by the ends of their paths: when a/x.md and b/y.md were moved to c/x.md and
    c/y.md, neither must get the id and the rights of the other.
    """
    new_contents = {*contents.values()}
    gone: dict[str, list[KnownSource]] = defaultdict(list)
    for uri, source in stored.items():
        # Contents first: whether a file is gone takes a look at the disk.
        if source.record.content in new_contents and discovery.is_gone(uri):
            gone[source.record.content].append(source)
    new: dict[str, list[str]] = defaultdict(list)
    for uri, content in contents.items():
        if content in gone:
            new[content].append(uri)
    return {
        uri: stored[old]
        for content, sources in gone.items()
        for uri, old in _pairs(new[content], [source.uri for source in sources])
    }


def _pairs(new: Iterable[str], gone: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pair new with old URIs: first by the longest common end, then in order.

    An archive can have ten thousand members of equal content, so this avoids comparing all pairs.
    """
    new, gone = sorted(new), sorted(gone)
    ends = {uri: uri.split("/")[: -MAX_END - 1 : -1] for uri in (*new, *gone)}
    for length in range(max(map(len, ends.values())), -1, -1):
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for old in reversed(gone):  # so that `pop` takes the first in order
            alike[tuple(ends[old][:length])].append(old)
        pairs = {uri: candidates.pop() for uri in new if (candidates := alike[tuple(ends[uri][:length])])}
        yield from pairs.items()
        paired = {*pairs.values()}
        new, gone = [uri for uri in new if uri not in pairs], [uri for uri in gone if uri not in paired]


def name_below_outermost_folder(discovery: Discovery, stored: Mapping[str, KnownSource]) -> None:
    """Name files by their paths below the outermost folder that documents beside them were ingested with.

    So a document has the same path if a command names its folder or one above it.
    """
    above: dict[Path, str] = {}

    @cache  # sorted only if a run has new files: of a known file, its own path tells
    def in_order() -> list[str]:
        return sorted(uri for uri in stored if "#" not in uri)

    for uri, file in discovery.files.items():
        if not is_local(uri):
            continue
        folder = file.path.parents[file.name.count("/")]
        if folder not in above:
            source_uri = uri if uri in stored else _first_below(prefix_of(folder), in_order())
            above[folder] = _path_above(folder, stored[source_uri]) if source_uri else ""
        if above[folder]:
            discovery.files[uri] = replace(file, name=above[folder] + file.name)


def _first_below(prefix: str, ordered: Sequence[str]) -> str:
    """The first of the ordered URIs that begins with a prefix; "" if none does."""
    at = bisect_left(ordered, prefix)
    return ordered[at] if at < len(ordered) and ordered[at].startswith(prefix) else ""


def _path_above(folder: Path, source: KnownSource) -> str:
    """The part before the folder in the path of a source in it, which came with a folder above; or ""."""
    outer = path_of(source.uri).removesuffix(f"/{source.metadata.get('path', '')}") + "/"
    inner = printable(folder) + "/"
    return inner.removeprefix(outer) if inner.startswith(outer) else ""


def keeps_title(source: KnownSource, file: LocalFile) -> bool:
    """Whether a moved document keeps its title.

    A document without one is called by the name of its file, and a day of a chat by its folder, too.
    """
    before, after = PurePath(path_of(source.uri)), PurePath(printable(file.path))
    if source.title == channel_day(before.parent.name, before.stem):
        return before.parts[-2:] == after.parts[-2:]
    return before.name == after.name or source.title not in {before.name, named_after(before.name)}


@dataclass(slots=True)
class UnchangedSources:
    """The sources of a run whose text stays.

    `move` writes moves, before anything else of the run. `settle` writes access, at the end: only then is it
    known who may see the containers. `parse` parses the content of a file.
    """

    writer: CollectionWriter
    claims: Claims
    outcomes: Outcomes
    parse: Callable[[FileContent], Awaitable[Document]]
    _to_move: dict[str, tuple[KnownSource, SourceMove]] = field(default_factory=dict)
    _to_claim: dict[str, tuple[OutcomeKind, KnownSource, Claim]] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)
    _files: dict[str, FileState] = field(default_factory=dict)
    _renamed: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def follow(self, source: KnownSource, content: FileContent) -> None:
        """Plan the move of a source to this file, if its text stays; `move` writes it."""
        if not self._stays(source, content):
            return
        self._note_file(source, content)
        file = content.file
        metadata = {**source.metadata, "path": printable(file.name)}
        claim = self.claims.of_moved(source, file)
        self._to_move[source.id] = source, SourceMove(file.uri, metadata, claim)

    def _stays(self, source: KnownSource, content: FileContent) -> bool:
        """Whether a moved source needs no parsing: same text and title, and no access request to read."""
        requests_access = self.claims.rights.asks(source.record.requested)
        return source.digest == content.digest and keeps_title(source, content.file) and not requests_access

    async def move(self) -> list[KnownSource]:
        """Write the planned moves. Returns the sources with their new URIs.

        `settle` finishes parts: their new containers may be stored, or narrowed, later in this run.
        """
        moved = {id_: move for id_, (_, move) in self._to_move.items()}
        records = await self.writer.move(moved) if moved else {}
        sources = []
        for id_, (source, move) in self._to_move.items():
            here = replace(source, uri=move.uri)
            sources.append(here)
            if "#" in move.uri:
                self._to_claim[id_] = "moved", here, move.claim
            else:
                self._finish("moved", here, move.claim, records[id_])
        self._moved = {source.uri for source in sources}
        return sources

    def has_moved(self, uri: str) -> bool:
        """Whether `move` moved a source to this URI."""
        return uri in self._moved

    def _note_file(self, source: KnownSource, content: FileContent) -> None:
        """Plan to record the state of a file that was touched or copied, for the field `stale` of hits."""
        if content.state and not (source.file and content.state.same_as(source.file)):
            self._files[source.id] = content.state

    async def keep(self, source: KnownSource, content: FileContent) -> None:
        """Keep an unchanged source. It is finished now, or by `settle` if its access may change.

        Raises:
            ParseError: the document's own request is needed, and the file can't be parsed.
        """
        self._note_file(source, content)
        name = printable(content.file.name)
        if is_local(source.uri) and name.endswith(f"/{source.metadata.get('path')}"):  # from a folder above
            self._renamed[source.id] = {**source.metadata, "path": name}
        if claim := await self._claim(source, content):
            self._to_claim[source.id] = "unchanged", source, claim
        else:
            self.outcomes.finish_source("unchanged", source)

    async def _claim(self, source: KnownSource, content: FileContent) -> Claim | None:
        """The claim of a source whose access may change: by the run, its own request or its container."""
        rights, metadata = self.claims.rights, None
        if rights.asks(source.record.requested) and not self.claims.is_synced(source.uri):
            metadata = (await self.parse(content)).metadata if rights.of_documents else {}
        return self.claims.of_unchanged(source, content.file, content.content_digest, metadata)

    async def settle(self) -> None:
        """Write the remaining claims, longer paths, and new states of files."""
        claims = {id_: (source.uri, claim) for id_, (_, source, claim) in self._to_claim.items()}
        records = await self.writer.claim(claims) if claims else {}
        for id_, (kind, source, claim) in self._to_claim.items():
            self._finish(kind, source, claim, records[id_])
        if self._renamed:
            await self.writer.rename(self._renamed)
        if self._files:
            await self.writer.note_files(self._files)

    def _finish(self, kind: OutcomeKind, source: KnownSource, claim: Claim, record: AccessRecord) -> None:
        # An earlier run has reported the reasons for its access. Those of an origin are always reported.
        reported = kind == "unchanged" and record.access == source.record.access and not claim.policy.is_sync
        remarks = () if reported else self.claims.report.remarks(claim, record)
        self.outcomes.finish_source(kind, source, remarks, record.access)


GONE, REPLACED = "the file is gone", "a folder or a link is in its place"
STAYS = "the file is gone, perhaps not for good: nothing was removed"
MOST_GONE, FEW_GONE = 0.33, 10
"""A share and a number of a folder's files: if more than both are gone, it may be unmounted."""


async def remove_vanished(
    writer: CollectionWriter,
    stored: Mapping[str, KnownSource],
    discovery: Discovery,
    *,
    confirmed: bool,
    held_for_long: str = "",
) -> tuple[list[Outcome], list[str]]:
    """Remove the sources whose files are gone; unless `confirmed`, not from folders that may be unmounted.

    Of the sources that earlier runs have `held_for_long` (`Report.held`), only those of an empty folder stay;
    if others are missing, too, or some are back, all stay: the folder is just changing.
    Returns the outcomes of these sources, and a note for each folder that may be unmounted.
    """
    missing = await to_thread.run_sync(find_vanished, stored, discovery)
    # What an origin itself calls deleted isn't missing because of an unmounted share.
    guarded = [source for source in missing if source.uri.partition("#")[0] not in discovery.deleted]
    unmounted = {} if confirmed else perhaps_unmounted(guarded, stored, discovery)
    if held_for_long and held_for_long == digest_of_ids({id_ for ids in unmounted.values() for id_ in ids}):
        unmounted = perhaps_unmounted(guarded, stored, discovery, only_empty=True)
    kept_ids = {id_ for ids in unmounted.values() for id_ in ids}
    if gone := [source for source in missing if source.id not in kept_ids]:
        await writer.remove([source.id for source in gone])
    removed = [
        Outcome(path_of(source.uri), "removed", _reason(source.uri, discovery), source.id) for source in gone
    ]
    missing_outcomes = [
        Outcome(path_of(source.uri), "missing", STAYS, source.id)
        for source in missing
        if source.id in kept_ids
    ]
    notes = [
        f"{_what(prefix, len(ids))} gone. Nothing was removed, because {_why(prefix)}. "
        f"If you deleted {'it' if len(ids) == 1 else 'them'}, run the command again with --yes."
        for prefix, ids in unmounted.items()
    ]
    return [*removed, *missing_outcomes], notes


def _reason(uri: str, discovery: Discovery) -> str:
    if reason := discovery.forbidden.get(uri):
        return reason
    if is_local(uri) and discovery.ignoring.covers(Path(local_path(uri))):
        return "a .gitignore or .refdeskignore file leaves it out now"
    is_replaced = is_local(uri) and "#" not in uri and os.path.lexists(local_path(uri))
    return REPLACED if is_replaced else GONE


def find_vanished(stored: Mapping[str, KnownSource], discovery: Discovery) -> list[KnownSource]:
    """The stored sources that are gone from the places that were searched."""
    if not discovery.whole:
        return []
    return [stored[uri] for uri in stored if _around(uri, discovery.whole) and discovery.is_gone(uri)]


def lost_ids(stored: Mapping[str, KnownSource], discovery: Discovery, new: Iterable[str]) -> set[str]:
    """The ids of the sources that a new file, given by URI, could be an edited version of.

    These are the sources that vanished from the walked folders, and those with the same file name that
    vanished anywhere else.
    """
    names = {*map(name_of, new)}
    alike = [source for uri, source in stored.items() if uri not in discovery.files and name_of(uri) in names]
    elsewhere = {source.id for source in alike if discovery.is_gone(source.uri)} if names else set[str]()
    return elsewhere | {source.id for source in find_vanished(stored, discovery)}


def perhaps_unmounted(
    missing: Iterable[KnownSource],
    stored_uris: Iterable[str],
    discovery: Discovery,
    *,
    only_empty: bool = False,
) -> dict[str, set[str]]:
    """The URI prefixes below which too much is missing at once, with the ids of the missing sources.

    An empty folder counts, too: it looks like the mount point of an unmounted share. With `only_empty`,
    nothing else counts.
    """
    whole = discovery.whole
    ids: dict[str, set[str]] = defaultdict(set)
    for source in missing:
        for prefix in _around(source.uri, whole):
            ids[prefix].add(source.id)
    if not ids:
        return {}
    stored = Counter(prefix for uri in stored_uris for prefix in _around(uri, whole))
    return {
        prefix: gone
        for prefix, gone in ids.items()
        if (not only_empty and len(gone) > FEW_GONE and len(gone) > MOST_GONE * stored[prefix])
        or ((_is_origin(prefix) or prefix in discovery.barren) and len(gone) == stored[prefix])
    }


def _is_origin(prefix: str) -> bool:
    """Whether a prefix is an origin or below one, rather than a folder or container.

    A connector that was signed out often answers with an empty list, and wikis are rarely emptied.
    """
    return not is_local(prefix) and "#" not in prefix


def _around(uri: str, whole: Collection[str]) -> list[str]:
    """The searched prefixes of a URI."""
    return [prefix for prefix in prefixes(uri) if prefix in whole]


def _what(prefix: str, number: int) -> str:
    noun = "part" if "#" in prefix else "file"
    verb = "is" if number == 1 else "are"
    return f"{counted(number, noun)} of {path_of(prefix.rstrip('#/') or prefix)} {verb}"


def _why(prefix: str) -> str:
    if "#" in prefix:
        return "the file may be damaged"
    return "the folder may be unmounted" if is_local(prefix) else "the origin may be incomplete"
