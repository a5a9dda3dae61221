"""Computing a value once, whoever asks first."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from jitlto.errors import JitltoError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OnceMap(Generic[K, V]):
    """A mapping that fills itself: for each key one thread computes, the others wait for it alone.

    A value, once there, is found without a lock. A failure that jitlto raised on purpose is remembered and raised
    again; any other (an interrupt, a lack of memory) is forgotten, and the next caller tries anew.

    Parameters
    ----------
    remembered : type
        The errors of jitlto's that are remembered; others may heal.
    """

    def __init__(self, remembered: type[JitltoError] = JitltoError) -> None:
        self._remembered = remembered
        self._values: dict[K, V] = {}
        self._futures: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def discard(self, key: K) -> V | None:
        """Forget a key; returns its value, None if there is none."""
        with self._lock:
            self._futures.pop(key, None)
            return self._values.pop(key, None)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made by ``make`` if nobody has yet."""
        try:
            return self._values[key]
        except KeyError:
            pass
        while True:
            with self._lock:
                flight = self._futures.get(key)
                if flight is None:
                    future = self._futures[key] = Future()
                    break
            failure = flight.exception()
            if failure is None:
                return flight.result()
            if isinstance(failure, JitltoError):
                # A copy each time: an exception that is raised again and again gathers frames in its traceback.
                raise copy.copy(failure) from failure.__cause__
        try:
            value = make()
        except BaseException as error:
            if not isinstance(error, self._remembered):
                with self._lock:
                    self._futures.pop(key, None)
            future.set_exception(error)
            raise
        self._values[key] = value
        future.set_result(value)
        return value
