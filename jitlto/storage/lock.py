"""Locks between processes that only save work: on a file system without locks, work goes on without them.

Not filelock, which takes a lock file that an earlier process has left for a lock where ``flock`` answers ENOSYS, and in
some releases waits where it answers ENOLCK.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_POLL = 0.05  # seconds


class NoLocksError(OSError):
    """A file system has no locks: those over a network, and some in containers."""


class FileLock:
    """An exclusive lock on a file, between processes and between threads; it ends with its process.

    Args:
        path: The file; it is created if it is missing, never changed, and left in place, because a file that is removed
            could be locked twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_locked(self) -> bool:
        """Whether this object has the lock."""
        return self._descriptor is not None

    def acquire(self, timeout: float = 0.0) -> bool:
        """Acquire the lock; return False if another holds it, still after ``timeout`` seconds.

        Raises:
            NoLocksError: If the file system has no locks.
            OSError: If the file cannot be opened.
        """
        end = time.monotonic() + timeout
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= end:
                        return False
                    time.sleep(_POLL)
                except OSError as error:
                    raise NoLocksError(error.errno, error.strerror, str(self.path)) from error
                else:
                    self._descriptor, descriptor = descriptor, -1
                    return True
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def release(self) -> None:
        """Release the lock, if this object has it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may have a copy, which closing leaves locked
            finally:
                os.close(descriptor)
