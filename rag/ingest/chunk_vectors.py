"""Gets the vectors of new chunks, and measures the embedder's cosines.

A model can fail for single texts: it returns zeros or NaN, or its endpoint refuses them. Such a chunk is
stored without a vector, and each later run that sees its document stores that again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import anyio
import numpy as np

from rag.config.model_settings import MULTILINGUAL_MODEL
from rag.corpus import AS_IT_IS, Calibration, Vectors
from rag.errors import ProviderError
from rag.ingest.report import Progress
from rag.ingest.source_files import LocalFile
from rag.models.embed import CONTROL, Embedder
from rag.models.embed.calibration import MIN_PASSAGES, cosine_elsewhere, measured_calibration
from rag.store.write.change_collection import redefine
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import NewSource

EMBED_AT_ONCE = 256  # texts per call of the embedder, so that large files show progress


async def vectors_of_texts(embedder: Embedder, texts: Iterable[str]) -> Vectors:
    """The vectors of documents; a row of zeros for a text without a valid vector.

    Raises:
        ProviderError: the model failed, or returns no valid vector, not even for a plain word.
    """
    no_rows = np.empty((0, embedder.identity.dimension), np.float32)
    async with aclosing(_vector_batches(embedder, texts)) as batches:
        return np.concatenate([no_rows, *[vectors async for vectors in batches]])


async def _vector_batches(
    embedder: Embedder, texts: Iterable[str], at_once: int = EMBED_AT_ONCE
) -> AsyncGenerator[Vectors]:
    """As `vectors_of_texts`, `at_once` texts at a time."""
    remaining = iter(texts)
    while batch := [*islice(remaining, at_once)]:
        vectors = await embedder.embed(batch, "document")
        if not vectors.any():  # the texts may be bad, or the model broken
            await _check_model(embedder, len(vectors))
        yield vectors


async def with_vectors(
    embedder: Embedder,
    documents: Sequence[NewSource],
    count: Callable[[int], None],
    *,
    at_once: int = EMBED_AT_ONCE,
) -> tuple[list[NewSource], ProviderError | None]:
    """Embed documents. Calls `count` with the number of texts of each finished batch.

    If the embedder fails, returns its error and the first documents, whose vectors are complete.
    """
    ends = np.cumsum([len(document.passages) for document in documents])
    vectors = np.empty((ends[-1], embedder.identity.dimension), np.float32)
    done, failure = 0, None
    texts = (text for document in documents for text in document.bodies)
    try:
        async with aclosing(_vector_batches(embedder, texts, at_once)) as batches:
            async for batch in batches:
                vectors[done : done + len(batch)] = batch
                done += len(batch)
                count(len(batch))
    except ProviderError as error:
        failure = error
    by_document = zip(documents, np.split(vectors, ends[:-1]), ends, strict=True)
    return [document.with_vectors(rows) for document, rows, end in by_document if end <= done], failure


async def _check_model(embedder: Embedder, texts: int) -> None:
    if not (await embedder.embed([CONTROL], "document")).any():
        raise ProviderError(
            f"The embedding model {embedder.identity.model or embedder.identity.provider} returned no valid "
            f"vector for any of {texts} texts, nor for a plain word: only zeros, NaN or infinite values. "
            "Check the model. What was stored before stays; run the command again to go on."
        )


SAMPLE = 2_000  # chunks; their vectors take 12 MB at 1,536 dimensions
GROWTH = 4  # times as many chunks: then a collection is measured again
LARGE = 1_000  # chunks; more of them don't change the measurement


Sample: TypeAlias = "Callable[[int, int], Awaitable[tuple[list[str], Vectors, list[str]] | None]]"
"""As `CollectionWriter.sample_for_everybody`."""


async def calibration(embedder: Embedder, sample: Sample, stored: Calibration | None) -> Calibration | None:
    """The calibration of the embedder's cosines, measured with the model itself.

    The model's own scale is measured once. The similarity of sentences to passages elsewhere is measured
    again when the tables have grown much, so that similarities don't change with every run. Only passages
    that everybody may read count, because thresholds of weak evidence depend on them.
    """
    provider = embedder.identity.provider
    if provider not in {"builtin", "onnx", "openai"} or (stored and stored.sampled >= LARGE):
        return stored
    passages = await sample(SAMPLE, max(GROWTH * (stored.sampled if stored else 0), MIN_PASSAGES))
    scale = stored
    with suppress(ProviderError):
        # A model behind an endpoint may cost money: a small collection isn't worth a request.
        if scale is None and (passages or provider != "openai"):
            scale = await _own_scale(embedder)
        if scale and passages:
            elsewhere = await cosine_elsewhere(embedder, *passages)
            if elsewhere is not None:
                scale = replace(scale, elsewhere=elsewhere, sampled=len(passages[0]))
    return None if scale == AS_IT_IS else scale


async def _own_scale(embedder: Embedder) -> Calibration:
    """The English built-in model needs no scale: the others are calibrated to its own."""
    identity = embedder.identity
    if identity.provider == "builtin" and identity.model != MULTILINGUAL_MODEL:
        return AS_IT_IS
    return await measured_calibration(embedder)


async def calibrate(writer: CollectionWriter, embedder: Embedder) -> None:
    """Store the calibration with the collection, except in a dry run."""
    collection = writer.collection
    if not writer.writes:
        return
    scale = await calibration(embedder, writer.sample_for_everybody, collection.calibration)
    if scale != collection.calibration:
        await redefine(writer, calibration=scale)


# Back-pressure between preparing and writing, and progress.
#
# Preparing ahead keeps the embedder busy while memory stays bounded. Small documents are prepared ahead up to
# about half a minute of embedding, enough to cover the parsing of a large file, which takes one core. Large
# files have their own lane, so that neither kind waits for the other. Only one large document at a time is in
# memory; with a cluster, a million characters for each worker.

SMALL_CHARACTERS = 4_000_000  # of small documents together: some 5,000 chunks
LARGE_CHARACTERS = 1_000_000  # of one document, or bytes of its file
WORKER_CHARACTERS = 200_000  # more of small documents for each worker of a cluster


def lanes(uris: Iterable[str], sizes: Mapping[str, int]) -> list[list[list[str]]]:
    """The URIs in two lanes that are prepared at the same time: small files, and large ones.

    Each element of a lane is a file followed by its parts, so that a container is admitted or kept out before
    its parts.
    """
    small_and_large: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for uri in uris:
        outermost = uri.partition("#")[0]
        lane = small_and_large[sizes.get(outermost, 0) >= LARGE_CHARACTERS]
        lane.setdefault(outermost, []).append(uri)
    return [[*lane.values()] for lane in small_and_large if lane]


class BackPressure:
    """Bounds the documents that are being prepared or wait to be written. Sizes are in characters.

    `workers` is the number of processors that prepare documents; each adds to the bound.
    """

    def __init__(self, workers: int = 1) -> None:
        self._most_small = SMALL_CHARACTERS + (workers - 1) * WORKER_CHARACTERS
        self._most_large = (workers - 1) * LARGE_CHARACTERS
        self._small: dict[str, int] = {}
        self._large: dict[str, int] = {}
        self._has_room = anyio.Event()
        self._open = False

    async def enter(self, uri: str, size: int) -> None:
        """Wait for room for a document, then count it. Call it again once its real size is known."""
        self.leave(uri)
        sizes = self._large if size >= LARGE_CHARACTERS else self._small
        limit = self._most_large if size >= LARGE_CHARACTERS else self._most_small
        while not self._open and sum(sizes.values()) > limit:
            if self._has_room.is_set():  # a new event only once: other tasks may already wait for this one
                self._has_room = anyio.Event()
            await self._has_room.wait()
        sizes[uri] = size

    def leave(self, uri: str) -> None:
        """Stop counting a document that was written, or won't be."""
        self._small.pop(uri, 0)
        self._large.pop(uri, 0)
        self._has_room.set()

    def open(self) -> None:
        """Stop blocking: after a failure nothing is written, so nothing would ever leave."""
        self._open = True
        self._has_room.set()


@dataclass(frozen=True, slots=True)
class ByteProgress:
    """Reports progress in bytes; `sizes` are the sizes of the run's files by URI."""

    sizes: Mapping[str, int]
    progress: Progress

    def pass_over(self, uri: str) -> None:
        """Count a file that needs no embedding."""
        self.progress.worked(self.sizes[uri])

    def counter(self, wave: Sequence[NewSource]) -> Callable[[int], None]:
        """A function to call with a number of embedded texts; each counts an equal share of its file."""
        shares = (share for new in wave for share in _shares(self.sizes[new.source.uri], len(new.passages)))

        def count(texts: int) -> None:
            self.progress.embedded(texts)
            self.progress.worked(sum(islice(shares, texts)))

        return count


def _shares(size: int, parts: int) -> Iterator[int]:
    """Split a size into parts that differ by at most one: (5, 2) -> 2, 3."""
    return (size * (part + 1) // parts - size * part // parts for part in range(parts))


def sizes(files: Iterable[LocalFile], max_bytes: int) -> dict[str, int]:
    """The bytes of files by URI, at most `max_bytes` each; 0 for one that is gone or not read."""
    return {file.uri: 0 if file.as_stored else min(_size(file.read_from), max_bytes) for file in files}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
