"""Recognizing files and folders that were moved or renamed, so that they keep their ids and rights."""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING

from rag.file_state import local_path
from rag.ingest.parse import named_after
from rag.ingest.paths import is_gone, path_of, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rag.ingest.discover import Discovery, Found
    from rag.store.writer import KnownSource

MAX_END = 64  # folders that a common end of two paths counts


def moved_sources(
    contents: Mapping[str, str], known: Mapping[str, KnownSource], discovery: Discovery
) -> dict[str, KnownSource]:
    """Which new files, given as content digests by URI, are stored sources that moved: by the new URI.

    A source moved if a new file has its content and its own file is certainly gone. A copy is not a move:
    while the original exists, the new file is a document of its own. Each source moves at most once. Among
    files of equal content, those whose paths end alike belong together: when a/x.md and b/y.md were moved to
    c/x.md and c/y.md, neither must get the id and the rights of the other.
    """
    wanted = {*contents.values()}
    gone: dict[str, list[KnownSource]] = defaultdict(list)
    for uri, one in known.items():
        if one.record.content in wanted and discovery.is_gone(uri):
            gone[one.record.content].append(one)
    new: dict[str, list[str]] = defaultdict(list)
    for uri, content in contents.items():
        if content in gone:
            new[content].append(uri)
    return {
        uri: known[old]
        for content, sources in gone.items()
        for uri, old in _pairs(new[content], [one.uri for one in sources])
    }


def _pairs(new: Iterable[str], gone: Iterable[str]) -> Iterator[tuple[str, str]]:
    """New and old URIs that belong together: those with the longest common end first, then by their order.

    An archive can have ten thousand members of one content, so they are not compared each with each.
    """
    new, gone = sorted(new), sorted(gone)
    ends = {uri: uri.split("/")[: -MAX_END - 1 : -1] for uri in (*new, *gone)}
    for length in range(max(map(len, ends.values())), -1, -1):
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for old in reversed(gone):
            alike[tuple(ends[old][:length])].append(old)
        pairs = {uri: same.pop() for uri in new if (same := alike[tuple(ends[uri][:length])])}
        yield from pairs.items()
        paired = {*pairs.values()}
        new, gone = [one for one in new if one not in pairs], [one for one in gone if one not in paired]


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


def keeps_title(source: KnownSource, found: Found) -> bool:
    """Whether a moved document keeps its title. One without a title of its own is called as its file."""
    before, after = path_of(source.uri).rpartition("/")[2], printable(found.path.name)
    return before == after or source.title not in {before, named_after(before)}


def _heads(before: str, after: str) -> tuple[str, str]:
    """Two URIs without their common end: ("a/x/1.md", "b/x/1.md") -> ("a", "b")."""
    same = _common_end(before, after)
    return before.rsplit("/", same)[0], after.rsplit("/", same)[0]


def _common_end(one: str, other: str) -> int:
    """The number of last parts that two URIs have in common."""
    pairs = zip(reversed(one.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
