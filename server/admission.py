"""Admission control: rate limits and slots, for the process, for each tenant and for each user.

A token bucket limits the rate. A fair queue hands out the slots that a tenant's users share. `request_limits`
holds a slot during each request, and gives the request a deadline.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import anyio

from rag.config.server_settings import LimitSettings
from rag.corpus import Principal
from rag.errors import BusyError
from rag.runtime import cores

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext


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
        """Whether it is full, and can be dropped: a new bucket would be the same."""
        return self._refill() >= self._per_minute

    def take(self) -> None:
        """Take a token if any is left. A bucket never goes below zero."""
        self._tokens = max(0.0, self._refill() - 1)

    def _refill(self) -> float:
        now = time.monotonic()
        self._tokens = min(self._per_minute, self._tokens + (now - self._counted_at) * self._per_minute / 60)
        self._counted_at = now
        return self._tokens


class FairQueue:
    """`slots` slots, at most `slots_per_user` of them for one user, handed out round robin.

    A free slot goes to the waiting user who holds the fewest slots; among equals, to the user whose last turn
    is longest ago. Requests of one user stay in order. So a user's hundred requests delay a colleague's first
    one by one request at most, not by a hundred.
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
        """Release a slot. The next user holds it before this returns, so that nobody can jump the queue."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        eligible = [name for name in self._waiting if self._may_run(name)]
        if eligible:  # `min` takes the first of equals, and `_waiting` is in round-robin order
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


SETTLING_SECONDS = 0.1  # between reading a request and its slot, and between its slot and writing the reply
QUEUE_SECONDS = 1.0  # for a free slot: as long as a client waits that is refused and told to retry
WAITING_PER_SLOT = 8  # requests that a user may have waiting, per slot: clients come in bursts
USERS_SHARE = 4  # a user may send a quarter of the tenant's requests per minute, so that others get through
MAX_REMEMBERED = 1024  # tenants, and users of each; beyond this, idle ones are forgotten


@dataclass(slots=True)
class _Tenant:
    queue: FairQueue
    rate: TokenBucket
    user_rates: dict[str, TokenBucket] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether it can be forgotten: a new one would be the same, for each of its users, too."""
        rates = (self.rate, *self.user_rates.values())
        return self.queue.idle and all(rate.full for rate in rates)


class Admission:
    """Admits requests. With `wait_forever`, none is rejected: a single local host waits its turn.

    All users of a tenant without a name count as one user.
    """

    def __init__(self, limits: LimitSettings, *, wait_forever: bool = False) -> None:
        self._slots_per_tenant = limits.concurrent_per_tenant or cores() + 1
        # One slot stays free for the tenant's other users, however many requests one of them makes.
        self._slots_per_user = max(1, self._slots_per_tenant - 1)
        self._tenant_rate = limits.requests_per_minute
        self._user_rate = max(1, self._tenant_rate // USERS_SHARE)
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

        Requests count only while they wait for or hold a slot. The pauses cover the rest: a request that was
        read just before the signal has not asked for its slot yet, and a reply is written after its slot is
        released.
        """
        await self.shutting_down.wait()
        await anyio.sleep(SETTLING_SECONDS)
        while self._in_flight:
            await self._idle.wait()
        await anyio.sleep(SETTLING_SECONDS)

    def check(self, principal: Principal) -> None:
        """Early rejection, before a transport reads the body.

        Raises:
            BusyError: the principal or its tenant has sent too many requests, or too many of the principal's
                are waiting (`WAITING_PER_SLOT`).
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
            BusyError: no slot became free within `QUEUE_SECONDS`; or as `check` does.
        """
        self.check(principal)
        tenant, user = self._tenant(principal.tenant), principal.user or ""
        # Only admitted requests cost a token, so a client that retries too early doesn't lock itself out.
        tenant.rate.take()
        self._rate_of(tenant, user).take()
        # One deadline for both queues: otherwise a request could wait twice as long as configured.
        deadline = math.inf if self._wait_forever else anyio.current_time() + QUEUE_SECONDS
        self._in_flight += 1
        try:
            # The tenant's slot comes first: a request that waits for it must not hold a slot of the process.
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
            self._idle = anyio.Event()  # events can't be cleared: `drained` may need the next

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


UNLIMITED = frozenset({"initialize", "ping", "server/discover"})
"""Methods that cost nothing and must be answered even by a busy server."""


def request_limits(
    admission: Admission, limits: LimitSettings, principal_of: Callable[[Any], Principal]
) -> ServerMiddleware[Any]:
    """Middleware that waits for a slot and cancels a request after `request_seconds`, waiting included.

    Clients cancel in two ways. On a connection that lasts (stdio, HTTP+SSE) they send
    `notifications/cancelled`, and the SDK cancels the handler. Over streamable HTTP each request stands
    alone, in both protocol eras: closing its connection cancels it (`cancel_on_disconnect`). Either way the
    cancellation unwinds through `Admission.slot`, which releases the slot.
    """

    async def limit(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        # The deadline includes the wait for a slot: the client's own timeout runs meanwhile.
        with anyio.fail_after(limits.request_seconds):
            if ctx.method in UNLIMITED or ctx.method.startswith("notifications/"):
                return await call_next(ctx)
            async with admission.slot(principal_of(ctx)):
                return await call_next(ctx)

    return limit
