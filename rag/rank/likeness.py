"""How alike items are, each with each."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from collections.abc import Set as AbstractSet

    import numpy.typing as npt

    from rag.records import Vectors

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
