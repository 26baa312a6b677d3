"""Admission control: rate limits and slots, for the process, for each tenant and for each user.

A request passes the token buckets of its user and tenant, waits in its tenant's fair queue, then for one of
the process's slots. What can't be served in time is rejected with the seconds to wait: backpressure instead
of an endless queue. So one tenant's flood costs other tenants little, and one user's loop their colleagues.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import anyio

from rag.concurrency import cores
from rag.errors import BusyError
from server.limits import FairQueue, TokenBucket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rag.config.settings import LimitSettings
    from rag.corpus import Principal

SETTLING_SECONDS = 0.1  # between reading a request and its slot, and between its slot and writing the reply
WAITING_PER_SLOT = 8  # requests that a user may have waiting, per slot: clients come in bursts
USERS_SHARE = 4  # by default a user may send a quarter of the tenant's requests per minute
MAX_REMEMBERED = 1024  # tenants, and users of each; beyond this, idle ones are forgotten


@dataclass(slots=True)
class _Tenant:
    """A tenant's slots, its rate limit and those of its users."""

    queue: FairQueue
    rate: TokenBucket
    user_rates: dict[str, TokenBucket] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return self.queue.idle and self.rate.full


class Admission:
    """Admits requests. With `wait_forever`, nothing is rejected: a single local host waits its turn.

    All users of a tenant who have no name count as one user.
    """

    def __init__(self, limits: LimitSettings, *, wait_forever: bool = False) -> None:
        self._limits = limits
        self._slots_per_tenant = limits.concurrent_per_tenant or cores() + 1
        self._slots_per_user = limits.concurrent_per_user or max(1, self._slots_per_tenant - 1)
        self._tenant_rate = limits.requests_per_minute
        self._user_rate = limits.requests_per_minute_per_user or max(1, self._tenant_rate // USERS_SHARE)
        self._wait_forever = wait_forever
        self._process_slots = anyio.CapacityLimiter(limits.concurrent)
        self._tenants: dict[str, _Tenant] = {}
        self._in_flight = 0  # requests that wait or run
        self._idle = anyio.Event()
        self.shutting_down = anyio.Event()
        self.rejected = 0

    @property
    def active(self) -> int:
        """How many requests hold a slot."""
        return self._process_slots.borrowed_tokens

    async def drained(self) -> None:
        """Wait for `shutting_down`, then until every request is answered.

        Requests count only while they wait for or hold a slot. The pauses cover the rest of their way: one
        that was read just before the signal has not asked for its slot yet, and a reply is written after its
        slot is released.
        """
        await self.shutting_down.wait()
        await anyio.sleep(SETTLING_SECONDS)
        while self._in_flight:
            await self._idle.wait()
        await anyio.sleep(SETTLING_SECONDS)

    def check(self, principal: Principal) -> None:
        """Early rejection, before a transport reads the body.

        Raises:
            BusyError: the principal or its tenant has sent too many requests, or the principal has eight
                times as many waiting as may run at once.
        """
        if self._wait_forever:
            return
        tenant, user = self._tenant(principal.tenant), principal.user or ""
        for rate in (self._rate_of(tenant, user), tenant.rate):
            if rate.retry_seconds:
                self._reject("Too many requests.", rate.retry_seconds)
        if tenant.queue.waiting(user) >= WAITING_PER_SLOT * min(self._slots_per_tenant, self._slots_per_user):
            self._reject("The server is busy.", 1)

    @asynccontextmanager
    async def slot(self, principal: Principal) -> AsyncIterator[None]:
        """Hold a slot for one request until the block ends.

        Raises:
            BusyError: no slot became free within `queue_seconds`; or as `check` does.
        """
        self.check(principal)
        tenant, user = self._tenant(principal.tenant), principal.user or ""
        tenant.rate.take()
        self._rate_of(tenant, user).take()
        # One deadline for both queues: otherwise a request could wait twice as long as configured.
        deadline = math.inf if self._wait_forever else anyio.current_time() + self._limits.queue_seconds
        self._in_flight += 1
        try:
            # The tenant's slot comes first: who waits for it must not hold one of the process's.
            async with self._tenant_slot(tenant.queue, user, deadline), self._process_slot(deadline):
                yield
        finally:
            self._finish()

    @asynccontextmanager
    async def _tenant_slot(self, queue: FairQueue, user: str, deadline: float) -> AsyncIterator[None]:
        with anyio.CancelScope(deadline=deadline) as waiting:
            await queue.acquire(user)
        if waiting.cancelled_caught:
            self._reject("The server is busy.", 1)
        try:
            yield
        finally:
            queue.release(user)

    @asynccontextmanager
    async def _process_slot(self, deadline: float) -> AsyncIterator[None]:
        borrower = object()  # the default borrower is the task, which could hold only one slot
        try:
            self._process_slots.acquire_on_behalf_of_nowait(borrower)
        except anyio.WouldBlock:
            with anyio.CancelScope(deadline=deadline) as waiting:
                await self._process_slots.acquire_on_behalf_of(borrower)
            if waiting.cancelled_caught:
                self._reject("The server is busy.", 1)
        try:
            yield
        finally:
            self._process_slots.release_on_behalf_of(borrower)

    def _finish(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()
            self._idle = anyio.Event()

    def _tenant(self, name: str) -> _Tenant:
        if name not in self._tenants:
            if len(self._tenants) >= MAX_REMEMBERED:
                self._tenants = {key: tenant for key, tenant in self._tenants.items() if not tenant.idle}
            queue = FairQueue(self._slots_per_tenant, self._slots_per_user)
            self._tenants[name] = _Tenant(queue, TokenBucket(self._tenant_rate))
        return self._tenants[name]

    def _rate_of(self, tenant: _Tenant, user: str) -> TokenBucket:
        if user not in tenant.user_rates:
            if len(tenant.user_rates) >= MAX_REMEMBERED:
                tenant.user_rates = {key: rate for key, rate in tenant.user_rates.items() if not rate.full}
            tenant.user_rates[user] = TokenBucket(self._user_rate)
        return tenant.user_rates[user]

    def _reject(self, reason: str, seconds: int) -> NoReturn:
        self.rejected += 1
        raise BusyError(f"{reason} Try again in {seconds} s.", retry_seconds=seconds)
