"""Two runs side by side: which is better, is it luck, and on which questions."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rag.errors import InvalidRequestError
from rag.evaluate.significance import randomisation_p

if TYPE_CHECKING:
    from rag.evaluate.runs import QuestionResult, Run

SAME = 1e-9  # scores are sums of fractions


@dataclass(frozen=True, slots=True)
class Pair:
    """A question in both runs."""

    one: QuestionResult
    other: QuestionResult
    difference: float
    """How much better the other run did."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The other run against the one, by a metric, on the questions that both have.

    `p_value` is how probable a difference at least as large would be if the two were alike.
    """

    metric: str
    one: float
    other: float
    p_value: float
    pairs: tuple[Pair, ...]

    @property
    def difference(self) -> float:
        """How much better the other run did."""
        return self.other - self.one

    @property
    def alike(self) -> int:
        """How many questions both answer as well."""
        return len(self.pairs) - len(self.won) - len(self.lost)

    @property
    def won(self) -> list[Pair]:
        """The questions that the other run answers better, the greatest gain first."""
        return sorted(
            (pair for pair in self.pairs if pair.difference > SAME), key=lambda pair: -pair.difference
        )

    @property
    def lost(self) -> list[Pair]:
        """The questions that it answers worse, the greatest loss first."""
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
            f"The runs have no question in common that {metric} was measured on; there are: {known}."
        )
    before, after = ([pair[at].metrics[metric] for pair in both] for at in (0, 1))
    return Comparison(
        metric,
        fmean(before),
        fmean(after),
        randomisation_p(before, after),
        tuple(Pair(mine, their, their.metrics[metric] - mine.metrics[metric]) for mine, their in both),
    )
