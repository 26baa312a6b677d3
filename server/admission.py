"""How much may run at once and how often: for everybody together, for each tenant, and for each of its users.

What is over it waits a moment, and then is told to come again, so that one tenant's flood costs the others
little, one user's loop their colleagues as little, and nobody waits for long.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import anyio

from rag.concurrency import cores
from rag.errors import BusyError
from server.turns import Bucket, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rag.config.settings import LimitSettings
    from rag.corpus import Principal

SETTLING_SECONDS = 0.1  # from the wire to a slot, and from a slot to the wire
WAITING = 8  # times as many of a user's requests may wait as may run: clients come in bursts
USERS_SHARE = 4  # a user may ask a quarter as often as the tenant, if the settings don't say otherwise
REMEMBERED = 1024  # tenants, and users of each; beyond, those that ask nothing just now are forgotten


@dataclass(slots=True)
class _Tenant:
    """What a tenant uses: slots, and the requests that it and its users may still make at this time."""

    turns: Turns
    budget: Bucket
    budgets: dict[str, Bucket] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return self.turns.idle and self.budget.full


class Admission:
    """Slots for requests. `active` is how many run; with `patience`, what is too much waits its turn.

    Who has no name is one user with all others of the tenant who have none.
    """

    def __init__(self, limits: LimitSettings, *, patience: bool = False) -> None:
        self._limits = limits
        self._most = limits.concurrent_per_tenant or cores() + 1
        self._most_of_one = limits.concurrent_per_user or max(1, self._most - 1)
        self._often = limits.requests_per_minute
        self._often_of_one = limits.requests_per_minute_per_user or max(1, self._often // USERS_SHARE)
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

    def check(self, who: Principal) -> None:
        """Whether a request of somebody need not wait for long; transports ask before they read it.

        Raises:
            BusyError: eight times as many of theirs wait already as may run at once, or they or their tenant
                asked too often.
        """
        if self._patience:
            return
        tenant, user = self._of(who.tenant), who.user or ""
        for budget in (self._budget_of(tenant, user), tenant.budget):
            if budget.seconds:
                self._refuse("Too many requests.", budget.seconds)
        if tenant.turns.waiting(user) >= WAITING * min(self._most, self._most_of_one):
            self._refuse("The desk is busy.", 1)

    @asynccontextmanager
    async def slot(self, who: Principal) -> AsyncIterator[None]:
        """A slot for one request of somebody, free again with the block's end.

        Raises:
            BusyError: none became free in time, or see `check`.
        """
        self.check(who)
        tenant, user = self._of(who.tenant), who.user or ""
        tenant.budget.take()
        self._budget_of(tenant, user).take()
        ends = math.inf if self._patience else anyio.current_time() + self._limits.queue_seconds
        self._present += 1
        try:
            async with self._turn(tenant.turns, user, ends), self._place(ends):
                yield
        finally:
            self._leave()

    @asynccontextmanager
    async def _turn(self, turns: Turns, user: str, ends: float) -> AsyncIterator[None]:
        """One of the tenant's slots."""
        with anyio.CancelScope(deadline=ends) as waiting:
            await turns.take(user)
        if waiting.cancelled_caught:
            self._refuse("The desk is busy.", 1)
        try:
            yield
        finally:
            turns.give_back(user)

    @asynccontextmanager
    async def _place(self, ends: float) -> AsyncIterator[None]:
        """One of everybody's slots."""
        borrower = object()
        try:
            self._everybody.acquire_on_behalf_of_nowait(borrower)
        except anyio.WouldBlock:
            with anyio.CancelScope(deadline=ends) as waiting:
                await self._everybody.acquire_on_behalf_of(borrower)
            if waiting.cancelled_caught:
                self._refuse("The desk is busy.", 1)
        try:
            yield
        finally:
            self._everybody.release_on_behalf_of(borrower)

    def _leave(self) -> None:
        self._present -= 1
        if not self._present:
            self._left.set()
            self._left = anyio.Event()

    def _of(self, name: str) -> _Tenant:
        if name not in self._tenants:
            if len(self._tenants) >= REMEMBERED:
                self._tenants = {key: one for key, one in self._tenants.items() if not one.idle}
            turns = Turns(self._most, self._most_of_one)
            self._tenants[name] = _Tenant(turns, Bucket(self._often))
        return self._tenants[name]

    def _budget_of(self, tenant: _Tenant, user: str) -> Bucket:
        if user not in tenant.budgets:
            if len(tenant.budgets) >= REMEMBERED:
                tenant.budgets = {key: one for key, one in tenant.budgets.items() if not one.full}
            tenant.budgets[user] = Bucket(self._often_of_one)
        return tenant.budgets[user]

    def _refuse(self, why: str, seconds: int) -> NoReturn:
        self.rejected += 1
        raise BusyError(f"{why} Ask again in {seconds} s.", retry_seconds=seconds)
