"""A computation that several threads request at the same time, done by one of them."""

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jitlto.base.errors import JitltoError


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
