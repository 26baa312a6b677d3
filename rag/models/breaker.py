"""The circuit breaker of a remote model: while its endpoint fails, calls end at once instead of waiting.

    closed --a call fails--> open for a pause --it ends--> one call is the trial --it succeeds--> closed
                               ^                                           |
                               +------------ twice the pause -- it fails --+

A slow endpoint differs from a failing one: a call that timed out after a second says nothing about a call
that can wait for twenty. So a breaker remembers how long a call waited, and holds back only calls with about
as little time, or less.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isinf

from rag.errors import ProviderError

FIRST_PAUSE = 1.0  # seconds that calls are held back after the first failure; doubled with each failed trial
LONGEST_PAUSE = 30.0  # seconds; also the longest that a recovery goes unnoticed
LONGEST_ASKED = 300.0  # seconds that calls are held back because the endpoint asks for it (Retry-After)
MUCH_LONGER = 2  # times the patience of a call that timed out: one with more is sent


class HeldBackError(ProviderError):
    """The endpoint failed a moment ago, so this call was not sent."""


class RefusedError(ProviderError):
    """The endpoint refuses this request; it may accept a smaller one, or one with fewer parameters."""


def note_failure(log: logging.Logger, error: ProviderError) -> None:
    """Log a failure that doesn't end the search; a call that was not sent, only at level info."""
    log.log(logging.INFO if isinstance(error, HeldBackError) else logging.WARNING, "%s", error)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that can wait for `patience` seconds. A `trial` tests whether the endpoint works again."""

    began: float
    patience: float
    trial: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Why calls are held back until `until`, and for how many seconds the last one `waited` in vain.

    `waited` is infinite if the endpoint failed outright, not by a timeout.
    """

    cause: str
    waited: float
    pause: float
    until: float


@dataclass(slots=True)
class Breaker:
    """The state of one endpoint, shared by all calls. `clock` is in seconds, and never goes back.

    `failures` counts calls that failed, or got no valid answer; `held_back` those that were not sent.
    """

    clock: Callable[[], float] = time.monotonic
    failures: int = 0
    held_back: int = 0
    fault: Fault | None = None
    _on_trial: bool = field(default=False, init=False)
    _last_success: tuple[float, float] = field(default=(-inf, inf), init=False)  # when, and after how long

    def begin(self, patience: float) -> Call:
        """A call that can wait for `patience` seconds; infinite patience is never held back.

        One of `succeeded`, `failed` and `abandoned` must follow.

        Raises:
            HeldBackError: the endpoint is failing, and it is too early to try again, or another call does.
        """
        now, fault = self.clock(), self.fault
        # A call without a deadline, as of an ingestion, goes by its own retries.
        if fault is None or isinf(patience) or patience > MUCH_LONGER * fault.waited:
            return Call(now, patience, trial=False)
        if now < fault.until or self._on_trial:
            self.held_back += 1
            raise HeldBackError(fault.cause)
        self._on_trial = True
        return Call(now, patience, trial=True)

    def succeeded(self, call: Call) -> bool:
        """The endpoint answered. True if it was failing until now, and calls are no longer held back."""
        self.abandoned(call)
        now = self.clock()
        took = now - call.began
        self._last_success = now, took
        if self.fault is None or took >= self.fault.waited:  # as slow as before
            return False
        self.fault = None
        return True

    def failed(self, call: Call, cause: str, *, late: bool, asked: float = 0.0) -> None:
        """The endpoint failed; `late` if it gave no answer within the patience of the call.

        Calls are held back for at least the seconds that the endpoint `asked` for.
        """
        self.abandoned(call)
        self.failures += 1
        now, waited = self.clock(), call.patience if late else inf
        when, took = self._last_success
        if when > call.began and took < waited:
            return  # it answered other calls within this call's patience: only this call failed
        fault, pause = self.fault, FIRST_PAUSE
        if fault and call.trial:
            pause = min(2 * fault.pause, LONGEST_PAUSE)
        elif fault and fault.waited >= waited:
            return  # the fault is already known; this call began before it
        pause = max(pause, min(asked, LONGEST_ASKED))
        self.fault = Fault(cause, waited, pause, now + pause)

    def abandoned(self, call: Call) -> None:
        """The caller gave up for reasons of its own, which says nothing about the endpoint."""
        if call.trial:
            self._on_trial = False
