"""A computation that several threads request at the same time, done by one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from types import TracebackType
from typing import Any, NoReturn

from jitlto.base.errors import JitltoError


class Flight:
    """A computation under way, and its outcome. (`Future` would do, but importing it takes longer than a launch.)

    Attributes:
        value: The result; the thread that leads sets it.
        waited: Seconds for which this thread waited for the one that led; None if this thread leads.
    """

    __slots__ = ("_ended", "_failure", "_flights", "_key", "_thread", "value", "waited")

    value: Any

    def __init__(self, flights: SingleFlight, key: Hashable) -> None:
        self._flights, self._key = flights, key
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.get_ident()
        self.waited: float | None = None

    def __enter__(self) -> Flight:
        begin = time.perf_counter()
        while True:
            flight = self._flights.join(self._key, self)
            if flight is None or flight._thread == self._thread:  # requested by the computation itself, e.g. by a
                return self  # subscriber to events
            flight._ended.wait()
            if flight._failure is None:
                self.value, self.waited = flight.value, time.perf_counter() - begin
                return self
            if isinstance(flight._failure, JitltoError):
                raise_copy(flight._failure)

    def __exit__(self, _: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.waited is None:
            self._failure = error
            self._flights.leave(self._key, self)
            self._ended.set()


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
        self._lock = threading.Lock()

    def of(self, key: Hashable) -> Flight:
        """Return a context in which ``value`` is there if ``waited`` is not None, and is to be set otherwise."""
        return Flight(self, key)

    def join(self, key: Hashable, flight: Flight) -> Flight | None:
        """Make a flight that of its key; return the one that is under way, if there is one."""
        with self._lock:
            known = self._flights.setdefault(key, flight)
        return None if known is flight else known

    def leave(self, key: Hashable, flight: Flight) -> None:
        """Forget a flight that has ended."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]


def raise_copy(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: the traceback of one that is raised repeatedly grows with each raise."""
    import copy  # imported lazily: not needed when a kernel is found

    raise copy.copy(failure) from failure.__cause__
