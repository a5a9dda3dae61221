"""Single flight: for each key one thread computes, the others wait for it alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, TypeVar

from jitlto.errors import JitltoError

V = TypeVar("V")


class _Flight:
    """A computation under way, and its outcome. (A Future does this too, and its import takes longer than a launch.)"""

    __slots__ = ("ended", "failure", "thread", "value")

    value: Any

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.get_ident()


class SingleFlight:
    """Computations under way, by key.

    A failure that jitlto raised on purpose is raised in the threads that wait too. Any other (an interrupt, a lack of
    memory) concerns the computing thread alone, and one of those that waited computes.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget all computations: in a forked process, the threads that compute do not exist."""
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = threading.Lock()

    def run(self, key: Hashable, compute: Callable[[], V]) -> tuple[V, float | None]:
        """Compute a value, or wait for the thread that does.

        Returns:
            value (object)
            waited (float or None): Seconds that another thread was waited for; None if this one has computed.
        """
        begin = time.perf_counter()
        while True:
            with self._lock:
                flights = self._flights  # which a fork on the way would replace
                flight = flights.get(key)
                if flight is None:
                    mine = flights[key] = _Flight()
                    break
            if flight.thread == threading.get_ident():
                return compute(), None  # asked again by what this thread computes, such as a subscriber to events
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
    """Raise a copy of an error: one that is raised again and again gathers the frames of all who raise it."""
    import copy  # which whoever finds a kernel does not need

    raise copy.copy(failure) from failure.__cause__
