"""BM25 over rows, given which of them contain which words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import fsum, log
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

K1, B = 1.2, 0.75  # as in the engine
Number = TypeVar("Number", float, "npt.NDArray[np.float64]")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to score, in any order: their ids, and their lengths relative to the mean."""

    ids: pa.Array[Any]
    lengths: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def marked(self, ids: pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of the rows have one of these ids."""
        return cast("npt.NDArray[np.bool_]", pc.is_in(self.ids, value_set=ids).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class Matches:
    """Which rows contain which words of a query; `holds` has one array per word."""

    rows: Rows
    stems: Sequence[str]
    holds: Sequence[npt.NDArray[np.bool_]]

    @property
    def rarities(self) -> list[float]:
        """The weight of each word."""
        return [rarity(len(self.rows), int(holds.sum())) for holds in self.holds]

    def first(self, count: int, among: npt.NDArray[np.bool_] | None = None) -> dict[str, int]:
        """The best rows if each word counted once per row: their indexes by id, best first.

        Ties are ordered by id. Rows that `among` doesn't mark are left out.
        """
        scores = np.zeros(len(self.rows))
        for rarity_, holds in zip(self.rarities, self.holds, strict=True):
            scores += rarity_ * holds  # word by word, so that the order of rows changes nothing
        scores *= weight(1.0, self.rows.lengths)
        indexes = np.flatnonzero(scores if among is None else scores * among)
        if count < len(indexes):
            least = np.partition(scores[indexes], -count)[-count]
            indexes = indexes[scores[indexes] >= least]
        ids = cast("list[str]", self.rows.ids.take(pa.array(indexes, pa.int64())).to_pylist())
        best = sorted(zip((-scores[indexes]).tolist(), ids, indexes.tolist(), strict=True))
        return {id_: index for _, id_, index in best[:count]}

    def scores(self, rows: Sequence[tuple[int, Sequence[str]]]) -> list[float]:
        """The BM25 scores of rows, given by index and words. A word that a row contains counts at least once.

        Here the length of a row is its number of words. The mean is estimated from these rows, whose lengths
        relative to it are known.
        """
        of_mean_length = fsum(self.rows.lengths[index] for index, _ in rows) or 1.0
        mean = max(sum(len(words) for _, words in rows), 1) / of_mean_length
        terms = list(zip(self.stems, self.rarities, self.holds, strict=True))
        scores = []
        for index, words in rows:
            times, length = Counter(words), len(words) / mean
            scores.append(
                sum(
                    rarity_ * weight(float(max(times[stem], 1)), length)
                    for stem, rarity_, holds in terms
                    if holds[index]
                )
            )
        return scores


def rarity(rows: int, holding: int) -> float:
    """The weight of a word that `holding` of `rows` rows contain; the fewer, the higher.

    Example: 1 of 1,000 -> 6.5; 500 of 1,000 -> 0.7; all of them -> 0.0005.
    """
    return log(1 + (rows - holding + 0.5) / (holding + 0.5))


def weight(times: float, length: Number) -> Number:
    """The weight of a word that a row contains `times` times; `length` is relative to the mean.

    Example: once in a row of mean length -> 1.0; never more than 2.2.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
    """
    return times * (K1 + 1) / (times + K1 * (1 - B + B * length))
