"""A few daemon threads of ours, started when there is work for them and kept.

Not those of concurrent.futures, for which a process waits when it ends, however long they take.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_IDLE = 2.0  # seconds after which a thread without work ends


class Workers:
    """Threads that run functions, which have to deal with their errors themselves.

    Args:
        most: Number of threads at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = 0
        self._started = 0

    def submit(self, task: Callable[[], None]) -> None:
        """Run a function in one of the threads, as soon as one is free.

        Raises:
            RuntimeError: If no thread runs and none can be started.
        """
        with self._lock:
            start = self._idle <= self._tasks.qsize() and self._started < self._most
            if start:
                self._started += 1
            self._tasks.put(task)
        if start:
            try:
                # Thread.start() would wait until the new thread has had its turn, behind one that imports.
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # no more threads, or the interpreter is ending
                with self._lock:
                    self._started -= 1
                    if not self._started:
                        raise

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                task = self._tasks.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    self._idle -= 1
                    if not self._tasks.empty():
                        continue
                    self._started -= 1
                    return
            with self._lock:
                self._idle -= 1
            task()
            del task  # with what it holds
