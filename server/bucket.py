"""How often something may be done: so many times at once, and as many again in a minute."""

from __future__ import annotations

import math
import time


class Bucket:
    """What may still be done of `most` times a minute. It fills itself again, evenly."""

    __slots__ = ("_counted_at", "_left", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = float(most)
        self._counted_at = time.monotonic()

    @property
    def seconds(self) -> int:
        """After how many whole seconds there is something in it; 0 while there is."""
        left = self._now()
        return 0 if left >= 1 else max(1, math.ceil((1 - left) * 60 / self._most))

    @property
    def full(self) -> bool:
        """Whether it is as good as new, so that nothing is lost with it."""
        return self._now() >= self._most

    def take(self) -> None:
        """Do it once more; what isn't there is not owed."""
        self._left = max(0.0, self._now() - 1)

    def _now(self) -> float:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._counted_at) * self._most / 60)
        self._counted_at = now
        return self._left
