"""Hits that repeat others: an order in which each adds something, and near-duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rag.corpus import Vectors
from rag.text.plain_text import words

Likeness: TypeAlias = "npt.NDArray[np.float32]"
"""Pairwise similarity: shape (items, items), float32, symmetric; 1 if equal, 0 if nothing is in common."""


def cosine(vectors: Vectors) -> Likeness:
    """The cosines between unit vectors."""
    return vectors @ vectors.T


def jaccard(sets: Sequence[AbstractSet[Hashable]]) -> Likeness:
    """The Jaccard similarity of each two sets; an empty set is similar to nothing, not even to itself.

    Members are compared by their hash. Example: [{1, 2}, {2, 3}] -> [[1, 1/3], [1/3, 1]].

    Source: Broder, On the resemblance and containment of documents, SEQUENCES 1997,
    doi:10.1109/SEQUEN.1997.666900.
    """
    sizes = np.array([len(members) for members in sets], np.float32)
    rows = np.repeat(np.arange(len(sets)), sizes.astype(np.intp))
    hashes = np.fromiter(map(hash, chain.from_iterable(sets)), np.int64, count=len(rows))
    _, columns, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    common = counts > 1  # most shingles are in one text only
    has = np.zeros((len(sets), int(common.sum())), np.bool_)
    is_shared = common[columns]
    has[rows[is_shared], (common.cumsum() - 1)[columns[is_shared]]] = True
    bits = np.packbits(has, axis=1)  # counted in 1 ms; BLAS takes 16 while other programs use its threads
    shared = np.zeros((len(sets), len(sets)), np.float32)
    for row, of_row in zip(shared, bits, strict=True):
        row[:] = np.bitwise_count(bits & of_row).sum(axis=1)
    np.fill_diagonal(shared, sizes)
    united = np.maximum(sizes[:, None] + sizes - shared, 1)
    shares: Likeness = shared / united
    return shares


def diversify(
    relevance: Sequence[float],
    likeness: Likeness,
    *,
    lambda_: float,
    sources: Sequence[str] | None = None,
    cap: int | None = None,
) -> list[int]:
    """The indexes of items (given best first) in the order of maximal marginal relevance.

    The next item is always the one with the highest lambda_ * relevance - (1 - lambda_) * similarity to the
    most similar item before it; ties go to the item given first. The result has at most `cap` items of a
    source. Without `sources` every item is a source of its own.

    `lambda_` lies in [0, 1]. At 1, without a cap, the order stays as it is. For that, relevance is made
    non-increasing first, so an earlier tie-break isn't undone.
    Example: relevance [0.9, 0.8, 0.7], the first two the same, the third unlike, lambda_ 0.5 -> [0, 2, 1].

    Source: Carbonell & Goldstein, SIGIR 1998, doi:10.1145/290941.291025; the cap is ours.
    """
    value = lambda_ * np.minimum.accumulate(np.asarray(relevance, np.float64))
    redundancy = (1 - lambda_) * likeness.astype(np.float64)
    nearest = np.zeros(len(value))
    names = range(len(value)) if sources is None else sources
    source_of = np.unique([*names], return_inverse=True)[1]
    counts = Counter[int]()
    order: list[int] = []
    while len(order) < len(value):
        at = int((value - nearest).argmax())
        if value[at] == -np.inf:  # the remaining items exceed the cap
            break
        nearest = np.maximum(nearest, redundancy[at]) if order else redundancy[at]
        order.append(at)
        value[at] = -np.inf
        counts[source_of[at]] += 1
        if counts[source_of[at]] == cap:
            value[source_of == source_of[at]] = -np.inf
    return order


SHINGLE = 5  # words
Verdict = Literal["earlier", "later", "both"]
"""Which of two near-duplicates stays. A later one that stays alone takes the earlier one's place."""


def distinct(
    texts: Sequence[str], *, threshold: float, verdict: Callable[[int, int], Verdict]
) -> dict[int, int]:
    """The places in `texts` (best first) to keep, each with the index of the text to put there.

    Of duplicates, the first stays in its place, unless the `verdict` on their indexes differs. Duplicates
    differ in white space only, or their five-word shingles have a Jaccard similarity of at least `threshold`,
    in (0, 1]. A text that only resembles a dropped one is kept. Long texts that differ in one number are
    duplicates, too.

    Source: Broder, On the resemblance and containment of documents, SEQUENCES 1997,
    doi:10.1109/SEQUEN.1997.666900.
    """
    normal = [" ".join(text.split()) for text in texts]
    alike = (jaccard([_shingles(text) for text in normal]) >= threshold).tolist()  # faster to index
    chosen: dict[int, int] = {}
    for index, text in enumerate(normal):
        # Compared with the chosen ones only: what resembles a dropped text may still say something new.
        verdicts = {
            position: verdict(earlier, index)
            for position, earlier in chosen.items()
            if alike[earlier][index] or normal[earlier] == text
        }
        if "earlier" in verdicts.values():
            continue
        replaced = [position for position, better in verdicts.items() if better == "later"]
        for position in replaced:
            del chosen[position]
        chosen[min(replaced, default=index)] = index
    return dict(sorted(chosen.items()))


def _shingles(text: str) -> set[int]:
    """The hashes of a text's five-word shingles; a shorter text is one shingle."""
    tokens = words(text)
    if len(tokens) < SHINGLE:
        return {hash(tuple(tokens))} if tokens else set()
    return set(map(hash, zip(*(tokens[at:] for at in range(SHINGLE)), strict=False)))
