"""Which way of cutting applies to a document, and the words for it in digests: "a7…/254/sentence/32/0/1"."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rag.corpus import Chunking

if TYPE_CHECKING:
    from collections.abc import Iterable


def chunking_of(name: str, chunkings: Iterable[Chunking], max_tokens: int) -> Chunking:
    """The first that matches a file's path for readers or its last part; `max_tokens` where none says it."""
    last = name.rpartition("/")[2]
    found = (one for one in chunkings if fnmatchcase(name, one.match) or fnmatchcase(last, one.match))
    chosen = next(found, Chunking())
    return replace(chosen, max_tokens=chosen.max_tokens or max_tokens, match="*")


def limit_of(chunking: Chunking, window: int) -> int:
    """The tokens that a passage has at most, for an embedder with this window."""
    return min(chunking.max_tokens or window, window)


def written(chunking: Chunking, window: int) -> str:
    """All that passages depend on, as part of a digest: "254" of the usual one, or "254/sentence/32/20/1"."""
    limit = str(limit_of(chunking, window))
    if replace(chunking, max_tokens=None, match="*") == Chunking():
        return limit
    parts = (limit, chunking.strategy, chunking.min_tokens, chunking.overlap, int(chunking.headers))
    return "/".join(map(str, parts))


def recut(digest: str, cut: str) -> str:
    """The digest of the same bytes that are cut so: ("a7/254", "99") -> "a7/99"."""
    return f"{digest.partition('/')[0]}/{cut}"


def cut_of(digest: str) -> str:
    """How a source with this digest is cut: "a7/254/sentence/32/0/1" -> "254/sentence/32/0/1"."""
    return digest.partition("/")[2]
