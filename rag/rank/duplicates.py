"""Near-duplicates: texts that repeat a better one, word for word or almost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.rank.diversity import jaccard
from rag.text import words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHINGLE = 5  # words


@dataclass(frozen=True, slots=True)
class Distinct:
    """The indexes of the texts to keep, in order, and for each other text the kept one that it repeats."""

    kept: tuple[int, ...]
    repeats: Mapping[int, int]


def distinct(texts: Sequence[str], *, threshold: float = 0.9) -> Distinct:
    """Which of `texts` (best first) to keep: a text is dropped if it duplicates a kept one before it.

    Duplicates differ in white space only, or their five-word shingles have a Jaccard similarity of at least
    `threshold`, in (0, 1]. A text that only resembles a dropped one is kept. Long texts that
    differ in one number only are duplicates, too.

    Source: Broder, On the resemblance and containment of documents, SEQUENCES 1997,
    doi:10.1109/SEQUEN.1997.666900.
    """
    normal = [" ".join(text.split()) for text in texts]
    alike = (jaccard([_shingles(text) for text in normal]) >= threshold).tolist()  # faster to index
    kept: list[int] = []
    repeats: dict[int, int] = {}
    for index, text in enumerate(normal):
        first = next((one for one in kept if alike[one][index] or normal[one] == text), None)
        if first is None:
            kept.append(index)
        else:
            repeats[index] = first
    return Distinct(tuple(kept), repeats)


def _shingles(text: str) -> set[int]:
    """The hashes of a text's five-word shingles; a shorter text is one shingle."""
    tokens = words(text)
    if len(tokens) < SHINGLE:
        return {hash(tuple(tokens))} if tokens else set()
    return set(map(hash, zip(*(tokens[at:] for at in range(SHINGLE)), strict=False)))
