"""Of each hit only the sentences that answer, word for word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rag.answers import Excerpt
from rag.rank.excerpts import excerpts
from rag.store.terms import query_terms
from rag.text import sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from rag.answers import Hit
    from rag.config.profiles import CompressStage
    from rag.models.embed import Embedder
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run


async def compressed(
    hits: Sequence[Hit], stage: CompressStage, query: Query, embedder: Embedder
) -> list[Hit]:
    """The hits with their sentences that answer as excerpts, in their order; without those that have none.

    The sentences are those of what is shown of a hit: of each of its excerpts, else of its chunk; `share` and
    `max_chars` hold for each of these. A sentence answers if it has a word of the query, stop words aside,
    or is like the query. Each excerpt is `source.text[start:end]` where what it is cut from is.

    Raises:
        ProviderError: a remote embedder failed.
    """
    likeness = await _likeness([part.text for hit in hits for part in _shown(hit)], query.vector, embedder)
    languages = {view.table.collection.name: view.table.collection.language for view in query.views}
    kept: list[Hit] = []
    for hit in hits:
        terms = query_terms(query.text, languages[hit.source.collection])
        answering = [one for part in _shown(hit) for one in _answering(part, terms, stage, likeness)]
        if answering:
            kept.append(replace(hit, excerpts=tuple(answering)))
    return kept


def _shown(hit: Hit) -> tuple[Excerpt, ...]:
    """What a reader sees of a hit, as parts of its source."""
    return hit.excerpts or (Excerpt(hit.chunk.start, hit.chunk.end, hit.chunk.text),)


async def _likeness(
    texts: Iterable[str], vector: npt.NDArray[np.float32], embedder: Embedder
) -> Mapping[str, float]:
    """The similarity of each sentence of the texts, by itself."""
    said = list({sentence: None for text in texts for sentence in _said(text)})
    if not said:
        return {}
    vectors = await embedder.embed(said, "document")
    return dict(zip(said, (vectors @ vector).tolist(), strict=True))


def _said(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def _answering(
    part: Excerpt, terms: Sequence[str], stage: CompressStage, likeness: Mapping[str, float]
) -> list[Excerpt]:
    similarities = [likeness[sentence] for sentence in _said(part.text)]
    spans = excerpts(
        part.text,
        terms,
        similarities,
        threshold=stage.threshold,
        share=stage.share,
        max_chars=stage.max_chars,
    )
    return [Excerpt(part.start + start, part.start + end, part.text[start:end]) for start, end in spans]


async def compress(
    hits: Sequence[Hit], stage: CompressStage, query: Query, run: Run, _step: OpenStep
) -> list[Hit]:
    """The stage `compress`; see `compressed`."""
    return await compressed(hits, stage, query, run.models.embedder)
