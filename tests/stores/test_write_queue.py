"""What waits to be written is bounded, and is dropped while the store fails."""

from __future__ import annotations

import _thread
import threading

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores import write_queue
from jitlto.stores.statistics import Counters
from jitlto.stores.write_queue import WriteQueue


def fail() -> None:
    raise StoreError("no", code="store-failed")


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def queue(counters: Counters, failures: list[BaseException]) -> WriteQueue:
    return WriteQueue(counters, failures.append)


def test_what_is_added_is_done(queue: WriteQueue, counters: Counters) -> None:
    done: list[int] = []
    for number in range(20):
        queue.add(1, lambda number=number: done.append(number))
    assert queue.flush(10)
    assert sorted(done) == list(range(20))
    assert counters.snapshot().dropped == 0


def test_more_than_fits_is_dropped(queue: WriteQueue, counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "_MOST_QUEUED", 3)
    monkeypatch.setattr(write_queue, "_MOST_QUEUED_BYTES", 100)
    go = threading.Event()
    queue.add(1000, lambda: go.wait(10) and None)  # alone, even what is too large is written
    queue.add(1, lambda: None)
    assert counters.snapshot().dropped == 1
    go.set()
    assert queue.flush(10)
    go.clear()
    for _ in range(5):
        queue.add(1, lambda: go.wait(10) and None)
    assert counters.snapshot().dropped == 3
    assert not queue.flush(0.01)
    go.set()
    assert queue.flush(10)


def test_what_nobody_waits_for_is_done_unless_the_queue_is_flushed_before(queue: WriteQueue) -> None:
    done = threading.Event()
    queue.add(1, done.set, optional=True)
    assert done.wait(10)
    sent, go = list[int](), threading.Event()
    for _ in range(4):  # one for each thread
        queue.add(1, lambda: go.wait(10) and None)
    for number in range(100):
        queue.add(1, lambda number=number: sent.append(number), optional=True)
    queue.add(1, lambda: sent.append(-1))
    threading.Timer(0.02, go.set).start()
    assert queue.flush(10)
    assert sent == [-1]


def test_after_failures_nothing_is_sent(queue: WriteQueue, counters: Counters, failures: list[BaseException]) -> None:
    for _ in range(3):
        queue.add(1, fail)
        assert queue.flush(10)
    sent: list[int] = []
    queue.add(1, lambda: sent.append(1))
    assert queue.flush(10)
    assert sent == []
    assert len(failures) == 1
    assert counters.snapshot().failures == 3
    assert counters.snapshot().dropped == 4


def test_where_no_thread_can_be_started_writes_are_dropped(
    queue: WriteQueue, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(function: object, arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    queue.add(1, fail)
    assert queue.flush(10)
    assert counters.snapshot().dropped == 1
