"""Computing a value once, whoever asks first."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, NoReturn, TypeVar

from jitlto.errors import JitltoError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Flight(Generic[V]):
    """A computation under way, and its end. (A Future does this too, and its import takes longer than a launch.)"""

    __slots__ = ("ended", "failure", "value")

    value: V

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.failure: BaseException | None = None


class Flights(Generic[K, V]):
    """Computations under way: for each key one thread computes, the others wait for it alone.

    A failure that jitlto raised on purpose is theirs too; any other (an interrupt, a lack of memory) was the computing
    thread's alone, and one of those who waited computes.
    """

    def __init__(self) -> None:
        self._flying: dict[K, _Flight[V]] = {}
        self._lock = threading.Lock()

    def run(self, key: K, make: Callable[[], V]) -> tuple[V, float | None]:
        """Compute a value, or wait for the thread that does.

        Returns
        -------
        value : object
        waited : float or None
            Seconds that another thread was waited for; None if this one has computed.
        """
        begin = time.perf_counter()
        while True:
            with self._lock:
                flight = self._flying.get(key)
                if flight is None:
                    mine = self._flying[key] = _Flight()
                    break
            flight.ended.wait()
            if flight.failure is None:
                return flight.value, time.perf_counter() - begin
            if isinstance(flight.failure, JitltoError):
                raise_again(flight.failure)
        try:
            mine.value = make()
        except BaseException as error:
            mine.failure = error
            raise
        finally:
            with self._lock:
                del self._flying[key]
            mine.ended.set()
        return mine.value, None


def raise_again(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: one that is raised again and again gathers the frames of all who raise it."""
    raise copy.copy(failure) from failure.__cause__


class OnceMap(Generic[K, V]):
    """A mapping that fills itself: for each key one thread computes, the others wait for it alone.

    A value, once there, is found without a lock. A failure that jitlto raised on purpose is remembered and raised
    again; any other (an interrupt, a lack of memory) is forgotten, and the next caller tries anew.

    Parameters
    ----------
    remembered : type
        The errors of jitlto's that are remembered; others may heal.
    values : dict, optional
        Where values are kept; a key that somebody else has filled is not computed.
    """

    def __init__(self, remembered: type[JitltoError] = JitltoError, values: dict[K, V] | None = None) -> None:
        self._remembered = remembered
        self._values: dict[K, V] = {} if values is None else values
        self._failures: dict[K, JitltoError] = {}
        self._flights: Flights[K, V] = Flights()

    def discard(self, key: K) -> V | None:
        """Forget a key; returns its value, None if there is none."""
        self._failures.pop(key, None)
        return self._values.pop(key, None)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made by ``make`` if nobody has yet."""
        try:
            return self._values[key]
        except KeyError:
            pass

        def fill() -> V:
            # Between our look and our flight another one may have landed.
            if key in self._values:
                return self._values[key]
            if key in self._failures:
                raise_again(self._failures[key])
            try:
                value = self._values.setdefault(key, make())
            except self._remembered as error:
                self._failures[key] = error
                raise
            return value

        return self._flights.run(key, fill)[0]
