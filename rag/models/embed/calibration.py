"""What a model's cosines mean, measured: the cosine that it gives to texts that have nothing in common.

And in a collection: how near to a question passages are that don't answer it.

Models differ in it, from 0 to over .8, and without it every passage of some models would seem relevant. A
model is asked for vectors of the texts in `calibration.toml`. rag/models/embed/README.md has the figures.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rag.corpus import Calibration, Vectors
from rag.models.embed import Embedder
from rag.text.plain_text import sentences

MAX_UNRELATED = 0.95  # of the settings, too; a model that gives more has the same vector for everything
APART = 0.05  # the least difference of related and unrelated texts from which a scale can be made
MIN_PASSAGES, MIN_SOURCES = 100, 10
ASKED = 512  # sentences: the standard error of their median is then about .01
SHORTEST = 30  # bytes of such a sentence, as many as ten Chinese characters: headings say too little
LONGEST = 250  # characters of it: what is longer is a table, or code
SEED = 20_26

PAIRS_BY_LANGUAGE: dict[str, list[tuple[str, str]]] = tomllib.loads(
    Path(__file__).with_name("calibration.toml").read_text("utf-8")
)
"""Questions and passages that answer them, and no other of their language."""


async def measured_calibration(embedder: Embedder) -> Calibration:
    """The model's own scale, from texts in seven languages, in the one that it tells apart best.

    A model finds everything alike in a language that it doesn't know, so the language with the largest
    difference of related and unrelated texts is one that it knows.

    Raises:
        ProviderError: the model has no vector for one of the texts.
    """
    languages = [await cosines_in(language, embedder) for language in PAIRS_BY_LANGUAGE]
    unrelated, related = max(languages, key=lambda cosines: cosines[1] - cosines[0])
    zero = round(min(max(unrelated, 0.0), MAX_UNRELATED), 3)
    return Calibration(zero, round(related, 3) if related - unrelated > APART else None)


async def cosines_in(language: str, embedder: Embedder) -> tuple[float, float]:
    """The mean cosine of questions and passages that don't answer them, and of those that do."""
    pairs = PAIRS_BY_LANGUAGE[language]
    queries = await embedder.embed([query for query, _ in pairs], "query")
    cosines = queries @ (await embedder.embed([text for _, text in pairs], "document")).T
    answers = float(cosines.trace())
    mismatches = len(pairs) * (len(pairs) - 1)
    return (float(cosines.sum()) - answers) / mismatches, answers / len(pairs)


async def cosine_elsewhere(
    embedder: Embedder, sources: Sequence[str], vectors: Vectors, texts: Sequence[str]
) -> float | None:
    """The cosine of a passage's sentence, as a question, and the nearest passage of another source.

    That is how near passages are that don't answer: in a manual, whose passages have their subject in common,
    nearer than among articles. It is the median over some sentences; None if there are too few passages.

    Raises:
        ProviderError: the model has no vector for one of the sentences.
    """
    with_vector = [source for source, vector in zip(sources, vectors, strict=True) if vector.any()]
    if len(with_vector) < MIN_PASSAGES or len({*with_vector}) < MIN_SOURCES:
        return None
    random = np.random.default_rng(SEED)
    questions: dict[str, str] = {}  # with the source of each
    for passage in random.permutation(len(texts))[:ASKED]:
        spans = sentences(texts[passage])
        parts = [texts[passage][start:end] for start, end in spans if end - start <= LONGEST]
        if long := [part for part in parts if len(part.encode()) >= SHORTEST]:
            questions[long[random.integers(len(long))]] = sources[passage]
    if not questions:
        return None
    cosines = (await embedder.embed([*questions], "query")) @ vectors.T
    cosines[np.array([*questions.values()])[:, None] == np.array(sources)] = -1
    return round(float(np.median(cosines.max(axis=1))), 3)
