"""Keeps with a collection what the cosines of its embedder mean, as far as it is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rag.corpus import Calibration
from rag.errors import ProviderError
from rag.models.embed.calibration import measured, of_passages
from rag.store.write.change_collection import change_collection

if TYPE_CHECKING:
    from rag.corpus import Vectors
    from rag.models.embed import Embedder
    from rag.store.write.collection_writer import CollectionWriter

SAMPLE = 2_000  # chunks; their vectors take 12 MB at 1,536 dimensions
GROWTH = 4  # times as many chunks as before are worth another measurement
LARGE = 1_000  # chunks; from so many on, more change nothing any more


class Sampled(Protocol):
    """Tables of chunks."""

    async def sample(self, most: int) -> tuple[list[str], Vectors]:
        """As `CollectionWriter.sample`."""


async def calibration(embedder: Embedder, tables: Sampled, known: Calibration | None) -> Calibration | None:
    """The scale of the embedder, by the model itself or else by the passages in `tables`.

    `known` is what is stored. It stays unless the tables have grown much since, so that similarities don't
    change with every run. The built-in model has none: its scale is what others are measured by.
    """
    match embedder.identity.provider:
        case "onnx":
            try:
                return known or await measured(embedder)
            except ProviderError:  # a text without a vector; cosines count as they are
                return None
        case "openai":
            sources, vectors = await tables.sample(SAMPLE)
            before = known.passages if known else 0
            if known and (len(sources) < GROWTH * before or before >= LARGE):
                return known
            unrelated = of_passages(sources, vectors)
            return known if unrelated is None else Calibration(unrelated, passages=len(sources))
    return known


async def calibrate(writer: CollectionWriter, embedder: Embedder) -> None:
    """Store the scale with the collection, unless the run is only rehearsed."""
    made = writer.collection
    if not writer.writes:
        return
    found = await calibration(embedder, writer, made.calibration)
    if found != made.calibration:
        writer.collection = await change_collection(
            writer.data, made.tenant, made.name, lambda one: replace(one, calibration=found)
        )
