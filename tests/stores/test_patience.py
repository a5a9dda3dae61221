"""How long a failing store is waited for in all, and when it is tried again: on a clock that tests set."""

from __future__ import annotations

import threading

import pytest

from jitlto.stores import patience
from jitlto.stores.patience import Bound, Breaker, Workers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience.time, "monotonic", made)
    return made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def wait_in_vain(clock: Clock, bound: Bound, seconds: float, *, opening: bool = False) -> None:
    begin, clock.now = clock.now, clock.now + seconds
    bound.lose(begin, opening=opening)


def test_waiting_for_nothing_adds_up_to_less_than_the_patience(clock: Clock) -> None:
    bound = Bound(0.1)  # a part is for opening, another for threads that wake up late
    for left in (0.045, 0.025, 0.005):
        assert bound.left(clock.now) == pytest.approx(left)
        wait_in_vain(clock, bound, 0.02)
    assert bound.is_spent
    assert bound.left(clock.now) == 0
    assert bound.left(clock.now, opening=True) == pytest.approx(0.03)


def test_good_replies_cost_nothing(clock: Clock) -> None:
    bound = Bound(0.1)
    for _ in range(10):
        clock.now += 0.07  # a reply came
        assert bound.left(clock.now) == pytest.approx(0.045)


def test_what_several_threads_wait_at_the_same_time_counts_once(clock: Clock) -> None:
    bound = Bound(0.1)
    begin = clock.now
    clock.now += 0.02
    for _ in range(8):
        bound.lose(begin)
    assert bound.left(begin) == pytest.approx(0.025)  # of a thread that waits since then


def test_a_store_that_takes_long_to_open_is_not_given_up(clock: Clock) -> None:
    bound = Bound(0.1)
    wait_in_vain(clock, bound, 10, opening=True)
    assert bound.left(clock.now, opening=True) == 0
    assert not bound.is_spent


def test_no_patience_is_spent_from_the_start() -> None:
    assert Bound(0.0).is_spent


def test_a_store_is_left_alone_after_three_failures_longer_each_time(clock: Clock) -> None:
    breaker = Breaker()
    assert [breaker.failed() for _ in range(3)] == [False, False, True]
    pauses = []
    for _ in range(12):
        begin = clock.now
        while not breaker.may_retry():
            assert breaker.is_open
            clock.now += 0.5
        assert not breaker.may_retry()  # one trial alone
        assert not breaker.failed()
        pauses.append(clock.now - begin)
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == pauses[-1] == 300


def test_a_success_ends_it(clock: Clock) -> None:
    breaker = Breaker()
    assert breaker.failed(at_once=True)
    clock.now += 1
    assert breaker.may_retry()
    breaker.succeeded()
    assert not breaker.is_open
    assert not breaker.failed()
    breaker.succeeded()
    assert not breaker.failed()  # only failures in a row count


def test_work_is_done_by_few_daemon_threads() -> None:
    workers, both, ended = Workers(2), threading.Barrier(2), threading.Semaphore(0)
    seen: set[threading.Thread] = set()

    def work() -> None:
        seen.add(threading.current_thread())
        both.wait(10)
        ended.release()

    for _ in range(6):
        assert workers.submit(work)
    for _ in range(6):
        assert ended.acquire(timeout=10)
    assert len(seen) == 2
    assert all(thread.daemon for thread in seen)
