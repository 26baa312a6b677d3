"""Public URIs of sources, chunks and ranges of chunks: refdesk://{collection}/{source_id}[/{seq}[-{seq}]]."""

from __future__ import annotations

import re

from rag.errors import NotFoundError

NOT_FOUND = "Nothing readable has this id or path. Use one from a search result or a listing."
"""The same answer for unknown, removed and forbidden sources, so it reveals nothing."""
SCHEME = "refdesk://"
SOURCE_TEMPLATE = SCHEME + "{collection}/{source_id}"
CHUNK_TEMPLATE = SOURCE_TEMPLATE + "/{seq}"
ID_CHARS = 16
"""The length of the ids that ingestion makes."""
TAG_CHARS = 8
"""What a tag adds to the ids of the sources that it is a copy of."""
_SEQ = r"(0|[1-9][0-9]{0,8})"
_ID = re.compile(rf"([a-z2-7]{{1,32}})(?:/{_SEQ}(?:-{_SEQ})?)?")
_PREFIX = re.compile(rf"{SCHEME}([a-z0-9_-]+)/")


def resource_uri(collection: str, id_: str) -> str:
    """The URI of a source, chunk or range: ("handbook", "mfz…/3") -> "refdesk://handbook/mfz…/3"."""
    return f"{SCHEME}{collection}/{id_}"


def range_id(source_id: str, first: int, last: int) -> str:
    """The id of consecutive chunks: ("mfzq", 5, 8) -> "mfzq/5-8"; of a single one its own, "mfzq/5"."""
    return f"{source_id}/{first}" if first == last else f"{source_id}/{first}-{last}"


def parse_id(name: str) -> str:
    """The id of a source, chunk or range of chunks in `name`, which is such an id or a URI.

    Example: "refdesk://handbook/mfzq/3" -> "mfzq/3"; "mfzq/5-8" and "mfzq" are ids; "mfzq/03" raises.

    Raises:
        NotFoundError: `name` is neither.
    """
    prefix = _PREFIX.match(name)
    id_ = name[prefix.end() :] if prefix else name
    split_id(id_)
    return id_


def named_id(name: str) -> tuple[str | None, str]:
    """The id in `name`, and the collection if it is a URI. Blanks and the brackets of a citation don't count.

    Example: " [mfzq/3] " -> (None, "mfzq/3"); "refdesk://handbook/mfzq" -> ("handbook", "mfzq").

    Raises:
        NotFoundError: `name` has no such id.
    """
    bare = name.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1].strip()
    prefix = _PREFIX.match(bare)
    return prefix and prefix[1], parse_id(bare)


def is_surely_id(name: str) -> bool:
    """Whether it is surely meant as an id, so that an unknown one doesn't cost a look at all paths."""
    try:
        return len(split_id(named_id(name)[1])[0]) == ID_CHARS
    except NotFoundError:
        return False


def split_id(id_: str) -> tuple[str, range]:
    """The source of an id, and the numbers of the chunks that it names; none if it names the source.

    Example: "mfzq/5-8" -> ("mfzq", range(5, 9)); "mfzq/3" -> ("mfzq", range(3, 4)).

    Raises:
        NotFoundError: it is not such an id, or its range runs backwards.
    """
    match = _ID.fullmatch(id_)
    if not match:
        raise NotFoundError(NOT_FOUND)
    source_id, first, last = match.groups()
    seqs = range(int(first), int(last or first) + 1) if first else range(0)
    if first and not seqs:
        raise NotFoundError(NOT_FOUND)
    return source_id, seqs
