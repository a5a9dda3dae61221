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
import select
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from jitlto.base.errors import BuildError
from jitlto.base.files import no_temporary_directory, remove_directory
from jitlto.build.execution.forkserver import ForkServer, serve_forks
from jitlto.build.execution.header_files import HeaderFiles
from jitlto.build.execution.worker_process import Gone, NotStarted, WorkerProcess

P = ParamSpec("P")
T = TypeVar("T")

_BYTES_PER_JOB = 2 << 30  # for the largest CCCL headers NVRTC takes half a GiB, and snapshots three times as much
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


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


class ProcessExecutor(Executor):
    """Runs calls in worker processes that stay alive between calls.

    Functions, arguments, results and exceptions are pickled. A call whose worker dies raises :class:`WorkerDied`; the
    next call gets a new worker. Workers end with the process that started them, even if it is killed. When all workers
    are busy, those whose calls take milliseconds are sent the next one ahead, so that they need not wait for us.

    Args:
        workers: The maximum number of processes, which are started on demand.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._shared: str | None = None
        self._headers: HeaderFiles | None = None
        self._environment: dict[str, str] = {}
        self._server: ForkServer | None = None
        self._preloads: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._threads = ThreadPoolExecutor(2 * workers)  # one for each call that a worker has, waiting for the answer
        self._started: set[WorkerProcess] = set()
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._closed = False
        self._owner = os.getpid()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._threads.submit(self._call, fn, *args, **kwargs)

    def preload(self, fn: Callable[..., object], *args: object) -> None:
        """Call a function once where workers are forked, so that all that start later have what it loads."""
        if (fn, args) in self._preloads:  # whoever forks may hold the lock for as long as the others take
            return
        with self._lock:
            self._start_server().preload(fn, *args)
            self._preloads.append((fn, args))

    def write_headers(self, headers: Mapping[str, bytes]) -> tuple[str, str]:
        """Write a set of headers where all workers can read it; return the arguments of ``read_headers``."""
        if self._headers is None:  # whoever forks may hold the lock
            with self._lock:
                self._headers = self._headers or HeaderFiles(Path(self._share()))
        return str(self._headers.directory), self._headers.write(headers)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers when they are idle, or at once if ``cancel_futures``."""
        if os.getpid() != self._owner:
            return  # a fork's copy, which does not own the workers
        if cancel_futures:
            with self._lock:
                self._closed = True
                for worker in self._started:
                    worker.kill()
                self._free.notify_all()
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish).start()

    def _finish(self) -> None:
        self._threads.shutdown(wait=True)
        while self._started:
            self._started.pop().stop()
        if self._shared is not None:
            remove_directory(self._shared)
        if self._server is not None:  # which, if an interrupt came before this, removes the directory
            self._server.close()

    def _call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        request = pickle.dumps((fn, args, kwargs))
        while True:
            worker = self._take_worker()
            try:
                succeeded, value = worker.call(request)
            except NotStarted:
                continue
            except Gone:
                with self._lock:
                    self._started.discard(worker)
                status = worker.stop()
                raise WorkerDied("the executor was shut down") if self._closed else _death(status) from None
            finally:
                with self._lock:
                    worker.calls -= 1
                    self._free.notify_all()  # it may now be known to be quick, and so take two
            if not succeeded:
                raise value
            result: T = value
            return result

    def _take_worker(self) -> WorkerProcess:
        """Return a worker for a call: one without any, a new one, or one that will soon have done the call it has."""
        with self._lock:
            while not self._closed:
                worker = next((each for each in self._started if each.calls == 0), None)
                if worker is None and len(self._started) < self.workers:
                    worker = self._start_worker()
                    self._started.add(worker)
                elif worker is None:
                    worker = next((each for each in self._started if each.calls == 1 and each.is_quick), None)
                if worker is not None:
                    worker.calls += 1
                    return worker
                self._free.wait()
            raise WorkerDied("the executor was shut down")

    def _start_worker(self) -> WorkerProcess:
        try:
            return WorkerProcess(self._start_server())
        except (EOFError, ConnectionError):  # ConnectionError: it ended just now, and is not known to have
            raise WorkerDied("the process that starts workers has ended", hint="see its standard error") from None

    def _share(self) -> str:
        """Return the directory that the workers share."""
        if self._shared is None:
            try:
                shared = tempfile.mkdtemp(prefix="jitlto-workers-")
                # What a worker that is killed leaves behind is removed with the directory.
                self._environment = {"TMPDIR": shared, **_without_driver(Path(shared))}
            except OSError as error:
                raise no_temporary_directory(error) from error
            self._shared = shared
        return self._shared

    def _start_server(self) -> ForkServer:
        shared = self._share()
        if self._server is None or not self._server.is_alive:
            if self._server is not None:
                self._server.close()
            self._server = ForkServer(serve, shared, environment=self._environment)
            for fn, args in self._preloads:
                self._server.preload(fn, *args)
        return self._server


def _without_driver(shared: Path) -> dict[str, str]:
    """Return environment variables with which no CUDA driver is found.

    When NVRTC makes PTX, it loads and initialises the driver if there is one: in each copy that a snapshot forks, one
    after the other under the driver's lock, which took most of the time of a build with 16 workers. It needs none.
    """
    nothing = shared / "no-driver"
    nothing.mkdir(exist_ok=True)
    (nothing / "libcuda.so.1").touch()  # the loader stops at a file that is no library
    searched = [str(nothing), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(searched)}


#: In a worker, a directory that the workers of one executor share; elsewhere None.
shared_directory: Path | None = None


def serve(socket: str, parent: str, shared: str) -> None:
    """In the process that forks workers, answer the program ``parent`` until it ends; remove what it left behind."""
    global shared_directory
    shared_directory = Path(shared)
    serve_forks(_serve_calls, int(socket), int(parent))
    # The program was killed, or ends without a shutdown.
    remove_directory(shared)


def _serve_calls(descriptor: int, parent: int) -> None:
    """In a worker, answer calls until told to stop or the process ``parent`` ends."""
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with, args=(descriptor, parent), daemon=True).start()
    pipe = Connection(descriptor)
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        while request := pipe.recv_bytes():
            pipe.send_bytes(_answer(request))


def _answer(request: bytes) -> bytes:
    try:
        fn, args, kwargs = pickle.loads(request)  # noqa: S301 - from the program that started us
        succeeded, value = True, fn(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        succeeded, value = False, error
    try:
        return pickle.dumps((succeeded, value))
    except Exception as error:  # noqa: BLE001 - as above
        return pickle.dumps((False, TypeError(f"{value!r} cannot be pickled: {error}")))


def _end_with(socket: int, parent: int) -> None:
    # Runs during compiles too, which release the interpreter's lock. The parent's process id is needed because a fork
    # of the parent may hold the other end of the socket open.
    poll = select.poll()
    poll.register(socket, 0)  # errors and hang-ups, which are always reported
    while not poll.poll(500) and os.getppid() == parent:
        pass
    os.killpg(0, signal.SIGKILL)


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
