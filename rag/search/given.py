"""A search by a vector that the request brings, instead of one that the embedding model makes of its query.

It is for what a query can't say, and for what was embedded elsewhere. No embedding model is called, so what
needs one for other texts is left out: stages that add queries, and comparing sentences by their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

MAX_DIMENSION = 8192  # as of embedder.dimensions


@dataclass(frozen=True, slots=True)
class Given:
    """A vector of unit length, and the names of the stages that can't run with it."""

    vector: npt.NDArray[np.float32]
    skipped: tuple[str, ...] = ()


def unit_vector(numbers: Sequence[float]) -> npt.NDArray[np.float32]:
    """A vector scaled to unit length. Example: [3, 4] -> [0.6, 0.8].

    Raises:
        InvalidRequestError: it is no list of 1 to 8192 finite numbers, or all of them are 0.
    """
    try:
        vector = np.asarray(numbers)
    except ValueError as error:  # lists of different lengths
        raise InvalidRequestError("vector must be a list of numbers.") from error
    if vector.ndim != 1 or vector.dtype.kind not in "iuf":
        raise InvalidRequestError("vector must be a list of numbers.")
    if not 1 <= len(vector) <= MAX_DIMENSION:
        raise InvalidRequestError(f"vector must have from 1 to {MAX_DIMENSION} numbers, not {len(vector)}.")
    vector = vector.astype(np.float64)
    largest = np.abs(vector).max()
    if not np.isfinite(largest):
        raise InvalidRequestError("vector must have finite numbers only, no nan or inf.")
    if not largest:
        raise InvalidRequestError("vector must not be all zeros: it points nowhere.")
    vector /= largest  # so that squares neither overflow nor vanish
    unit: npt.NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit
