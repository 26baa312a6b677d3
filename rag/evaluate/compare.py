"""Two runs compared: which is better, whether by chance, and on which questions."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.evaluate.runs import QuestionResult, Run

SAME = 1e-9  # scores are sums of fractions
SAMPLES = 10_000
SEED = 20_26
AT_ONCE = 1_000  # samples drawn together: 10,000 x 10,000 signs would take 800 MB


@dataclass(frozen=True, slots=True)
class Pair:
    """A question in both runs."""

    one: QuestionResult
    other: QuestionResult
    difference: float
    """The other run's score minus the one's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The other run against the one, by a metric, on the questions that both have.

    `p_value` is the probability of a difference at least as large if the runs were equally good.
    """

    metric: str
    one: float
    other: float
    p_value: float
    pairs: tuple[Pair, ...]

    @property
    def difference(self) -> float:
        """The other run's score minus the one's."""
        return self.other - self.one

    @property
    def alike(self) -> int:
        """How many questions have the same score in both runs."""
        return len(self.pairs) - len(self.won) - len(self.lost)

    @property
    def won(self) -> list[Pair]:
        """The questions that the other run answers better, largest gain first."""
        return sorted(
            (pair for pair in self.pairs if pair.difference > SAME), key=lambda pair: -pair.difference
        )

    @property
    def lost(self) -> list[Pair]:
        """The questions that the other run answers worse, largest loss first."""
        return sorted(
            (pair for pair in self.pairs if pair.difference < -SAME), key=lambda pair: pair.difference
        )


def compare(one: Run, other: Run, metric: str) -> Comparison:
    """Compare two runs by a metric.

    Raises:
        InvalidRequestError: they share no question that has the metric.
    """
    theirs = {result.id: result for result in other.questions if metric in result.metrics}
    both = [
        (mine, theirs[mine.id])
        for mine in one.questions
        if metric in mine.metrics and mine.id in theirs and theirs[mine.id].text == mine.text
    ]
    if not both:
        known = ", ".join(one.summary.metrics)
        raise InvalidRequestError(
            f"The runs share no question with the metric {metric}. The first run has: {known}."
        )
    before, after = ([pair[at].metrics[metric] for pair in both] for at in (0, 1))
    return Comparison(
        metric,
        fmean(before),
        fmean(after),
        randomisation_p(before, after),
        tuple(Pair(mine, their, their.metrics[metric] - mine.metrics[metric]) for mine, their in both),
    )


def randomisation_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value of Fisher's paired randomisation test.

    `one` and `other` hold the scores of the same questions, in the same order. Under the null
    hypothesis each question's two scores are interchangeable, so each difference gets a random sign,
    `SAMPLES` times. The smallest p is 1 / (SAMPLES + 1). The seed is fixed: equal scores give equal p.

    Source: Smucker, Allan & Carterette, CIKM 2007, doi:10.1145/1321440.1321528; the added
    one is Phipson & Smyth's, SAGMB 9(1), 2010, doi:10.2202/1544-6115.1585.
    """
    differences = np.subtract(one, other)
    observed = abs(differences.sum())
    random = np.random.default_rng(SEED)
    as_large = 0
    for _ in range(SAMPLES // AT_ONCE):
        signs = random.choice([-1.0, 1.0], size=(AT_ONCE, len(differences)))
        sums = np.abs(signs @ differences)
        as_large += int(np.count_nonzero(sums >= observed - 1e-9))  # rounding makes equal sums differ
    return (as_large + 1) / (SAMPLES + 1)
