"""The vectors of a run: those of new texts, and those that earlier runs did not get.

A model can fail for single texts: it returns zeros or NaN, or its endpoint refuses them. Such a chunk is
stored without a vector, and each later run asks for it again.
"""

from __future__ import annotations

from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np

from rag.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence

    from rag.corpus import Vectors
    from rag.ingest.prepare import Prepared
    from rag.ingest.report import Outcome
    from rag.models.embed import Embedder
    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import KnownSource, NewSource

EMBED_AT_ONCE = 256  # texts handed to the embedder together, so that large files show progress
NAMED = 5  # files in a note; the report has them all
CONTROL = "refdesk"  # every model has a vector for it


async def vectors_of_texts(embedder: Embedder, texts: Iterable[str]) -> Vectors:
    """The vectors of documents, zeros for those that get none.

    Raises:
        ProviderError: the model failed, or has no vector for anything any more.
    """
    none = np.empty((0, embedder.identity.dimension), np.float32)
    async with aclosing(_in_parts(embedder, texts)) as parts:
        return np.concatenate([none, *[part async for part in parts]])


async def _in_parts(
    embedder: Embedder, texts: Iterable[str], at_once: int = EMBED_AT_ONCE
) -> AsyncGenerator[Vectors]:
    """The same in parts."""
    left = iter(texts)
    while some := [*islice(left, at_once)]:
        part = await embedder.embed(some, "document")
        if not part.any():
            await _check_model(embedder, len(part))
        yield part


async def with_vectors(
    embedder: Embedder,
    some: Sequence[Prepared],
    collection: str,
    count: Callable[[int], None],
    *,
    at_once: int = EMBED_AT_ONCE,
) -> tuple[list[NewSource], ProviderError | None]:
    """Documents with their vectors. `count` is told how many more are done, of so many `at_once`.

    If the embedder fails, these are the first ones, all of whose vectors it gave, and its error.
    """
    ends = np.cumsum([len(one.chunked.passages) for one in some])
    vectors = np.empty((ends[-1], embedder.identity.dimension), np.float32)
    done, failure = 0, None
    texts = (text for one in some for text in one.texts())
    try:
        async with aclosing(_in_parts(embedder, texts, at_once)) as parts:
            async for part in parts:
                vectors[done : done + len(part)] = part
                done += len(part)
                count(len(part))
    except ProviderError as error:
        failure = error
    of_each = zip(some, np.split(vectors, ends[:-1]), ends, strict=True)
    return [one.new_source(collection, part) for one, part, end in of_each if end <= done], failure


async def _check_model(embedder: Embedder, texts: int) -> None:
    if not (await embedder.embed([CONTROL], "document")).any():
        raise ProviderError(
            f"The embedding model {embedder.identity.model or embedder.identity.provider} returned no valid "
            f"vector for any of {texts} texts, nor for a plain word: only zeros, NaN or infinite values. "
            "Check the model. What was stored before stays; run the command again to go on."
        )


def vector_notes(outcomes: Iterable[Outcome], *, mended: int) -> Iterator[str]:
    """What the report must say about chunks without a vector, and about those that have theirs now."""
    if mended:
        yield f"{_chunks(mended)} got the vector that an earlier run asked for in vain."
    lacking = {one.path: one.without_vector for one in outcomes if one.without_vector}
    if not lacking:
        return
    named = [f"{path} ({count})" for path, count in lacking.items()][:NAMED]
    others = f" and {len(lacking) - NAMED} other files" if len(lacking) > NAMED else ""
    yield (
        f"The embedding model has no valid vector for {_chunks(sum(lacking.values()))}: {', '.join(named)}"
        f"{others}. Searches find them by their words only. The next run asks again."
    )


def _chunks(count: int) -> str:
    return "1 chunk" if count == 1 else f"{count} chunks"


async def ask_again(
    writer: CollectionWriter, embedder: Embedder, known: Mapping[str, KnownSource]
) -> dict[str, int]:
    """Ask again for the vectors that stored chunks lack. Returns how many each source, by URI, still lacks.

    Sources that lack none before are left out.

    Raises:
        ProviderError, StoreError: the embedder or the storage failed.
    """
    uris = {one.id: uri for uri, one in known.items() if one.without_vector}
    if not uris:
        return {}
    ids = list(uris)
    rows = await writer.without_vector(ids)
    texts = cast("list[str]", rows["body"].to_pylist())
    vectors = await vectors_of_texts(embedder, texts)
    left = await writer.give_vectors(ids, rows, vectors)
    return {uri: left[id_] for id_, uri in uris.items()}
