"""The circuit breaker, with a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from rag.models.breaker import FIRST_PAUSE, LONGEST_ASKED, LONGEST_PAUSE, Breaker, HeldBackError

CAUSE = "failed"


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def fail(breaker: Breaker, patience: float = 20.0, *, late: bool = False) -> None:
    breaker.failed(breaker.begin(patience), CAUSE, late=late)


def is_held_back(breaker: Breaker, patience: float = 1.0) -> bool:
    try:
        breaker.abandoned(breaker.begin(patience))
    except HeldBackError:
        return True
    return False


def test_a_failure_holds_every_call_back_for_a_pause_and_says_why(breaker: Breaker, clock: Clock) -> None:
    assert not is_held_back(breaker)
    fail(breaker)
    with pytest.raises(HeldBackError, match=CAUSE):
        breaker.begin(600)
    clock.now += FIRST_PAUSE - 0.01
    assert is_held_back(breaker)
    clock.now += 0.02
    assert not is_held_back(breaker)
    assert (breaker.failures, breaker.held_back) == (1, 2)


def test_after_the_pause_one_call_is_sent_and_the_others_do_not_wait_for_it(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker)
    clock.now += FIRST_PAUSE
    trial = breaker.begin(1.0)
    assert trial.trial
    assert is_held_back(breaker)
    assert breaker.succeeded(trial)
    assert not is_held_back(breaker)
    assert breaker.fault is None


def test_each_failed_trial_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    for pause in (1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE):
        clock.now += pause - 0.01
        assert is_held_back(breaker)
        clock.now += 0.02
        fail(breaker)


def test_an_endpoint_that_asks_for_a_longer_pause_gets_it_up_to_a_limit(
    breaker: Breaker, clock: Clock
) -> None:
    for asked, pause in ((0.2, FIRST_PAUSE), (120.0, 120.0), (1e9, LONGEST_ASKED)):
        breaker.fault = None
        breaker.failed(breaker.begin(20.0), CAUSE, late=False, asked=asked)
        clock.now += pause - 0.01
        assert is_held_back(breaker)
        clock.now += 0.02
        assert not is_held_back(breaker)


def test_a_recovery_forgets_how_long_the_pauses_were(breaker: Breaker, clock: Clock) -> None:
    for pause in (0, 1, 2, 4):
        clock.now += pause
        fail(breaker)
    clock.now += 8
    assert breaker.succeeded(breaker.begin(1.0))
    fail(breaker)
    clock.now += FIRST_PAUSE
    assert not is_held_back(breaker)


def test_a_trial_that_is_given_up_leaves_the_trial_to_the_next_call(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += FIRST_PAUSE
    breaker.abandoned(breaker.begin(1.0))
    assert breaker.begin(1.0).trial


def test_what_is_too_slow_for_a_hurried_call_is_asked_by_patient_ones(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, patience=1.0, late=True)
    assert is_held_back(breaker, 1.0)
    assert not is_held_back(breaker, 20.0)
    patient = breaker.begin(20.0)
    assert not patient.trial
    clock.now += 20
    breaker.failed(patient, CAUSE, late=True)
    assert is_held_back(breaker, 20.0)


def test_a_slow_endpoint_does_not_flap_between_hurried_and_patient_calls(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, patience=1.0, late=True)
    for pause in (1, 2, 4, 8):
        patient = breaker.begin(20.0)
        clock.now += 2
        assert not breaker.succeeded(patient)  # as slow as before
        assert breaker.fault
        clock.now += pause
        assert not is_held_back(breaker, 1.0)
        fail(breaker, patience=1.0, late=True)
        assert is_held_back(breaker, 1.0)


def test_a_slow_endpoint_that_answers_faster_is_asked_by_all_at_once(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, patience=1.0, late=True)
    patient = breaker.begin(20.0)
    clock.now += 0.1
    assert breaker.succeeded(patient)
    assert not is_held_back(breaker, 1.0)


def test_one_call_that_fails_among_others_that_succeed_holds_nobody_back(
    breaker: Breaker, clock: Clock
) -> None:
    poisoned, healthy = breaker.begin(20.0), breaker.begin(20.0)
    clock.now += 0.1
    breaker.succeeded(healthy)
    breaker.failed(poisoned, CAUSE, late=False)
    assert not is_held_back(breaker)
    assert breaker.failures == 1
    fail(breaker)  # alone
    assert is_held_back(breaker)


def test_calls_that_were_under_way_when_it_failed_do_not_lengthen_the_pause(
    breaker: Breaker, clock: Clock
) -> None:
    calls = [breaker.begin(20.0) for _ in range(50)]
    for call in calls:
        clock.now += 0.001
        breaker.failed(call, CAUSE, late=False)
    clock.now += FIRST_PAUSE
    assert not is_held_back(breaker)
    assert breaker.failures == 50


def test_a_call_without_a_deadline_is_always_sent(breaker: Breaker) -> None:
    fail(breaker)
    assert is_held_back(breaker)
    assert not is_held_back(breaker, inf)
