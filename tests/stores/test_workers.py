"""Threads that are started when there is work, few of them, and that no process waits for."""

from __future__ import annotations

import _thread
import threading
import time

import pytest

from jitlto.stores import workers
from jitlto.stores.workers import Workers


def test_work_is_done_by_few_daemon_threads() -> None:
    workers, go, done = Workers(2), threading.Event(), threading.Barrier(3)
    seen: set[threading.Thread] = set()

    def work() -> None:
        seen.add(threading.current_thread())
        go.wait(10)

    def last() -> None:
        work()
        done.wait(10)

    for _ in range(5):
        workers.submit(work)
    workers.submit(last)
    workers.submit(last)
    go.set()
    done.wait(10)
    assert len(seen) == 2
    assert all(thread.daemon for thread in seen)


def test_an_idle_thread_is_used_again() -> None:
    workers, seen = Workers(8), []
    for _ in range(5):
        done = threading.Event()
        workers.submit(lambda done=done: (seen.append(threading.current_thread()), done.set()))
        assert done.wait(10)
        while not workers._idle:
            pass
    assert len(set(seen)) == 1


def test_where_no_thread_can_be_started_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(function: object, arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    with pytest.raises(RuntimeError):
        Workers(1).submit(lambda: None)


def test_a_thread_without_work_ends_and_another_takes_later_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_IDLE", 0.01)
    pool, ran = workers.Workers(2), threading.Event()
    before = threading.active_count()
    for _ in range(3):
        ran.clear()
        pool.submit(ran.set)
        assert ran.wait(5)
        end = time.monotonic() + 5
        while pool._started and time.monotonic() < end:
            time.sleep(0.005)
        assert (pool._started, pool._idle) == (0, 0)
    assert threading.active_count() == before
