"""How often something may be done: so many times at once, and as many again in a minute.

Slots that a tenant's users share, so that nobody's many requests stand before another's first.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque

import anyio


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


class Turns:
    """`most` slots, of which one user has `most_of_one` at once. Whose turn it is goes round.

    Of the users who wait for a slot, the one who has the fewest gets it, and of several such the one who got
    none for the longest time; each user's requests keep their order.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[anyio.Event]] = {}  # in the order of whose turn it is

    @property
    def idle(self) -> bool:
        """Whether nobody has a slot or waits for one."""
        return not self._running and not self._waiting

    def waiting(self, user: str) -> int:
        """How many of a user's requests wait."""
        return len(self._waiting.get(user, ()))

    async def take(self, user: str) -> None:
        """Have a slot, at once or when it is this user's turn."""
        if self._may(user):
            self._running[user] += 1
            return
        turn = anyio.Event()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.give_back(user)
            else:
                self._drop(user, turn)
            raise

    def give_back(self, user: str) -> None:
        """Let go of a slot, which is somebody else's at once."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        able = [name for name in self._waiting if self._may(name)]
        if able:
            self._give(min(able, key=lambda name: self._running[name]))

    def _give(self, user: str) -> None:
        turns = self._waiting.pop(user)
        turns.popleft().set()
        self._running[user] += 1
        if turns:
            self._waiting[user] = turns  # behind all others

    def _drop(self, user: str, turn: anyio.Event) -> None:
        self._waiting[user].remove(turn)
        if not self._waiting[user]:
            del self._waiting[user]

    def _may(self, user: str) -> bool:
        return self._running.total() < self._most and self._running[user] < self._most_of_one
