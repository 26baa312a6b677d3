"""How much may run at once and how often: for everybody together, and for each tenant alone.

What is over it waits a moment, and then is told to come again, so that one tenant's flood costs the others
little and nobody waits for long.
"""

from __future__ import annotations

import math
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import anyio

from rag.cores import cores
from rag.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rag.settings import LimitSettings

SETTLING_SECONDS = 0.1  # from the wire to a slot, and from a slot to the wire
WAITING = 8  # times as many of a tenant's requests may wait as may run: clients come in bursts
IDLE_TENANTS = 1024  # remembered at most, of those that ask nothing just now


@dataclass(slots=True)
class _Tenant:
    """What a tenant uses: slots, and the requests that it may still make at this time."""

    slots: anyio.CapacityLimiter
    budget: float
    counted_at: float = field(default_factory=time.monotonic)


class Admission:
    """Slots for requests. `active` is how many run; with `patience`, what is too much waits its turn."""

    def __init__(self, limits: LimitSettings, *, patience: bool = False) -> None:
        self._limits = limits
        self._most = limits.concurrent_per_tenant or cores()
        self._patience = patience
        self._everybody = anyio.CapacityLimiter(limits.concurrent)
        self._tenants: dict[str, _Tenant] = {}
        self._present = 0
        self._left = anyio.Event()
        self.leaving = anyio.Event()
        self.rejected = 0

    @property
    def active(self) -> int:
        """How many requests have a slot."""
        return self._everybody.borrowed_tokens

    async def drained(self) -> None:
        """Wait until the process is to leave (`leaving`), and then until everything is answered."""
        await self.leaving.wait()
        await anyio.sleep(SETTLING_SECONDS)
        while self._present:
            await self._left.wait()
        await anyio.sleep(SETTLING_SECONDS)

    def check(self, tenant: str) -> None:
        """Whether a request of the tenant need not wait for long; transports ask before they read it.

        Raises:
            BusyError: eight times as many wait already as may run at once, or the tenant asked too often.
        """
        if self._patience:
            return
        theirs, most = self._of(tenant), self._limits.requests_per_minute
        now = time.monotonic()
        theirs.budget = min(most, theirs.budget + (now - theirs.counted_at) * most / 60)
        theirs.counted_at = now
        if theirs.budget < 1:
            self._refuse("Too many requests.", max(1, math.ceil((1 - theirs.budget) * 60 / most)))
        if theirs.slots.statistics().tasks_waiting >= WAITING * self._most:
            self._refuse("The desk is busy.", 1)

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """A slot for one request of a tenant, free again with the block's end.

        Raises:
            BusyError: none became free in time, or see `check`.
        """
        self.check(tenant)
        theirs, borrower = self._of(tenant), object()
        theirs.budget -= 1
        taken: list[anyio.CapacityLimiter] = []
        self._present += 1
        ends = math.inf if self._patience else anyio.current_time() + self._limits.queue_seconds
        try:
            for limiter in (theirs.slots, self._everybody):
                await self._take(limiter, borrower, ends)
                taken.append(limiter)
            yield
        finally:
            for limiter in taken:
                limiter.release_on_behalf_of(borrower)
            self._leave()

    async def _take(self, limiter: anyio.CapacityLimiter, borrower: object, ends: float) -> None:
        with suppress(anyio.WouldBlock):
            limiter.acquire_on_behalf_of_nowait(borrower)
            return
        with anyio.CancelScope(deadline=ends) as waiting:
            await limiter.acquire_on_behalf_of(borrower)
        if waiting.cancelled_caught:
            self._refuse("The desk is busy.", 1)

    def _leave(self) -> None:
        self._present -= 1
        if not self._present:
            self._left.set()
            self._left = anyio.Event()

    def _of(self, tenant: str) -> _Tenant:
        if tenant not in self._tenants:
            if len(self._tenants) >= IDLE_TENANTS:
                self._tenants = {
                    name: one for name, one in self._tenants.items() if one.slots.borrowed_tokens
                }
            slots = anyio.CapacityLimiter(self._most)
            self._tenants[tenant] = _Tenant(slots, self._limits.requests_per_minute)
        return self._tenants[tenant]

    def _refuse(self, why: str, seconds: int) -> NoReturn:
        self.rejected += 1
        raise BusyError(f"{why} Ask again in {seconds} s.", retry_seconds=seconds)
