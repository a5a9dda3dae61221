"""How long a failing store is waited for in all, and when it is tried again: on a clock that tests set."""

from __future__ import annotations

import pytest

from jitlto.storage.remote import patience
from jitlto.storage.remote.patience import BackOff, Patience


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience.time, "monotonic", made)
    return made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_waiting_for_nothing_adds_up_to_the_patience(clock: Clock) -> None:
    left = Patience(0.05)
    for _ in range(3):
        begin = clock.now
        assert left.deadline(begin) == begin + left.left
        clock.now += 0.015
        left.lost(begin)
    assert not left.is_spent
    begin, clock.now = clock.now, left.deadline(clock.now)
    assert clock.now == pytest.approx(1000.05)
    left.lost(begin)
    assert left.is_spent
    assert left.deadline(clock.now) == clock.now


def test_good_replies_cost_nothing(clock: Clock) -> None:
    left = Patience(0.05)
    for _ in range(10):
        clock.now += 0.04  # a reply came
        assert left.deadline(clock.now) == clock.now + 0.05


def test_what_several_threads_wait_at_the_same_time_counts_once(clock: Clock) -> None:
    left = Patience(0.05)
    begin = clock.now
    clock.now += 0.02
    for _ in range(8):
        left.lost(begin)
    assert left.left == pytest.approx(0.03)
    assert left.deadline(begin) == pytest.approx(begin + 0.05)  # of a thread that waits since then


def test_half_of_the_patience_goes_into_opening(clock: Clock) -> None:
    left = Patience(0.05)
    begin, clock.now = clock.now, clock.now + left.left_for_opening
    left.lost(begin, opening=True)
    assert left.left_for_opening == pytest.approx(0)
    assert left.left == pytest.approx(0.025)


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
