"""Slots that users share: whose turn it is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import anyio
import pytest

from rag.config.server_settings import LimitSettings
from rag.corpus import Principal
from rag.errors import BusyError
from server import admission
from server.admission import Admission, FairQueue

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def served(queue: FairQueue, waiting: str) -> str:
    """In which order users get the only slot who asked for it in this order, while somebody had it."""
    order = ""
    await queue.acquire("x")

    async def ask(user: str) -> None:
        nonlocal order
        await queue.acquire(user)
        order += user
        queue.release(user)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for user in waiting:
                tasks.start_soon(ask, user)
            await anyio.wait_all_tasks_blocked()
            queue.release("x")
    assert queue.idle
    return order


@pytest.mark.parametrize(
    ("waiting", "order"), [("aaaab", "abaaa"), ("aabbc", "abcab"), ("aaa", "aaa"), ("aaabbb", "ababab")]
)
async def test_users_take_turns_however_much_one_of_them_asks(waiting: str, order: str) -> None:
    assert await served(FairQueue(1, 1), waiting) == order


async def test_one_user_never_has_the_last_slot_and_another_gets_it_at_once() -> None:
    queue = FairQueue(3, 2)
    with anyio.fail_after(5):
        await queue.acquire("a")
        await queue.acquire("a")
        with anyio.move_on_after(0.01) as waiting:
            await queue.acquire("a")
        assert waiting.cancelled_caught
        await queue.acquire("b")


@pytest.mark.parametrize("is_given", [False, True])
async def test_whoever_is_cancelled_leaves_no_slot_taken_even_if_it_was_just_given(is_given: bool) -> None:  # noqa: FBT001 a parameter
    queue = FairQueue(1, 1)

    async def ask() -> None:
        await queue.acquire("b")
        try:
            await anyio.sleep_forever()
        finally:
            queue.release("b")

    with anyio.fail_after(5):
        await queue.acquire("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            if is_given:
                queue.release("a")
            tasks.cancel_scope.cancel()
    if not is_given:
        queue.release("a")
    assert queue.idle


async def test_a_task_that_the_loop_itself_cancels_gives_back_what_it_was_just_given() -> None:
    """As uvicorn does with what runs for too long after a signal."""
    queue = FairQueue(1, 1)
    await queue.acquire("a")
    waiting = asyncio.get_running_loop().create_task(queue.acquire("b"))
    await anyio.wait_all_tasks_blocked()
    queue.release("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue.idle


async def test_a_user_who_asks_too_often_is_told_so_and_a_colleague_is_not() -> None:
    admission = Admission(LimitSettings(requests_per_minute=8))  # two of one user
    ann, bob = Principal("acorn", "ann"), Principal("acorn", "bob")
    for _ in range(2):
        async with admission.slot(ann):
            pass
    with pytest.raises(BusyError, match="Too many"):
        admission.check(ann)
    async with admission.slot(bob):
        pass
    with pytest.raises(BusyError, match="Too many"):
        async with admission.slot(ann):
            pass


async def test_a_tenant_s_limit_holds_for_all_its_users_together() -> None:
    admission = Admission(LimitSettings(requests_per_minute=4))
    for name in "abcd":
        async with admission.slot(Principal("acorn", name)):
            pass
    with pytest.raises(BusyError, match="Too many"):
        admission.check(Principal("acorn", "e"))
    admission.check(Principal("birch", "e"))


async def test_a_user_s_limit_outlasts_the_forgetting_of_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenant's bucket is full again long before the user's, who had a quarter of it."""
    now = 0.0
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(admission, "MAX_REMEMBERED", 1)
    limited, ann = Admission(LimitSettings(requests_per_minute=40)), Principal("acorn", "ann")
    for _ in range(10):
        async with limited.slot(ann):
            pass
    now = 15.0  # seconds, in which ann gets 2.5 tokens, and the tenant 10
    async with limited.slot(Principal("birch", "bob")):
        pass
    for _ in range(2):
        async with limited.slot(ann):
            pass
    with pytest.raises(BusyError, match="Too many"):
        limited.check(ann)


async def test_a_colleague_is_served_while_a_user_has_all_slots_that_one_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.admission.QUEUE_SECONDS", 0)
    admission = Admission(LimitSettings(concurrent_per_tenant=3))
    ann = Principal("acorn", "ann")
    async with admission.slot(ann), admission.slot(ann):
        with pytest.raises(BusyError, match="busy"):
            async with admission.slot(ann):
                pass
        async with admission.slot(Principal("acorn", "bob")):
            assert admission.active == 3
    assert admission.active == 0
