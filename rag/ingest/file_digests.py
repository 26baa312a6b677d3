"""Reads files, and computes the two digests that identify their content.

The *content digest* recognizes a document under another name. The *digest* says whether the stored text is
still what a run would store: it covers everything that the text and its chunks depend on, with the chunking
of the document at its end: "a7…/254/sentence/32/0/1".
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from anyio import to_thread

from rag.config.model_settings import MULTILINGUAL_MODEL
from rag.corpus import Chunking, EmbedderIdentity, FileState
from rag.ingest.metadata import read_sidecar
from rag.ingest.source_files import LocalFile, is_local, read
from rag.originals import digest_of, local_path, state_of
from rag.store.write.table_rows import KnownSource


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file that was read, with its sidecar, and its state just before; None if unknown."""

    file: LocalFile
    data: bytes
    sidecar: bytes
    content_digest: str
    digest: str
    state: FileState | None = None


async def read_content(file: LocalFile, *, max_bytes: int, cut: str, admission: str) -> FileContent:
    """Read a file and its sidecar; the digest covers `cut` and `admission`, the recipes for its text.

    Raises:
        ParseError: one of them can't be read.
    """
    return await to_thread.run_sync(_content, file, max_bytes, cut, admission)


def _content(file: LocalFile, max_bytes: int, cut: str, admission: str) -> FileContent:
    state = _state(file)
    data = read(file, max_bytes)
    sidecar = read_sidecar(file)
    digest = _digest(data + sidecar + stated_json(file) + admission.encode(), cut)
    return FileContent(file, data, sidecar, content_digest(data), digest, state)


def as_stored(file: LocalFile, source: KnownSource) -> FileContent:
    """As `read_content`, for a part that is as it is stored, but without its bytes."""
    return FileContent(file, b"", b"", source.record.content, source.digest, _state(file))


def _state(file: LocalFile) -> FileState | None:
    """The state of the file, or of the outermost container of a part; None for documents of an origin."""
    with suppress(OSError):
        return state_of(local_path(file.uri)) if is_local(file.uri) else None
    return None


def stated_json(file: LocalFile) -> bytes:
    """The metadata and access requests from a document's containers, for its digest."""
    if not (file.stated or file.requests):
        return b""
    return json.dumps(
        [dict(statements) for statements in (file.stated, *file.requests)], sort_keys=True
    ).encode()


def content_digest(data: bytes) -> str:
    """A digest of a document's content, whatever its name and however it is parsed.

    A byte order mark, the kind of line ends and trailing white space don't count: editors and archives
    change them.
    """
    plain = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").rstrip()
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


def recipe_of(cuts: str) -> str:
    """What digests depend on besides the documents; `cuts` are all chunkings of a run."""
    return _digest(cuts.encode(), "")


def _digest(data: bytes, cut: str) -> str:
    """A digest of the bytes and the chunking: "a7…/254". A rebuild can change the latter."""
    return digest_with_cut(digest_of(data), cut)


CHUNK_TOKENS, MULTILINGUAL_CHUNK_TOKENS = 254, 320
"""The most tokens of a chunk, if nothing else is set; the latter for multilingual-e5-small, whose tokens are
shorter. Chosen by what replies show, and by their lengths (rag/evaluate/measuring.md)."""


def usual_tokens(embedder: EmbedderIdentity) -> int:
    """The most tokens of a chunk for an embedder, if nothing else is set."""
    is_multilingual = (embedder.provider, embedder.model) == ("builtin", MULTILINGUAL_MODEL)
    return MULTILINGUAL_CHUNK_TOKENS if is_multilingual else CHUNK_TOKENS


def chunking_of(name: str, chunkings: Iterable[Chunking], max_tokens: int) -> Chunking:
    """The first chunking that matches a file's path for readers or its name, completed by `max_tokens`."""
    last = name.rpartition("/")[2]
    matching = (
        chunking
        for chunking in chunkings
        if fnmatchcase(name, chunking.match) or fnmatchcase(last, chunking.match)
    )
    chosen = next(matching, Chunking())
    return replace(chosen, max_tokens=chosen.max_tokens or max_tokens, match="*")


def limit_of(chunking: Chunking, window: int) -> int:
    """The tokens that a passage has at most, for an embedder with this window."""
    return min(chunking.max_tokens or window, window)


def cut_key(chunking: Chunking, window: int) -> str:
    """All that passages depend on, as part of a digest: "254" of the usual one, or "254/sentence/32/20/1"."""
    limit = str(limit_of(chunking, window))
    if replace(chunking, max_tokens=None, match="*") == Chunking():
        return limit
    parts = (limit, chunking.strategy, chunking.min_tokens, chunking.overlap, int(chunking.headers))
    return "/".join(map(str, parts))


def digest_with_cut(digest: str, cut: str) -> str:
    """The digest of the same bytes with another chunking: ("a7/254", "99") -> "a7/99"."""
    return f"{digest.partition('/')[0]}/{cut}"


def cut_of(digest: str) -> str:
    """The chunking in a digest: "a7/254/sentence/32/0/1" -> "254/sentence/32/0/1"."""
    return digest.partition("/")[2]
