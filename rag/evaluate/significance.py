"""Whether one run is better than another, or was only luckier with its questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = 10_000
SEED = 20_26
AT_ONCE = 1_000  # samples drawn together: 10,000 x 10,000 signs would take 800 MB


def randomisation_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The probability of a mean difference at least as large, either way, if the two were alike.

    `one` and `other` hold the scores of the same questions, in the same order. Fisher's paired
    randomisation test: under the null hypothesis each question's two scores may as well have
    come the other way round, so `SAMPLES` times each difference gets a random sign. The
    smallest p is 1 / (SAMPLES + 1). The seed is fixed: the same scores give the same p.

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
