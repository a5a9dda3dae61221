"""What is computed once, in a process that may fork and has several threads."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jitlto.base.errors import JitltoError
from jitlto.base.uninterrupted import alone

if TYPE_CHECKING:
    import msgspec

V = TypeVar("V")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property[V]):  # noqa: N801 - the name of the standard library
        """That of Python 3.12, without the lock of 3.11's, which a fork in another thread would leave locked."""

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def decoder(kind: type[V]) -> msgspec.json.Decoder[V]:
    """Return the decoder of JSON into a type; :func:`msgspec.convert` needs it to have been made as well.

    msgspec reads the annotations of structures when it first meets them, and crashes if it meets them again in another
    thread before it has read them all (seen in 0.22).
    """
    found = _decoders.get(kind)
    if found is None:
        import msgspec  # imported lazily: finding a linked kernel needs none

        with alone:
            found = _decoders[kind] = _decoders.get(kind) or msgspec.json.Decoder(kind)
    return found


class Flight:
    """A computation under way, and its outcome. (`Future` would do, but importing it takes longer than a launch.)

    Attributes:
        value: The result; None until the thread that computes has set it.
    """

    value: Any = None
    is_computed = False  # at the moment

    def __init__(self) -> None:
        self.lock = threading.RLock()  # which the thread that computes may take again, as a subscriber to events may
        self.failure: JitltoError | None = None


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
        """Yield a flight to one thread at a time: its ``value`` is there, or is to be set."""
        flight = self._flights.setdefault(key, Flight())  # atomic
        with flight.lock:
            if flight.is_computed:  # by this thread, whose request within it has an outcome of its own
                flight = Flight()
            if flight.failure is not None:
                raise_copy(flight.failure)
            flight.is_computed = True
            try:
                yield flight
            except JitltoError as error:
                flight.failure = error
                raise
            finally:
                flight.is_computed = False
                if self._flights.get(key) is flight:
                    del self._flights[key]


def raise_copy(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: the traceback of one that is raised repeatedly grows with each raise."""
    import copy  # imported lazily: not needed when a kernel is found

    raise copy.copy(failure) from failure.__cause__
