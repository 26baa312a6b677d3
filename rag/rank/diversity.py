"""How alike items are, each with each.

An order in which each item adds something to those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    import numpy.typing as npt

    from rag.corpus import Vectors


Likeness: TypeAlias = "npt.NDArray[np.float32]"
"""Shape (items, items), float32, symmetric: 1 for the same, 0 for nothing in common."""


def cosine(vectors: Vectors) -> Likeness:
    """The cosines between unit vectors."""
    return vectors @ vectors.T


def jaccard(sets: Sequence[AbstractSet[Hashable]]) -> Likeness:
    """What each two sets share of all that they have; an empty set is like nothing, not even itself.

    Members are compared by their hash. Example: [{1, 2}, {2, 3}] -> [[1, 1/3], [1/3, 1]].

    Source: Broder, On the resemblance and containment of documents, SEQUENCES 1997,
    doi:10.1109/SEQUEN.1997.666900.
    """
    sizes = np.array([len(members) for members in sets], np.float32)
    rows = np.repeat(np.arange(len(sets)), sizes.astype(np.intp))
    hashes = np.fromiter(map(hash, chain.from_iterable(sets)), np.int64, count=len(rows))
    _, columns, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    common = counts > 1  # most runs of words are in one text only
    has = np.zeros((len(sets), int(common.sum())), np.float32)
    places = common[columns]
    has[rows[places], (common.cumsum() - 1)[columns[places]]] = 1
    shared = has @ has.T
    np.fill_diagonal(shared, sizes)
    united = np.maximum(sizes[:, None] + sizes - shared, 1)
    return (shared / united).astype(np.float32, copy=False)


def diversify(
    relevance: Sequence[float],
    likeness: Likeness,
    *,
    lambda_: float,
    sources: Sequence[Hashable] | None = None,
    penalty: float = 0.0,
    cap: int | None = None,
) -> list[int]:
    """The places of items (given best first) in the order of maximal marginal relevance.

    Next is always the item with the most lambda_ * relevance - (1 - lambda_) * likeness to the nearest
    item before it - penalty * number of items of its source before it; of equals, the one given first.
    At most `cap` items of a source are in the result. `lambda_` lies in [0, 1]; 1 with neither penalty
    nor cap leaves the order as it is, for an item counts as no more relevant than those given before it:
    what decided between equals holds. Without `sources` every item is a source of its own.
    Example: relevance [0.9, 0.8, 0.7], the first two the same, the third unlike, lambda_ 0.5 -> [0, 2, 1].

    Source: Carbonell & Goldstein, SIGIR 1998, doi:10.1145/290941.291025; penalty and cap are ours.
    """
    value = lambda_ * np.minimum.accumulate(np.asarray(relevance, np.float64))
    redundancy = (1 - lambda_) * likeness.astype(np.float64)
    nearest = np.zeros(len(value))
    places, taken = _places(sources or ()), Counter[Hashable]()
    order: list[int] = []
    while len(order) < len(value):
        at = int((value - nearest).argmax())
        if value[at] == -np.inf:  # the rest is over the cap
            break
        nearest = np.maximum(nearest, redundancy[at]) if order else redundancy[at]
        order.append(at)
        value[at] = -np.inf
        if sources is not None:
            taken[sources[at]] += 1
            value[places[sources[at]]] -= np.inf if taken[sources[at]] == cap else penalty
    return order


def _places(sources: Sequence[Hashable]) -> dict[Hashable, npt.NDArray[np.intp]]:
    """Where the items of each source are."""
    found: dict[Hashable, list[int]] = {}
    for place, source in enumerate(sources):
        found.setdefault(source, []).append(place)
    return {source: np.array(places, np.intp) for source, places in found.items()}
