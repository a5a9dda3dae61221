"""Worker processes: an executor whose workers import nothing of the program that uses it.

``concurrent.futures.ProcessPoolExecutor`` imports the caller's ``__main__`` again in every worker, so that a script
without ``if __name__ == "__main__":``, or one read from standard input, fails in a way that nobody understands. Here a
worker is a fresh interpreter that is told what to call over a pipe.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_COMMAND = "import sys; sys.path[:] = {path!r}; from jitlto.build.workers import serve; serve()"


class WorkerDied(RuntimeError):  # noqa: N818 - said of a process, beside CancelledError and the like
    """A worker process ended without an answer; its exit status is the argument."""


class ProcessExecutor(Executor):
    """Runs calls in worker processes that stay alive from one call to the next.

    Functions, arguments, results and exceptions are pickled. A call whose worker dies raises :class:`WorkerDied`; the
    next call gets a new worker.

    Parameters
    ----------
    workers : int
        At most so many processes, started as they are needed.
    """

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers)
        self._local = threading.local()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` in a worker."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers: after what they are doing, or at once if ``cancel_futures``."""
        if cancel_futures:
            with self._lock:
                self._closed = True
                processes = list(self._processes)
            for process in processes:
                process.kill()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        for process in list(self._processes):
            self._end(process)

    def _call(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        process = self._process()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes
        try:
            pickle.dump((fn, args, kwargs), process.stdin)
            process.stdin.flush()
            held, value = pickle.load(process.stdout)  # noqa: S301 - from our own worker
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._local.process = None
            self._end(process)
            raise WorkerDied(process.returncode) from None
        if held:
            result: T = value
            return result
        raise value

    def _process(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] | None = getattr(self._local, "process", None)
        if process is None:
            with self._lock:
                if self._closed:
                    raise WorkerDied("the executor was shut down")
                path = [str(Path(entry).absolute()) for entry in sys.path]
                command = [sys.executable, "-c", _COMMAND.format(path=path)]
                # NVRTC writes its working directory into LTO-IR, so it has to be the same in every build.
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
                self._processes.add(process)
            self._local.process = process
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._processes.discard(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def serve() -> None:
    """The worker's side: answer calls from standard input until it ends."""
    # An interrupt at the keyboard reaches every process; the program that we work for decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    while True:
        try:
            fn, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the program that started us
        except (EOFError, pickle.UnpicklingError):
            return
        try:
            answer = (True, fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answer = (False, error)
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            os._exit(1)  # who asked is gone
