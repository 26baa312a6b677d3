"""BM25 over rows that are known by which of them hold which words."""

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

K1, B = 1.2, 0.75  # as the engine has them
Number = TypeVar("Number", float, "npt.NDArray[np.float64]")


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows that count, in any order: their ids, and their lengths in units of the mean."""

    ids: pa.Array[Any]
    lengths: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def marked(self, ids: pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of the rows have one of these ids."""
        return cast("npt.NDArray[np.bool_]", pc.is_in(self.ids, value_set=ids).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows by which of a query's words they hold; `holds` has a line for each word."""

    rows: Rows
    stems: Sequence[str]
    holds: Sequence[npt.NDArray[np.bool_]]

    @property
    def rarities(self) -> list[float]:
        """How much each word counts."""
        return [rarity(len(self.rows), int(holds.sum())) for holds in self.holds]

    def first(self, count: int, among: npt.NDArray[np.bool_] | None = None) -> dict[str, int]:
        """The ids that would be first if each word counted once a row, best first, with their places.

        Equals are ordered by id. Rows that `among` doesn't mark are left out.
        """
        scores = np.zeros(len(self.rows))
        for rarity_, holds in zip(self.rarities, self.holds, strict=True):
            scores += rarity_ * holds  # word by word, so that the order of rows changes no bit
        scores *= weight(1.0, self.rows.lengths)
        places = np.flatnonzero(scores if among is None else scores * among)
        if count < len(places):
            least = np.partition(scores[places], -count)[-count]
            places = places[scores[places] >= least]
        ids = cast("list[str]", self.rows.ids.take(pa.array(places, pa.int64())).to_pylist())
        best = sorted(zip((-scores[places]).tolist(), ids, places.tolist(), strict=True))
        return {id_: place for _, id_, place in best[:count]}

    def scores(self, rows: Sequence[tuple[int, Sequence[str]]]) -> list[float]:
        """BM25 of rows, given by their places and words; a word that a row holds counts once at least.

        Here a row is as long as it has words. How many are the mean, these rows tell: how long they are in
        units of it is known.
        """
        of_mean_length = fsum(self.rows.lengths[place] for place, _ in rows) or 1.0
        mean = max(sum(len(words) for _, words in rows), 1) / of_mean_length
        terms = list(zip(self.stems, self.rarities, self.holds, strict=True))
        scores = []
        for place, words in rows:
            times, length = Counter(words), len(words) / mean
            scores.append(
                sum(
                    rarity_ * weight(float(max(times[stem], 1)), length)
                    for stem, rarity_, holds in terms
                    if holds[place]
                )
            )
        return scores


def rarity(rows: int, holding: int) -> float:
    """How much a word counts that so many of the rows hold; the fewer, the more.

    Example: 1 of 1,000 -> 6.5; 500 of 1,000 -> 0.7; all of them -> 0.0005.
    """
    return log(1 + (rows - holding + 0.5) / (holding + 0.5))


def weight(times: float, length: Number) -> Number:
    """How much a word counts that a row holds so many times; `length` is the row's in units of the mean.

    Example: once in a row of mean length -> 1.0; never more than 2.2.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
    """
    return times * (K1 + 1) / (times + K1 * (1 - B + B * length))
