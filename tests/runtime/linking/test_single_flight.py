"""Computing a value once, whoever asks first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jitlto.errors import LinkError
from jitlto.runtime.linking.single_flight import OnceMap


def test_many_threads_that_ask_at_once_share_one_computation() -> None:
    once: OnceMap[str, object] = OnceMap()
    calls: list[int] = []
    barrier = threading.Barrier(16)

    def make() -> object:
        calls.append(1)
        time.sleep(0.05)
        return object()

    def ask() -> object:
        barrier.wait()
        return once.get("key", make)

    with ThreadPoolExecutor(16) as pool:
        values = [future.result(10) for future in [pool.submit(ask) for _ in range(16)]]
    assert len(calls) == 1
    assert all(value is values[0] for value in values)


def test_different_keys_are_computed_at_the_same_time() -> None:
    once: OnceMap[int, int] = OnceMap()
    # Passes only when all four are inside their computation together.
    together = threading.Barrier(4)

    def make(key: int) -> Callable[[], int]:
        def compute() -> int:
            together.wait(timeout=10)
            return key

        return compute

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(once.get, key, make(key)) for key in range(4)]
        assert [future.result(10) for future in futures] == [0, 1, 2, 3]


def test_a_waiting_thread_gets_the_value_and_does_not_compute() -> None:
    once: OnceMap[str, str] = OnceMap()
    started, release = threading.Event(), threading.Event()

    def slow() -> str:
        started.set()
        assert release.wait(10)
        return "from the first"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.get, "key", slow)
        assert started.wait(10)
        second = pool.submit(once.get, "key", lambda: "from the second")
        with pytest.raises(TimeoutError):
            second.result(0.05)
        release.set()
        assert first.result(10) == second.result(10) == "from the first"


def test_a_value_once_there_is_not_computed_again() -> None:
    once: OnceMap[str, int] = OnceMap()
    assert once.get("key", lambda: 1) == 1
    assert once.get("key", lambda: 2) == 1
    assert once.get("other", lambda: 2) == 2


def test_a_value_of_none_is_a_value() -> None:
    once: OnceMap[str, None] = OnceMap()
    calls: list[int] = []
    for _ in range(2):
        once.get("key", lambda: calls.append(1))
    assert calls == [1]


def test_a_failure_that_jitlto_raised_on_purpose_is_remembered() -> None:
    once: OnceMap[str, int] = OnceMap()

    def fail() -> int:
        raise LinkError("does not link")

    with pytest.raises(LinkError, match="does not link") as first:
        once.get("key", fail)
    with pytest.raises(LinkError, match="does not link") as second:
        once.get("key", lambda: 1)
    assert first.value is second.value or str(first.value) == str(second.value)


def test_a_remembered_failure_does_not_grow_each_time_it_is_raised() -> None:
    once: OnceMap[str, int] = OnceMap()

    def fail() -> int:
        raise LinkError("does not link")

    def depth() -> int:
        with pytest.raises(LinkError) as caught:
            once.get("key", fail)
        trace, count = caught.value.__traceback__, 0
        while trace is not None:
            trace, count = trace.tb_next, count + 1
        return count

    depths = [depth() for _ in range(50)]
    assert depths[-1] <= depths[1] + 1


@pytest.mark.parametrize("error", [MemoryError(), OSError("gone"), KeyboardInterrupt()])
def test_any_other_failure_is_forgotten_and_the_next_caller_tries_anew(error: BaseException) -> None:
    once: OnceMap[str, int] = OnceMap()

    def fail() -> int:
        raise error

    with pytest.raises(type(error)):
        once.get("key", fail)
    assert once.get("key", lambda: 7) == 7


def test_those_who_wait_for_a_failure_get_it_too() -> None:
    once: OnceMap[str, int] = OnceMap()
    started, release = threading.Event(), threading.Event()

    def fail() -> int:
        started.set()
        assert release.wait(10)
        raise LinkError("does not link")

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(once.get, "key", fail)
        assert started.wait(10)
        others = [pool.submit(once.get, "key", lambda: 1) for _ in range(3)]
        release.set()
        for future in (first, *others):
            with pytest.raises(LinkError, match="does not link"):
                future.result(10)


def test_who_waits_for_an_interrupted_thread_computes_for_himself() -> None:
    values: OnceMap[str, int] = OnceMap()
    begun, go_on = threading.Event(), threading.Event()

    def interrupted() -> int:
        begun.set()
        go_on.wait(10)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            values.get("key", interrupted)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(values.get, "key", lambda: 7)
        go_on.set()
        assert second.result(10) == 7
    thread.join()


def test_what_is_discarded_is_computed_again() -> None:
    values: OnceMap[str, int] = OnceMap()
    assert values.get("key", lambda: 1) == 1
    assert values.discard("key") == 1
    assert values.discard("key") is None
    assert values.get("key", lambda: 2) == 2
