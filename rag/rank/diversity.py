"""An order in which each item adds something to those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rag.rank.likeness import Likeness


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
