"""A worker process, as the program that started it sees it: requests, answers and its end."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import threading
import time
from multiprocessing import Pipe
from typing import Any

from jitlto.build.execution.forkserver import ForkServer

_STOP = b""
_QUICK = 0.25  # seconds; after a longer call it is better to see which worker is free first


class Gone(Exception):  # noqa: N818 - never leaves this package
    """The worker does not answer."""


class NotStarted(Exception):  # noqa: N818 - as above
    """The worker ended before it came to this call."""


class WorkerProcess:
    """A worker process and our end of its socket; for two threads at a time, except :meth:`kill`.

    Raises:
        EOFError: If the server that forks it has ended.
    """

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._status: int | None = None
        self._sending, self._answering = threading.Lock(), threading.Lock()
        self._is_gone = False
        self._was_quick = False
        self._begin = 0.0  # of the call that runs
        #: The calls that it was given and has not done, which its user counts.
        self.calls = 0
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = server.fork(theirs.fileno())
        self._ready = select.poll()  # the pipe's own makes a new one for each answer
        self._ready.register(self._pipe, select.POLLIN)

    @property
    def is_quick(self) -> bool:
        """Whether it is so quick with its calls that the next one should wait for it rather than for us."""
        return self._was_quick and not self._is_gone and time.perf_counter() - self._begin < _QUICK

    def call(self, request: bytes) -> tuple[bool, Any]:
        """Return whether a call succeeded, and its result or its error.

        The second of two calls is sent while the first runs, and its answer comes after that of the first.

        Raises:
            Gone: If the process ended during this call.
            NotStarted: If it ended during the one before.
        """
        with self._sending:
            is_sent = True
            try:
                self._pipe.send_bytes(request)
            except OSError:
                is_sent = False
            self._answering.acquire()
        try:
            if self._is_gone:
                raise NotStarted
            self._begin = time.perf_counter()
            answer = self._receive() if is_sent else None
            self._is_gone = answer is None
            self._was_quick = time.perf_counter() - self._begin < _QUICK
        finally:
            self._answering.release()
        if answer is None:
            raise Gone
        succeeded, value = pickle.loads(answer)  # noqa: S301 - from our own worker
        return succeeded, value

    def _receive(self) -> bytes | None:
        """Wait for an answer; None if the process has ended."""
        try:
            # The socket alone does not show it: a fork made during the start may hold the other end open.
            while not self._ready.poll(1000):
                self._status = self._server.poll(self._process)
                if self._status is not None:
                    return None
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def kill(self) -> None:
        """Kill the process and those that it has started."""
        if self._status is None and self._server.is_alive:  # not reaped, so the process id is still valid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process, signal.SIGKILL)

    def stop(self) -> int:
        """End an idle process and return its exit status, negative for a signal."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(_STOP)
        if self._status is None:
            self._status = self._server.wait(self._process)
        self._pipe.close()
        return self._status
