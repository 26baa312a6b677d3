"""Scales vectors to unit length, and rejects those that have no direction.

All stored vectors and query vectors have unit length. Then the dot product is the cosine, the metrics cosine,
dot and euclidean give the same order, and a similarity means the same in every collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rag.errors import ProviderError

if TYPE_CHECKING:
    import numpy.typing as npt

    from rag.corpus import Vectors


def unit_rows(rows: npt.NDArray[np.float32] | npt.NDArray[np.float64]) -> Vectors:
    """Every row scaled to unit length.

    Example: [[3, 4]] -> [[0.6, 0.8]].

    Raises:
        ProviderError: a row is zero, or not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # the check below reports them
        norms = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise ProviderError(
            "The embedding model returned a vector that is zero or not finite; nothing was stored."
        )
    unit: Vectors = (rows / norms).astype(np.float32)
    return unit
