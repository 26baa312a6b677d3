"""Which way of cutting applies to a document, and the words for it in digests."""

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


def written(chunking: Chunking, window: int) -> str:
    """All that passages depend on, as part of a digest: "254", or "254/sentence/32/20/1".

    The usual one is its size alone, as in digests of earlier versions.
    """
    limit = str(min(chunking.max_tokens or window, window))
    if replace(chunking, max_tokens=None, match="*") == Chunking():
        return limit
    parts = (limit, chunking.strategy, chunking.min_tokens, chunking.overlap, int(chunking.headers))
    return "/".join(map(str, parts))
