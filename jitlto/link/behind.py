"""Jobs that are done behind the caller, in two threads of low priority.

A fork leaves them to the parent. They end with the process: no call of NVIDIA's libraries is interrupted, and none
begins after the end (:mod:`jitlto.base.uninterrupted`).
"""

import _thread
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from jitlto.base.log import log

_MOST_THREADS = 2
_NICENESS = 10  # above the caller's
# Seconds without a new job before a thread begins the next: what the caller does meanwhile, most likely asking for
# further kernels, would wait for the interpreter.
_QUIET = 0.01

_lock = threading.RLock()
_jobs: deque[Callable[[], object]] = deque()
_waiting = threading.Semaphore(0)  # counts the jobs
_threads = 0
_newest = 0.0  # when the last job came
_awaited: dict[int, "Behind"] = {}  # by thread


class Behind:
    """A job that is done once, by a thread behind or by the first thread that waits for it.

    If it raises an exception, it is left to the next one that waits.

    Args:
        job: The job.
    """

    def __init__(self, job: Callable[[], object]) -> None:
        self._job: Callable[[], object] | None = job
        self._lock = threading.Lock()
        self._thread: int | None = None  # that does it

    def begin(self) -> Self:
        """Let a thread behind do it."""
        _submit(self.wait)
        return self

    def wait(self) -> None:
        """Do the job, or wait until it is done; return at once from within the job, and where jobs wait in a circle."""
        me = threading.get_ident()
        with _lock:
            if self._waits_for(me):
                return
            _awaited[me] = self
        try:
            self._lock.acquire()
        finally:
            del _awaited[me]
        try:
            if self._job is not None:
                self._thread = me
                self._job()
                self._job = None
        finally:
            self._thread = None
            self._lock.release()

    def _waits_for(self, thread: int) -> bool:
        """Return whether it is done by a thread, or by one that waits for what that thread does."""
        job: Behind | None = self
        while job is not None and job._thread not in (None, thread):
            job = _awaited.get(job._thread)
        return job is not None and job._thread == thread

    def also(self, job: Callable[[], object]) -> None:
        """Have another job done behind the caller, too."""
        _submit(job)


def _submit(job: Callable[[], object]) -> None:
    global _threads, _newest
    _newest = time.monotonic()
    _jobs.append(job)
    _waiting.release()
    with _lock, contextlib.suppress(RuntimeError):  # there are too many threads, or the interpreter ends
        if _threads < _MOST_THREADS:
            _thread.start_new_thread(_work, ())  # waits for no thread to have started, as Thread does
            _threads += 1


def _work() -> None:
    with contextlib.suppress(OSError):  # threads have priorities of their own on Linux
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
    while True:
        _waiting.acquire()
        while (left := _newest + _QUIET - time.monotonic()) > 0:
            time.sleep(left)
        try:
            _jobs.popleft()()
        except Exception:  # noqa: BLE001 - of a caller's filter for warnings, for one
            log(__name__, "exception", "a job behind the caller failed")


def _after_fork() -> None:
    global _lock, _waiting, _threads
    _lock, _waiting, _threads = threading.RLock(), threading.Semaphore(0), 0
    _jobs.clear()
    _awaited.clear()


os.register_at_fork(after_in_child=_after_fork)
