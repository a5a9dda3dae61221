"""Worker processes: an executor whose workers do not import the program that uses it.

``concurrent.futures.ProcessPoolExecutor`` imports the caller's ``__main__`` again in every worker, so that a script
without ``if __name__ == "__main__":``, or one read from standard input, fails obscurely. Here a worker is a fork of a
fresh interpreter, which receives calls over a socket and ends with its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from jitlto.base.errors import BuildError
from jitlto.base.files import no_temporary_directory, remove_directory
from jitlto.build.execution.forkserver import ForkServer
from jitlto.build.execution.header_files import HeaderFiles

P = ParamSpec("P")
T = TypeVar("T")

_BYTES_PER_JOB = 2 << 30  # for the largest CCCL headers NVRTC takes half a GiB, and snapshots three times as much
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_QUICK = 0.25  # seconds; behind a longer call it is better to see which worker is free first


class WorkerDied(BuildError):  # noqa: N818 - named like CancelledError and BrokenExecutor
    """A worker process ended without an answer."""

    code = "build-worker-died"


def _death(status: int) -> WorkerDied:
    if status >= 0:
        return WorkerDied(f"a worker process ended with exit status {status}", hint="see its standard error")
    try:
        killer = signal.Signals(-status)
    except ValueError:  # a real-time signal
        return WorkerDied(f"a worker process was killed by signal {-status}")
    if killer is signal.SIGKILL:
        hint = "most likely the machine ran out of memory: run fewer jobs at once"
    elif killer in _CRASHES:
        hint = "the compiler crashed: compile this source alone to reproduce it, or try a different compiler version"
    else:
        hint = "another process sent that signal: build again"
    return WorkerDied(f"a worker process was killed by {killer.name}", hint=hint)


def default_jobs() -> int:
    """Return the number of compilers to run in parallel: at most one per core of this process, limited by memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return cores
    return max(1, min(cores, memory // _BYTES_PER_JOB))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call on its way."""

    request: bytes
    future: Future[Any] = field(default_factory=Future)


class ProcessExecutor(Executor):
    """Runs calls in worker processes that stay alive between calls.

    Functions, arguments, results and exceptions are pickled. A call whose worker dies raises :class:`WorkerDied`; the
    next call gets a new worker. Workers end with the process that started them, even if it is killed. Those whose calls
    take milliseconds are sent the next one ahead, so that they need not wait for us.

    Args:
        workers: The maximum number of processes, which are started on demand.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()  # None ends a thread
        self._threads: list[threading.Thread] = []  # one a worker
        self._idle = threading.Semaphore(0)  # threads that wait for a call
        self._lock = threading.Lock()
        self._shared: str | None = None
        self._headers: HeaderFiles | None = None
        self._server: ForkServer | None = None
        self._preloads: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._is_cancelled = False
        self._owner = os.getpid()

    @property
    def headers(self) -> HeaderFiles:
        """The headers that all workers can read."""
        if self._headers is None:  # whoever forks may hold the lock
            with self._lock:
                self._headers = self._headers or HeaderFiles(Path(self._share()))
        return self._headers

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        call = _Call(pickle.dumps((fn, args, kwargs)))
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self.workers:
            thread = threading.Thread(target=self._run, daemon=True)
            self._threads.append(thread)
            thread.start()
        return call.future

    def preload(self, fn: Callable[..., object], *args: object) -> None:
        """Call a function once where workers are forked, so that all that start later have what it loads."""
        if (fn, args) in self._preloads:  # whoever forks may hold the lock for as long as the others take
            return
        with self._lock:
            self._start_server().preload(fn, *args)
            self._preloads.append((fn, args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers when they are idle, or at once if ``cancel_futures``."""
        if os.getpid() != self._owner:
            return  # a fork's copy, which does not own the workers
        if cancel_futures:
            self._is_cancelled = True
            with contextlib.suppress(Empty):
                while True:
                    if (call := self._calls.get_nowait()) is not None and not call.future.cancel():
                        call.future.set_exception(
                            WorkerDied("the executor was shut down")
                        )  # sent to a worker that died
            if self._server is not None:
                self._server.close()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish).start()

    def _finish(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._server is not None:
            self._server.close()
        if self._shared is not None:
            remove_directory(self._shared)

    # --- in the thread of a worker

    def _run(self) -> None:
        """Have calls answered by a worker, and by another if that dies."""
        worker: tuple[int, Connection] | None = None
        sent: deque[_Call] = deque()  # what it has not answered
        is_quick = False
        while True:
            if len(sent) < (2 if is_quick else 1):
                call = self._take(wait=not sent)
                if call is not None:
                    try:
                        worker = worker or self._fork()
                    except Exception as error:  # noqa: BLE001 - the caller gets it
                        call.future.set_exception(error)
                        continue
                    with contextlib.suppress(OSError):  # it has died
                        worker[1].send_bytes(call.request)
                    sent.append(call)
                    continue
            if worker is None or not sent:
                return
            begin = time.perf_counter()
            answer = self._receive(*worker)
            is_quick = time.perf_counter() - begin < _QUICK
            call = sent.popleft()
            if answer is not None:
                succeeded, value = pickle.loads(answer)  # noqa: S301 - from our own worker
                (call.future.set_result if succeeded else call.future.set_exception)(value)
                continue
            call.future.set_exception(self._end(*worker))
            worker = None
            while sent:  # not begun
                self._calls.put(sent.popleft())

    def _take(self, *, wait: bool) -> _Call | None:
        """Return the next call that is not cancelled; None if there is none and, if we wait, if there will be none."""
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                if not wait:
                    return None
                self._idle.release()
                call = self._calls.get()
            if call is None and not wait:
                self._calls.put(None)
            if call is None or call.future.running() or call.future.set_running_or_notify_cancel():
                return call

    def _fork(self) -> tuple[int, Connection]:
        with self._lock:
            if self._is_cancelled:
                raise WorkerDied("the executor was shut down")
            server = self._start_server()
        try:
            return server.fork()
        except (EOFError, ConnectionError):  # ConnectionError: it ended just now, and is not known to have
            raise WorkerDied("the process that starts workers has ended", hint="see its standard error") from None

    def _receive(self, process: int, pipe: Connection) -> bytes | None:
        """Wait for a worker's answer; None if it has ended."""
        with contextlib.suppress(EOFError, OSError):
            # The socket alone does not show an end: a fork made during the start may hold the other side open.
            while not pipe.poll(1):
                if self._server is None or self._server.status(process, wait=False) is not None:
                    return None
            return pipe.recv_bytes()
        return None

    def _end(self, process: int, pipe: Connection) -> WorkerDied:
        """Return why a worker has ended."""
        pipe.close()
        if self._is_cancelled or self._server is None:
            return WorkerDied("the executor was shut down")
        return _death(self._server.status(process, wait=True) or 0)

    def _share(self) -> str:
        """Return the directory that the workers share."""
        if self._shared is None:
            try:
                shared = tempfile.mkdtemp(prefix="jitlto-workers-")
                _hide_driver(Path(shared))
            except OSError as error:
                raise no_temporary_directory(error) from error
            self._shared = shared
        return self._shared

    def _start_server(self) -> ForkServer:
        shared = self._share()
        if self._server is None or not self._server.is_alive:
            # What a worker that is killed leaves behind is removed with the directory.
            searched = [str(Path(shared, _NO_DRIVER)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            self._server = ForkServer(shared, {"TMPDIR": shared, "LD_LIBRARY_PATH": os.pathsep.join(searched)})
            for fn, args in self._preloads:
                self._server.preload(fn, *args)
        return self._server


_NO_DRIVER = "no-driver"


def _hide_driver(shared: Path) -> None:
    """Make a directory in which the loader finds a CUDA driver that it cannot load.

    When NVRTC makes PTX, it loads and initialises the driver if there is one: in each copy that a snapshot forks, one
    after the other under the driver's lock, which took most of the time of a build with 16 workers. It needs none.
    """
    nothing = shared / _NO_DRIVER
    nothing.mkdir()
    (nothing / "libcuda.so.1").touch()  # the loader stops at a file that is no library


_local: ProcessExecutor | None = None
_local_lock = threading.Lock()


def local_executor() -> ProcessExecutor:
    """Return the executor of this process for workers of other executors; it ends at exit.

    Its workers share neither working directory nor threads with this process, and a crash ends only a worker.
    """
    global _local
    with _local_lock:
        if _local is None:
            _local = ProcessExecutor(default_jobs())
        return _local


def close_local() -> None:
    """End the executor of :func:`local_executor` at once."""
    if _local is not None:
        _local.shutdown(cancel_futures=True)


def _after_fork() -> None:
    global _local, _local_lock
    _local, _local_lock = None, threading.Lock()


atexit.register(close_local)
os.register_at_fork(after_in_child=_after_fork)
