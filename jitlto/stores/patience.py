"""What a store that fails may cost a process: a bound time, a breaker, and threads that nobody waits for at the end."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

#: Seconds that a process loses at most by waiting for one store that fails: ``JITLTO_STORE_PATIENCE``.
DEFAULT = 0.05
# Parts of it. What is left is for threads that wake up late, behind one that imports.
_FOR_OPENING, _FOR_REPLIES = 0.3, 0.45
_TOO_LITTLE = 0.001  # seconds: no reply comes in less
_MOST_FAILURES = 3  # one after the other; then the breaker opens
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0  # seconds


class Bound:
    """The time that callers may still lose by waiting for one store; that of several threads at once counts once.

    A wait that ends with a good reply costs nothing. Waiting for the store to be opened, and for its first reply, has a
    part of its own: a store that takes longer is used when it has answered.

    Args:
        seconds: The time for this process.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._left = {True: _FOR_OPENING * seconds, False: _FOR_REPLIES * seconds}
        self._counted_until = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether nobody waits for the store any more."""
        return self._left[False] <= 0

    def left(self, since: float, *, opening: bool = False) -> float:
        """Return the seconds that a caller may still wait who has received nothing since a :func:`time.monotonic`."""
        with self._lock:
            return self._left[opening] - max(0.0, time.monotonic() - max(since, self._counted_until))

    def lose(self, since: float, *, opening: bool = False) -> None:
        """Count the time since then: what a caller waited for failed, or has not come."""
        with self._lock:
            now = time.monotonic()
            left = self._left[opening] - max(0.0, now - max(since, self._counted_until))
            self._left[opening] = left if left > _TOO_LITTLE else 0.0
            self._counted_until = now


class Breaker:
    """Whether requests of one sort are sent: not for a while after several have failed, longer each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.succeeded()

    def succeeded(self) -> None:
        """Note a request that succeeded."""
        self._failures, self._pause = 0, _FIRST_PAUSE
        self._retry_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether no request is sent now, other than one for which :meth:`may_retry` was true."""
        return self._retry_at is not None

    def may_retry(self) -> bool:
        """Return whether to try once, now, whether the store is back; True for one caller alone."""
        with self._lock:
            now = time.monotonic()
            if self._retry_at is None or now < self._retry_at:
                return False
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            self._retry_at = now + self._pause
            return True

    def failed(self, *, at_once: bool = False) -> bool:
        """Note a request that failed; return whether the breaker opens now.

        Args:
            at_once: Whether one such failure is enough.
        """
        with self._lock:
            self._failures += 1
            if self._retry_at is not None or (not at_once and self._failures < _MOST_FAILURES):
                return False
            self._retry_at = time.monotonic() + self._pause
            return True


class Workers:
    """Daemon threads, for whose tasks a process does not wait when it ends, as it would for concurrent.futures.

    Args:
        most: Number of threads at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = self._started = 0

    def submit(self, task: Callable[[], None]) -> bool:
        """Run a function that raises nothing as soon as a thread is free; return False if none can be started."""
        with self._lock:
            starts = self._idle <= self._tasks.qsize() and self._started < self._most
            self._started += starts
            self._tasks.put(task)
        if starts:
            try:
                # Thread.start() would wait until the new thread has had its turn, behind one that imports.
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # no more threads, or the interpreter is ending
                with self._lock:
                    self._started -= 1
                    return self._started > 0
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            task = self._tasks.get()
            with self._lock:
                self._idle -= 1
            task()
            del task  # with what it holds
