"""A computation that several threads request at the same time, done by one of them."""

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jitlto.base.errors import JitltoError


class Flight:
    """A computation under way, and its outcome. (`Future` would do, but importing it takes longer than a launch.)

    Attributes:
        value: The result; the thread that leads sets it.
        waited: Seconds for which this thread waited for the one that led; None if this thread leads.
    """

    value: Any

    def __init__(self) -> None:
        self.waited: float | None = None
        self.thread = threading.get_ident()
        self.ended = threading.Event()
        self.failure: BaseException | None = None


class SingleFlight:
    """Computations under way, by key.

    A :class:`~jitlto.base.errors.JitltoError` is raised in the waiting threads too. Any other failure (an interrupt, a
    lack of memory) affects only the computing thread; one of the waiting threads then computes instead.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget all computations: in a forked process, the threads that compute do not exist."""
        self._flights: dict[Hashable, Flight] = {}

    @contextmanager
    def of(self, key: Hashable) -> Iterator[Flight]:
        """Yield a flight whose ``value`` is there if ``waited`` is not None, and is to be set otherwise."""
        own, begin = Flight(), time.perf_counter()
        while (other := self._flights.setdefault(key, own)) is not own:  # setdefault is atomic
            if other.thread == own.thread:
                break  # requested by the computation itself, e.g. by a subscriber to events
            other.ended.wait()
            if other.failure is None:
                own.value, own.waited = other.value, time.perf_counter() - begin
                yield own
                return
            if isinstance(other.failure, JitltoError):
                raise_copy(other.failure)
        try:
            yield own
        except BaseException as error:
            own.failure = error
            raise
        finally:
            if self._flights.get(key) is own:
                del self._flights[key]
            own.ended.set()


def raise_copy(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: the traceback of one that is raised repeatedly grows with each raise."""
    import copy  # imported lazily: not needed when a kernel is found

    raise copy.copy(failure) from failure.__cause__
