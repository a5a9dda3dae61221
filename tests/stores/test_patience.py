"""How long a failing store is waited for in all, and when it is tried again: on a clock that tests set."""

from __future__ import annotations

import pytest

from jitlto.stores import patience
from jitlto.stores.patience import BackOff, Patience


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience.time, "monotonic", made)
    return made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def wait_in_vain(clock: Clock, patience: Patience, seconds: float, *, opening: bool = False) -> None:
    begin, clock.now = clock.now, clock.now + seconds
    patience.lost(begin, opening=opening)


def test_waiting_for_nothing_adds_up_to_three_quarters_of_the_patience(clock: Clock) -> None:
    left = Patience(0.1)  # the rest is for threads that wake up late
    for _ in range(3):
        assert left.deadline(clock.now) == clock.now + left.left
        wait_in_vain(clock, left, 0.02)
    assert not left.is_spent
    begin, clock.now = clock.now, left.deadline(clock.now)
    assert clock.now == pytest.approx(1000.075)
    left.lost(begin)
    assert left.is_spent
    assert left.deadline(clock.now) == clock.now


def test_good_replies_cost_nothing(clock: Clock) -> None:
    left = Patience(0.1)
    for _ in range(10):
        clock.now += 0.07  # a reply came
        assert left.deadline(clock.now) == clock.now + 0.075


def test_what_several_threads_wait_at_the_same_time_counts_once(clock: Clock) -> None:
    left = Patience(0.1)
    begin = clock.now
    clock.now += 0.02
    for _ in range(8):
        left.lost(begin)
    assert left.left == pytest.approx(0.055)
    assert left.deadline(begin) == pytest.approx(begin + 0.075)  # of a thread that waits since then


@pytest.mark.parametrize(("late", "left"), [(0.0, 0.045), (0.002, 0.043), (1.0, 0.04)])
def test_three_tenths_of_the_patience_go_into_opening_and_a_busy_machine_takes_little_more(
    clock: Clock, late: float, left: float
) -> None:
    patience = Patience(0.1)
    begin, clock.now = clock.now, clock.now + patience.left_for_opening + late
    assert clock.now == pytest.approx(1000.03 + late)
    patience.lost(begin, opening=True)
    assert patience.left_for_opening == 0
    assert patience.left == pytest.approx(left)


def test_opening_costs_nothing_if_the_store_then_answers(clock: Clock) -> None:
    patience = Patience(0.1)
    wait_in_vain(clock, patience, 0.03, opening=True)
    wait_in_vain(clock, patience, 0.01)
    lefts = []
    for _ in range(4):
        patience.answered()
        lefts.append(patience.left)
    assert lefts == pytest.approx([0.035, 0.035, 0.065, 0.065])


def test_a_store_that_was_given_up_stays_so(clock: Clock) -> None:
    patience = Patience(0.1)
    wait_in_vain(clock, patience, 0.03, opening=True)
    wait_in_vain(clock, patience, 1)
    for _ in range(4):
        patience.answered()
    assert patience.is_spent


def test_no_patience_is_spent_from_the_start() -> None:
    assert Patience(0.0).is_spent


def test_a_store_is_left_alone_after_three_failures_longer_each_time(clock: Clock) -> None:
    back_off = BackOff()
    assert [back_off.failed() for _ in range(3)] == [False, False, True]
    pauses = []
    for _ in range(12):
        begin = clock.now
        while not back_off.may_retry():
            assert back_off.is_off
            clock.now += 0.5
        assert not back_off.may_retry()  # one trial alone
        assert not back_off.failed()
        pauses.append(clock.now - begin)
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == pauses[-1] == 300


def test_a_success_ends_it(clock: Clock) -> None:
    back_off = BackOff()
    assert back_off.failed(at_once=True)
    clock.now += 1
    assert back_off.may_retry()
    back_off.succeeded()
    assert not back_off.is_off
    assert not back_off.failed()
    back_off.succeeded()
    assert not back_off.failed()  # only failures in a row count
