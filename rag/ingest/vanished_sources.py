"""Sources whose files are gone: recognizes moves, removes the others, and guards against unmounted folders.

Moved and renamed files and folders keep their ids and rights.

An unmounted share looks like a folder from which somebody deleted everything. If too much of a folder is gone
at once, nothing of it is removed until an operator confirms it with --yes. The same holds for containers and
for origins; an origin also needs a confirmation to lose its last document.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from rag.ingest.parse.parsers import named_after
from rag.ingest.report import Outcome
from rag.ingest.source_paths import is_gone, is_local, name_of, path_of, prefixes, printable
from rag.originals import local_path

if TYPE_CHECKING:
    from rag.config.settings import IngestSettings
    from rag.ingest.discover import Discovery
    from rag.ingest.local_files import LocalFile
    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import KnownSource

MOST_GONE = 0.33  # of a folder: with more gone, and more than `ingest.max_removed`, perhaps it isn't mounted
MAX_END = 64  # folders that a common end of two paths counts


def moved_sources(
    contents: Mapping[str, str], stored: Mapping[str, KnownSource], discovery: Discovery
) -> dict[str, KnownSource]:
    """The stored sources that moved, by their new URI. `contents` are the digests of new files by URI.

    A source moved if a new file has its content and its own file is certainly gone. A copy is not a move:
    while the original exists, the new file is a document of its own. Each source moves at most once. Among
    files of equal content, those whose paths end alike belong together: when a/x.md and b/y.md were moved to
    c/x.md and c/y.md, neither must get the id and the rights of the other.
    """
    new_contents = {*contents.values()}
    gone: dict[str, list[KnownSource]] = defaultdict(list)
    for uri, source in stored.items():
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
    """Pair new with old URIs: those with the longest common end first, then in order.

    An archive can have ten thousand members of equal content, so this avoids comparing all pairs.
    """
    new, gone = sorted(new), sorted(gone)
    ends = {uri: uri.split("/")[: -MAX_END - 1 : -1] for uri in (*new, *gone)}
    for length in range(max(map(len, ends.values())), -1, -1):
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for old in reversed(gone):
            alike[tuple(ends[old][:length])].append(old)
        pairs = {uri: candidates.pop() for uri in new if (candidates := alike[tuple(ends[uri][:length])])}
        yield from pairs.items()
        paired = {*pairs.values()}
        new, gone = [uri for uri in new if uri not in pairs], [uri for uri in gone if uri not in paired]


def renamed_folders(moved: Iterable[tuple[str, str]], folders: Iterable[str]) -> dict[str, str]:
    """New URIs of folders by their old ones, inferred from files that moved from one URI to another.

    A folder that still exists was not renamed: files were moved out of it.
    """
    heads = {_heads(before, after) for before, after in moved}
    candidates = {
        folder: after + folder.removeprefix(before)
        for before, after in heads
        for folder in folders
        if f"{folder}/".startswith(f"{before}/")
    }
    return {old: new for old, new in candidates.items() if is_gone(local_path(old))}


def keeps_title(source: KnownSource, file: LocalFile) -> bool:
    """Whether a moved document keeps its title. A document without one has the name of its file."""
    before, after = path_of(source.uri).rpartition("/")[2], printable(file.path.name)
    return before == after or source.title not in {before, named_after(before)}


def _heads(before: str, after: str) -> tuple[str, str]:
    """Two URIs without their common end: ("a/x/1.md", "b/x/1.md") -> ("a", "b")."""
    length = _common_end(before, after)
    return before.rsplit("/", length)[0], after.rsplit("/", length)[0]


def _common_end(first: str, second: str) -> int:
    """The number of last parts that two URIs have in common."""
    pairs = zip(reversed(first.split("/")), reversed(second.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class Removed(NamedTuple):
    """The outcomes of the sources whose files are gone, and a note for each folder that may be unmounted."""

    outcomes: list[Outcome]
    notes: list[str]


async def remove_vanished(
    writer: CollectionWriter,
    stored: Mapping[str, KnownSource],
    discovery: Discovery,
    settings: IngestSettings,
    *,
    confirmed: bool,
) -> Removed:
    """Remove the sources whose files are gone; unless `confirmed`, not from folders that may be unmounted."""
    missing = await to_thread.run_sync(find_vanished, stored, discovery)
    guarded = [source for source in missing if source.uri.partition("#")[0] not in discovery.deleted]
    unmounted = {} if confirmed else perhaps_unmounted(guarded, stored, discovery.whole, settings)
    kept_ids = {id_ for ids in unmounted.values() for id_ in ids}
    if gone := [source for source in missing if source.id not in kept_ids]:
        await writer.remove([source.id for source in gone])
    reason = "the file is gone, and so are many others: nothing was removed"
    return Removed(
        [
            *(
                Outcome(path_of(source.uri), "removed", _reason(source.uri, discovery), source.id)
                for source in gone
            ),
            *(
                Outcome(path_of(source.uri), "missing", reason, source.id)
                for source in missing
                if source.id in kept_ids
            ),
        ],
        [
            f"{len(ids)} {_what(prefix)} are gone. Nothing was removed, because {_why(prefix)}. "
            "If you deleted them, run the command again with --yes."
            for prefix, ids in unmounted.items()
        ],
    )


def _reason(uri: str, discovery: Discovery) -> str:
    if is_local(uri) and discovery.ignoring.covers(Path(local_path(uri))):
        return "a .gitignore or .refdeskignore file leaves it out now"
    return "the file is gone"


def find_vanished(stored: Mapping[str, KnownSource], discovery: Discovery) -> list[KnownSource]:
    """The stored sources that are gone from the places that were searched."""
    return [
        source
        for source in stored.values()
        if _around(source.uri, discovery.whole) and discovery.is_gone(source.uri)
    ]


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
    whole: Collection[str],
    settings: IngestSettings,
) -> dict[str, set[str]]:
    """The URI prefixes below which too much is missing at once, with the ids of the missing sources."""
    ids: dict[str, set[str]] = defaultdict(set)
    for source in missing:
        for prefix in _around(source.uri, whole):
            ids[prefix].add(source.id)
    stored = Counter(prefix for uri in stored_uris for prefix in _around(uri, whole))
    return {
        prefix: gone
        for prefix, gone in ids.items()
        if (len(gone) > settings.max_removed and len(gone) > MOST_GONE * stored[prefix])
        or (_is_origin(prefix) and len(gone) == stored[prefix])
    }


def _is_origin(prefix: str) -> bool:
    """Whether a prefix is an origin or below one, rather than a folder or container.

    A connector that was signed out often answers with an empty list, and nobody empties a wiki in passing.
    """
    return not is_local(prefix) and "#" not in prefix


def _around(uri: str, whole: Collection[str]) -> list[str]:
    """The searched prefixes of a URI."""
    return [prefix for prefix in prefixes(uri) if prefix in whole]


def _what(prefix: str) -> str:
    path = path_of(prefix.rstrip("#/") or prefix)
    return f"parts of {path}" if "#" in prefix else f"files of {path}"


def _why(prefix: str) -> str:
    if "#" in prefix:
        return "the file may be damaged"
    return "the folder may be unmounted" if is_local(prefix) else "the origin may be incomplete"
