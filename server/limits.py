"""A token bucket for rate limits, and a fair queue for the slots that a tenant's users share."""

from __future__ import annotations

import math
import time
from collections import Counter, deque

import anyio


class TokenBucket:
    """Allows bursts of `per_minute` requests and refills evenly, `per_minute` tokens a minute."""

    __slots__ = ("_counted_at", "_per_minute", "_tokens")

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._tokens = float(per_minute)
        self._counted_at = time.monotonic()

    @property
    def retry_seconds(self) -> int:
        """Whole seconds until there is a token; 0 if there is one now."""
        tokens = self._refill()
        return 0 if tokens >= 1 else max(1, math.ceil((1 - tokens) * 60 / self._per_minute))

    @property
    def full(self) -> bool:
        """Whether it is as good as new, so that it can be forgotten without losing anything."""
        return self._refill() >= self._per_minute

    def take(self) -> None:
        """Take a token if there is one. There is no debt: an empty bucket stays empty."""
        self._tokens = max(0.0, self._refill() - 1)

    def _refill(self) -> float:
        now = time.monotonic()
        self._tokens = min(self._per_minute, self._tokens + (now - self._counted_at) * self._per_minute / 60)
        self._counted_at = now
        return self._tokens


class FairQueue:
    """`slots` slots, at most `slots_per_user` of them for one user, handed out round robin.

    A free slot goes to the waiting user who holds the fewest; among equals, to the one who has waited longest
    since their last turn. Requests of one user keep their order. So a user's hundred requests delay a
    colleague's first by one request at most, not by a hundred.
    """

    def __init__(self, slots: int, slots_per_user: int) -> None:
        self._slots = slots
        self._slots_per_user = slots_per_user
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[anyio.Event]] = {}  # insertion order is the round-robin order

    @property
    def idle(self) -> bool:
        """Whether nobody holds a slot or waits for one."""
        return not self._running and not self._waiting

    def waiting(self, user: str) -> int:
        """How many requests of a user are waiting."""
        return len(self._waiting.get(user, ()))

    async def acquire(self, user: str) -> None:
        """Take a slot, at once or when it is this user's turn."""
        if self._may_run(user):
            self._running[user] += 1
            return
        turn = anyio.Event()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            # Cancellation can arrive after `release` has handed the slot to this task and before it runs.
            # Then the slot is ours and must be passed on, or it would be lost for good.
            if turn.is_set():
                self.release(user)
            else:
                self._remove(user, turn)
            raise

    def release(self, user: str) -> None:
        """Give a slot back. The next user has it before this returns, so that nobody can jump the queue."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        eligible = [name for name in self._waiting if self._may_run(name)]
        if eligible:
            self._hand_over(min(eligible, key=lambda name: self._running[name]))

    def _hand_over(self, user: str) -> None:
        turns = self._waiting.pop(user)
        turns.popleft().set()
        self._running[user] += 1
        if turns:
            self._waiting[user] = turns  # at the end of the round

    def _remove(self, user: str, turn: anyio.Event) -> None:
        self._waiting[user].remove(turn)
        if not self._waiting[user]:
            del self._waiting[user]

    def _may_run(self, user: str) -> bool:
        return self._running.total() < self._slots and self._running[user] < self._slots_per_user
