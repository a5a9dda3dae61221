"""Single flight: one thread computes each key; others that want the same key wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, TypeVar

from jitlto.errors import JitltoError

V = TypeVar("V")


class _Flight:
    """A computation under way, and its outcome. (`Future` would do, but importing it takes longer than a launch.)"""

    __slots__ = ("ended", "failure", "thread", "value")

    value: Any

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.get_ident()


class SingleFlight:
    """Computations under way, by key.

    A :class:`~jitlto.errors.JitltoError` is raised in the waiting threads too. Any other failure (an interrupt, a lack
    of memory) affects only the computing thread; one of the waiting threads then computes instead.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget all computations: in a forked process, the threads that compute do not exist."""
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = threading.Lock()

    def run(self, key: Hashable, compute: Callable[[], V]) -> tuple[V, float | None]:
        """Compute a value, or wait for the thread that computes it.

        Returns:
            value (object)
            waited (float or None): Seconds spent waiting for another thread; None if this thread computed the value.
        """
        begin = time.perf_counter()
        while True:
            with self._lock:
                flights = self._flights  # kept, because a fork meanwhile would replace the attribute
                flight = flights.get(key)
                if flight is None:
                    mine = flights[key] = _Flight()
                    break
            if flight.thread == threading.get_ident():
                return compute(), None  # requested by the computation itself, e.g. by a subscriber to events
            flight.ended.wait()
            if flight.failure is None:
                return flight.value, time.perf_counter() - begin
            if isinstance(flight.failure, JitltoError):
                raise_copy(flight.failure)
        try:
            mine.value = compute()
        except BaseException as error:
            mine.failure = error
            raise
        finally:
            with self._lock:
                del flights[key]
            mine.ended.set()
        return mine.value, None


def raise_copy(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: the traceback of one that is raised repeatedly grows with each raise."""
    import copy  # imported lazily: not needed when a kernel is found

    raise copy.copy(failure) from failure.__cause__
