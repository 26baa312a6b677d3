"""The stage `compress`: shows only the sentences of a hit that answer the query, verbatim."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from rag.answers import Excerpt
from rag.errors import ProviderError
from rag.models.breaker import note_failure
from rag.rank.excerpts import excerpts
from rag.search.vectors import is_remote
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

REMOTE_SECONDS = 10.0  # for a remote model; the other stages have such a limit in their settings
UNLIKE = -1.0  # below every threshold
FAILED = "The passages were not compressed ({})."

log = logging.getLogger(__name__)


async def compressed(
    hits: Sequence[Hit], stage: CompressStage, query: Query, embedder: Embedder
) -> list[Hit]:
    """The hits with the sentences that answer as their excerpts. Hits without such a sentence are dropped.

    The sentences are taken from what is shown of a hit: each of its excerpts, or its chunk if it has none.
    `share` and `max_chars` apply to each of these. A sentence answers if it contains a word of the query that
    is no stop word, or if its similarity to the query reaches the threshold; without a vector of the query,
    only by its words. Each excerpt is `source.text[start:end]`, as the text that it is taken from.

    Raises:
        ProviderError, TimeoutError: a remote embedder failed.
    """
    texts = [part.text for hit in hits for part in _shown(hit)]
    similarities = await _similarities(texts, query.vector, embedder)
    languages = {view.table.collection.name: view.table.collection.language for view in query.views}
    kept: list[Hit] = []
    for hit in hits:
        terms = query_terms(query.text, languages[hit.source.collection])
        answering = [one for part in _shown(hit) for one in _answering(part, terms, stage, similarities)]
        if answering:
            kept.append(replace(hit, excerpts=tuple(answering)))
    return kept


def _shown(hit: Hit) -> tuple[Excerpt, ...]:
    """The parts of its source that are shown of a hit."""
    return hit.excerpts or (Excerpt(hit.chunk.start, hit.chunk.end, hit.chunk.text),)


async def _similarities(
    texts: Iterable[str], vector: npt.NDArray[np.float32] | None, embedder: Embedder
) -> Mapping[str, float]:
    """The similarity to the query of each sentence of the texts."""
    unique = list({sentence: None for text in texts for sentence in _sentences(text)})
    if not unique:
        return {}
    if vector is None:
        return dict.fromkeys(unique, UNLIKE)
    with anyio.fail_after(REMOTE_SECONDS if is_remote(embedder) else None):
        vectors = await embedder.embed(unique, "document")
    return dict(zip(unique, (vectors @ vector).tolist(), strict=True))


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def _answering(
    part: Excerpt, terms: Sequence[str], stage: CompressStage, similarities: Mapping[str, float]
) -> list[Excerpt]:
    spans = excerpts(
        part.text,
        terms,
        [similarities[sentence] for sentence in _sentences(part.text)],
        threshold=stage.threshold,
        share=stage.share,
        max_chars=stage.max_chars,
    )
    return [Excerpt(part.start + start, part.start + end, part.text[start:end]) for start, end in spans]


async def compress(
    hits: Sequence[Hit], stage: CompressStage, query: Query, run: Run, step: OpenStep
) -> list[Hit]:
    """The stage `compress`; see `compressed`. If the embedder fails, the hits stay whole, with a warning."""
    try:
        return await compressed(hits, stage, query, run.models.embedder)
    except TimeoutError:
        cause = f"no answer within {REMOTE_SECONDS:g} seconds"
    except ProviderError as error:
        note_failure(log, error)
        cause = error.for_caller.rstrip(".")
    step.warns(FAILED.format(cause), failed=True)
    return list(hits)
