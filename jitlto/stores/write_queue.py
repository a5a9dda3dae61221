"""What is still to be written to a store: bounded, in threads of its own, and dropped while the store fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from jitlto.stores.patience import BackOff
from jitlto.stores.statistics import Counters
from jitlto.stores.workers import Workers

_THREADS = 4
_MOST_QUEUED = 4096
_MOST_QUEUED_BYTES = 256 << 20


class WriteQueue:
    """Writes to one store.

    Args:
        counters: Where to count.
        on_failure: Called when writes have failed and the queue stops for a while.
    """

    def __init__(self, counters: Counters, on_failure: Callable[[BaseException], None]) -> None:
        self._counters = counters
        self._on_failure = on_failure
        self._back_off = BackOff()
        self._workers = Workers(_THREADS)
        self._changed = threading.Condition()
        self._queued = self._queued_bytes = self._flushing = 0

    def add(self, size: int, work: Callable[[], None], *, optional: bool = False) -> None:
        """Do a write soon, or drop it if the store fails or too much is queued.

        Args:
            size: Bytes that it keeps in memory until then.
            work: Writes. An exception is a failure of the store.
            optional: Whether nobody waits for it: it is left out if it has not begun when the queue is flushed.
        """
        if optional:
            work = partial(self._unless_flushing, work)
        is_trial = self._back_off.may_retry()
        with self._changed:
            is_full = self._queued >= _MOST_QUEUED or (self._queued and self._queued_bytes + size > _MOST_QUEUED_BYTES)
            if is_full or (self._back_off.is_off and not is_trial):
                self._counters.add(dropped=1)
                return
            self._queued += 1
            self._queued_bytes += size
        try:
            self._workers.submit(partial(self._run, size, work, is_trial))
        except RuntimeError:  # no thread can be started
            self._finish(size, dropped=1)

    def flush(self, timeout: float | None, stall: float | None = None) -> bool:
        """Wait until nothing is queued; return False if something still is.

        Args:
            timeout: Seconds to wait at most.
            stall: Seconds in which nothing was finished, after which to give up.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._flushing += 1
            try:
                while self._queued:
                    limits = [] if end is None else [end - time.monotonic()]
                    limits += [] if stall is None else [stall]
                    if not self._changed.wait(min(limits, default=None)):
                        return False
                return True
            finally:
                self._flushing -= 1

    def _unless_flushing(self, work: Callable[[], None]) -> None:
        if not self._flushing:
            work()

    def _run(self, size: int, work: Callable[[], None], is_trial: bool) -> None:
        dropped = 1
        try:
            if is_trial or not self._back_off.is_off:
                work()
                self._back_off.succeeded()
                dropped = 0
        except BaseException as error:  # noqa: BLE001 - Rust's panics too; a thread of ours ends without a traceback
            self._counters.add(failures=1)
            if self._back_off.failed(at_once=getattr(error, "code", "") == "store-denied"):
                self._on_failure(error)
        finally:
            self._finish(size, dropped=dropped)

    def _finish(self, size: int, *, dropped: int) -> None:
        self._counters.add(dropped=dropped)
        with self._changed:
            self._queued -= 1
            self._queued_bytes -= size
            self._changed.notify_all()
