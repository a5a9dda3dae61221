"""Worker processes: an executor whose workers do not import the program that uses it.

``concurrent.futures.ProcessPoolExecutor`` imports the caller's ``__main__`` again in every worker, so that a script
without ``if __name__ == "__main__":``, or one read from standard input, fails obscurely; and one worker that dies
breaks it. Here workers are forks of a fresh interpreter, see :mod:`jitlto.build.execution.host`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from jitlto.base.errors import BuildError
from jitlto.base.files import no_temporary_directory, remove_directory
from jitlto.build.execution import host
from jitlto.build.execution.header_files import HeaderFiles

P = ParamSpec("P")
T = TypeVar("T")

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import serve, work; work(*serve(*sys.argv[1:]))"
_PATIENCE = 10.0  # seconds that the host may take to end
_BYTES_PER_JOB = 2 << 30  # for the largest CCCL headers NVRTC takes half a GiB, and snapshots three times as much
_MOST_WORKERS = 1 << 16
_NO_DRIVER = "no-driver"


class WorkerDied(BuildError):  # noqa: N818 - named like CancelledError and BrokenExecutor
    """A worker process ended without an answer."""

    code = "build-worker-died"


def _death(status: int) -> WorkerDied:
    if status >= 0:
        return WorkerDied(f"a worker process ended with exit status {status}", hint="see its standard error")
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = "if the machine ran out of memory, run fewer jobs at once; if the compiler crashes again with this source "
    hint += "alone, try a different version"
    return WorkerDied(f"a worker process was killed by {name}", hint=hint)


def default_jobs() -> int:
    """Return the number of compilers to run in parallel: at most one per core of this process, limited by memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return cores
    return max(1, min(cores, memory // _BYTES_PER_JOB))


@dataclass(frozen=True, slots=True)
class _Host:
    """The process that forks workers."""

    process: subprocess.Popen[bytes]
    pipe: Connection


class ProcessExecutor(Executor):
    """Runs calls in worker processes that stay alive between calls.

    Functions, arguments, results and exceptions are pickled. A call whose worker dies raises :class:`WorkerDied`; the
    next call gets a new worker. Workers end with the process that started them, even if it is killed.

    Args:
        workers: The maximum number of processes, which are started on demand.
    """

    def __init__(self, workers: int) -> None:
        self.workers = max(1, min(workers, _MOST_WORKERS))
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._futures: dict[int, Future[Any]] = {}  # of the calls that have no answer
        self._preloads: list[bytes] = []
        self._host: _Host | None = None
        self._headers: HeaderFiles | None = None  # in a directory that workers share, for all that they write
        self._is_shut = False
        self._owner = os.getpid()

    @property
    def headers(self) -> HeaderFiles:
        """The headers that all workers can read.

        Raises:
            JitltoError: If there is no temporary directory.
        """
        with self._lock:
            self._headers = self._headers or HeaderFiles(_make_directory())
            return self._headers

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` in a worker.

        Raises:
            JitltoError: If there is no temporary directory, or the executor was shut down.
        """
        call, future, number = pickle.dumps((fn, args, kwargs)), Future[T](), next(self._numbers)
        with self._lock:
            pipe = self._start().pipe
            self._futures[number] = future
            with contextlib.suppress(OSError):  # the host has ended: its reader says so
                pipe.send((number, call))
        future.add_done_callback(partial(self._drop, number))
        return future

    def _drop(self, number: int, future: Future[Any]) -> None:
        """Take back a call that was cancelled before a worker had it."""
        if future.cancelled() and self._futures.pop(number, None) is not None:
            future.set_running_or_notify_cancel()
            with self._lock, contextlib.suppress(OSError):
                if self._host is not None:
                    self._host.pipe.send((number, None))

    def preload(self, fn: Callable[..., object], *args: object) -> None:
        """Call a function once where workers are forked, so that all that start later have what it loads."""
        call = pickle.dumps((fn, args))
        if call in self._preloads:
            return
        with self._lock, contextlib.suppress(OSError):
            pipe = self._start().pipe
            self._preloads.append(call)
            pipe.send((None, call))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - workers are awaited
        """Stop the workers when all calls are answered, or at once if ``cancel_futures``."""
        if os.getpid() != self._owner:
            return  # a fork's copy, which does not own the workers
        self._is_shut = True
        if not cancel_futures:
            wait_for(list(self._futures.values()))
        if (ending := self._host) is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(ending.pipe.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            try:
                ending.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                ending.process.kill()
                ending.process.wait()
            self._fail(ending)
        if self._headers is not None:
            remove_directory(self._headers.directory)

    def _start(self) -> _Host:
        """Return the host, started if there is none."""
        if self._is_shut:
            raise WorkerDied("the executor was shut down")
        if self._host is None:
            self._headers = self._headers or HeaderFiles(_make_directory())
            shared = str(self._headers.directory)
            libraries = [f"{shared}/{_NO_DRIVER}", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            path = [str(Path(entry).absolute()) for entry in sys.path]
            ours, theirs = socket.socketpair()
            with theirs:
                numbers = [str(theirs.fileno()), str(os.getpid()), shared, str(self.workers)]
                # NVRTC writes its working directory into LTO-IR, so it is the same in every build. Output of libraries
                # goes to standard error. The process group is new, so that an interrupt is for the program alone.
                process = subprocess.Popen(
                    [sys.executable, "-c", _COMMAND.format(path=path, module=host.__name__), *numbers],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=(theirs.fileno(),),
                    cwd="/",
                    env=os.environ | {"TMPDIR": shared, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
                    process_group=0,
                )
            self._host = _Host(process, Connection(ours.detach()))
            threading.Thread(target=self._read, args=(self._host,), daemon=True).start()
        return self._host

    def _read(self, source: _Host) -> None:
        """Take the answers of a host until it ends, in a thread."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                # The socket alone does not show an end: a fork made during the start may hold the other side open.
                while not source.pipe.poll(1):
                    if source.process.poll() is not None:
                        raise EOFError
                number, answer = source.pipe.recv()
                if (future := self._futures.pop(number, None)) is not None:
                    _resolve(future, answer)
        source.process.wait()
        self._fail(source)

    def _fail(self, ended: _Host) -> None:
        """Tell the callers of a host that has ended."""
        with self._lock:
            if self._host is ended:
                self._host = None
                self._preloads.clear()  # the next one is asked again
                left, self._futures = self._futures, {}
                for future in left.values():
                    if not self._is_shut:
                        _resolve(future, ended.process.returncode)
                    elif not future.cancel():
                        future.set_exception(WorkerDied("the executor was shut down"))


def _make_directory() -> Path:
    """Make a directory that workers share; what they leave behind is removed with it.

    When NVRTC makes PTX, it loads and initialises the driver if there is one, in each copy of a snapshot: under its
    lock, which took most of the time of a build with 16 workers. Where the loader finds what is no library, it stops.
    """
    try:
        shared = Path(tempfile.mkdtemp(prefix="jitlto-workers-"))
        (shared / _NO_DRIVER).mkdir()
        (shared / _NO_DRIVER / "libcuda.so.1").touch()
    except OSError as error:
        raise no_temporary_directory(error) from error
    return shared


def _resolve(future: Future[Any], answer: bytes | int) -> None:
    """Give a future what the host has sent, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(answer, int):
        future.set_exception(_death(answer))
        return
    try:
        succeeded, value = pickle.loads(answer)  # noqa: S301 - from our own worker
    except Exception as error:  # noqa: BLE001 - the caller gets it
        succeeded, value = False, error
    (future.set_result if succeeded else future.set_exception)(value)


_local: dict[int, ProcessExecutor] = {}  # by process: a fork has the copy of an executor that is not its own


def local_executor() -> ProcessExecutor:
    """Return the executor of this process for workers of other executors; it ends with the process.

    Its workers share neither working directory nor threads with this process, and a crash ends only a worker.
    """
    return _local.setdefault(os.getpid(), ProcessExecutor(default_jobs()))
