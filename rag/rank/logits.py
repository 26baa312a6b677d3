"""From what a classifier says to scores between 0 and 1."""

from __future__ import annotations

import math


def logistic(logit: float) -> float:
    """The probability that a logit stands for. Example: 0.0 -> 0.5, 2.0 -> 0.88, -2.0 -> 0.12."""
    return (1 + math.tanh(logit / 2)) / 2  # the usual form overflows below -709
