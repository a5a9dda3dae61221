"""Single flight: for each key one thread computes, the others wait for it alone."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jitlto.base.cached import SingleFlight, raise_copy
from jitlto.base.errors import LinkError


def run(flights: SingleFlight, key: object, compute: Callable[[], Any]) -> Any:
    """Compute a value, or wait for the thread that computes it."""
    with flights.of(key) as flight:
        if flight.value is None:
            flight.value = compute()
    return flight.value


@pytest.fixture
def flights() -> SingleFlight:
    return SingleFlight()


def test_a_computation_that_asks_for_itself_does_not_wait_for_itself(flights: SingleFlight) -> None:
    assert run(flights, "key", lambda: run(flights, "key", lambda: 7)) == 7


def test_a_failure_within_a_computation_is_not_its_own(flights: SingleFlight) -> None:
    failed, go_on = threading.Event(), threading.Event()

    def fail() -> int:
        raise LinkError("does not link")

    def compute() -> int:
        with pytest.raises(LinkError):
            run(flights, "key", fail)
        failed.set()
        assert go_on.wait(10)
        return 7

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, flights, "key", compute)
        assert failed.wait(10)
        second = pool.submit(run, flights, "key", lambda: 8)
        time.sleep(0.05)
        go_on.set()
        assert (first.result(10), second.result(10)) == (7, 7)


@pytest.mark.slow
def test_those_who_wait_for_a_failure_get_it_too_each_in_a_copy(flights: SingleFlight) -> None:
    started, release = threading.Event(), threading.Event()

    def fail() -> int:
        started.set()
        assert release.wait(10)
        raise LinkError("does not link", where="here", log="its log") from OSError("the cause")

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(run, flights, "key", fail)
        assert started.wait(10)
        others = [pool.submit(run, flights, "key", lambda: 1) for _ in range(3)]
        time.sleep(0.05)
        release.set()
        failures = [future.exception(10) for future in (first, *others)]
    assert len({id(failure) for failure in failures}) == 4
    for failure in failures:
        assert isinstance(failure, LinkError)
        assert (failure.where, failure.log, str(failure.__cause__)) == ("here", "its log", "the cause")


def test_a_failure_does_not_grow_each_time_it_is_raised() -> None:
    failure = LinkError("does not link", code="link-failed", where="here", hint="correct it", log="its log")

    def depth() -> int:
        with pytest.raises(LinkError) as caught:
            raise_copy(failure)
        assert (str(caught.value), vars(caught.value)) == (str(failure), vars(failure))
        trace, count = caught.value.__traceback__, 0
        while trace is not None:
            trace, count = trace.tb_next, count + 1
        return count

    assert len({depth() for _ in range(50)}) == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError("gone"), KeyboardInterrupt()])
def test_any_other_failure_is_its_own_threads_and_the_one_that_waits_computes(error: BaseException) -> None:
    flights = SingleFlight()
    begun, go_on = threading.Event(), threading.Event()

    def interrupted() -> int:
        begun.set()
        go_on.wait(10)
        raise error

    def first() -> None:
        with pytest.raises(type(error)):
            run(flights, "key", interrupted)

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(run, flights, "key", lambda: 7)
        go_on.set()
        assert second.result(10) == 7
    thread.join()


def test_after_a_fork_nobody_waits_for_a_thread_that_is_not_there(flights: SingleFlight) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert go_on.wait(10)
        return 1

    child = SingleFlight()
    with ThreadPoolExecutor(1) as pool:
        parent = pool.submit(run, child, "key", slow)
        assert begun.wait(10)
        child.after_fork()
        assert run(child, "key", lambda: 2) == 2
        go_on.set()
        assert parent.result(10) == 1
