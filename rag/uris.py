"""Public URIs of sources and chunks: refdesk://{collection}/{source_id}[/{seq}]."""

from __future__ import annotations

import re

from rag.errors import NotFoundError

NOT_FOUND = "Nothing readable has this id. Use an id or a uri from a search result."
"""The same answer for unknown, removed and forbidden sources, so it reveals nothing."""
SCHEME = "refdesk://"
SOURCE_TEMPLATE = SCHEME + "{collection}/{source_id}"
CHUNK_TEMPLATE = SOURCE_TEMPLATE + "/{seq}"
_NAME = re.compile(rf"(?:{SCHEME}[a-z0-9_-]+/)?([a-z2-7]{{1,32}}(?:/(?:0|[1-9][0-9]{{0,8}}))?)")


def resource_uri(collection: str, id_: str) -> str:
    """The URI of a source or chunk: ("handbook", "mfz…/3") -> "refdesk://handbook/mfz…/3"."""
    return f"{SCHEME}{collection}/{id_}"


def parse_id(name: str) -> str:
    """The source or chunk id in `name`, which is such an id or a URI.

    Example: "refdesk://handbook/mfzq/3" -> "mfzq/3"; "mfzq" -> "mfzq"; "mfzq/03" raises.

    Raises:
        NotFoundError: `name` is neither.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise NotFoundError(NOT_FOUND)
    return match[1]
