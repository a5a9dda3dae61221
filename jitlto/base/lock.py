"""Waiting for another process that does the same work.

A lock only saves work and never makes it correct: the wait is bounded and said on the log, and then the work is done
without the lock, as it is where a file system has no locks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base.log import log, warn_once
from jitlto.base.uninterrupted import wait_first

if TYPE_CHECKING:  # imported when a lock is taken: takes 6 ms, and who finds a kernel takes none
    from filelock import BaseFileLock

_SILENT = 1.0  # seconds of waiting before it is logged
_POLL = 0.01  # seconds


def claim(path: Path, timeout: float = 0.0) -> BaseFileLock | None:
    """Lock a file, which is nothing but a lock and left in place; return None if another has it until the end.

    The lock ends when it is released, or with its process. It is granted, and not locked, where locks do not work.

    Args:
        timeout: Seconds to wait.
    """
    if "filelock" not in sys.modules:
        import logging  # noqa: F401 - importing filelock needs its lock

        wait_first()
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        path.parent.stat()  # filelock would make it
        lock.acquire(timeout, poll_interval=_POLL)
    except Timeout:
        return None
    except OSError as error:  # ENOSYS, ENOLCK or EOPNOTSUPP of the file system, or something else lies at this path
        what = "there are no locks in %s (%s): several processes may do the same work"
        warn_once(__name__, path.parent, what, path.parent, error.strerror or error)
    return lock


@contextmanager
def locked(path: Path, timeout: float, what: str) -> Iterator[float]:
    """Wait until no other process does the same work, but not longer than ``timeout`` seconds; then do it anyway.

    Args:
        what: What the other does, for the log, e.g. ``links search/search_kernel``.

    Yields:
        float: Seconds waited; 0 if nobody had the lock.
    """
    begin, waited = time.perf_counter(), 0.0
    held = claim(path)
    if held is None:
        held = claim(path, min(timeout, _SILENT))
        if held is None:
            log(__name__, "warning", "waiting for another process that %s", what)
            held = claim(path, max(0.0, timeout - _SILENT))
        waited = time.perf_counter() - begin
        if held is None:
            late = "another process %s, and has not ended within %.0f s: doing it here too"
            log(__name__, "warning", late, what, waited)
    try:
        yield waited
    finally:
        if held is not None:
            held.release()
