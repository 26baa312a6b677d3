"""Texts that say the same as a better one, word for word or nearly."""

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
    """The places of texts to keep, in order; and for every other, the kept one that it repeats."""

    kept: tuple[int, ...]
    repeats: Mapping[int, int]


def distinct(texts: Sequence[str], *, threshold: float = 0.9) -> Distinct:
    """Which of `texts` (best first) to keep: a text goes if a kept one before it is the same or nearly so.

    The same are texts that differ in white space only; nearly so, those whose runs of five words have a
    Jaccard similarity of at least `threshold`, in (0, 1]. A text that is like a dropped one only is kept.
    One changed number in a long text makes no other text of it.

    Source: Broder, On the resemblance and containment of documents, SEQUENCES 1997,
    doi:10.1109/SEQUEN.1997.666900.
    """
    normal = [" ".join(text.split()) for text in texts]
    alike = (jaccard([_shingles(text) for text in normal]) >= threshold).tolist()  # read one by one
    kept: list[int] = []
    repeats: dict[int, int] = {}
    for place, text in enumerate(normal):
        first = next((one for one in kept if alike[one][place] or normal[one] == text), None)
        if first is None:
            kept.append(place)
        else:
            repeats[place] = first
    return Distinct(tuple(kept), repeats)


def _shingles(text: str) -> set[int]:
    """The hashes of the runs of five words; of a shorter text, of all its words."""
    said = words(text)
    if len(said) < SHINGLE:
        return {hash(tuple(said))} if said else set()
    return set(map(hash, zip(*(said[at:] for at in range(SHINGLE)), strict=False)))
