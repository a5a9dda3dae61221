"""Worker processes: an executor whose workers do not import the program that uses it.

``concurrent.futures.ProcessPoolExecutor`` imports the caller's ``__main__`` again in every worker, so that a script
without ``if __name__ == "__main__":``, or one read from standard input, fails obscurely; and one worker that dies
breaks it. Here workers are fresh interpreters, see :mod:`jitlto.build.execution.worker`, one for each thread that waits
for an answer.
"""

import atexit
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from jitlto.base.errors import BuildError
from jitlto.base.files import no_temporary_directory
from jitlto.build.execution import worker
from jitlto.link.parallel import default_workers
from jitlto.record.headers import HeaderSet, digest_content, digest_headers

T = TypeVar("T")

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import start, work; work(*start(*sys.argv[1:]))"
_BYTES_PER_JOB = 2 << 30  # for the largest CCCL headers NVRTC takes half a GiB, and snapshots three times as much
_NO_DRIVER = "no-driver"


class WorkerDied(BuildError):  # noqa: N818 - named like CancelledError and BrokenExecutor
    """A worker process ended without an answer."""

    code = "build-worker-died"


def _death(status: int) -> WorkerDied:
    number = max(-status, status - worker.OF_SIGNAL)  # of the worker's signal, or its parent's
    if number <= 0:
        return WorkerDied(f"a worker process ended with exit status {status}", hint="see its standard error")
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hint = "if the machine ran out of memory, run fewer jobs at once; if the compiler crashes again with this source "
    hint += "alone, try a different version"
    return WorkerDied(f"a worker process was killed by {name}", hint=hint)


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]  # its parent
    pipe: Connection


class SentHeaders(dict[str, bytes]):
    """Headers of a job on its way: pickled as the place where they are read when it arrives."""

    def __init__(self, directory: str, digest: str) -> None:
        super().__init__()
        self.place = directory, digest

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return read_headers, self.place


@lru_cache(maxsize=1024)
def read_headers(directory: str, digest: str) -> HeaderSet:
    """Return a set of headers that was written into a directory."""
    names: dict[str, str] = json.loads(Path(directory, digest).read_bytes())
    return HeaderSet({name: _read_content(directory, sha256) for name, sha256 in names.items()})


@lru_cache(maxsize=4096)  # sets share most of them
def _read_content(directory: str, sha256: str) -> bytes:
    return Path(os.path.join(directory, sha256)).read_bytes()  # noqa: PTH118 - thousands


class ProcessExecutor(Executor):
    """Runs calls in worker processes that stay alive between calls.

    Functions, arguments, results and exceptions are pickled. A call whose worker dies raises :class:`WorkerDied`; the
    next call gets a new worker. Workers end with the process that started them, even if it is killed.

    Args:
        workers: The maximum number of processes, which are started on demand; by default one for each core of this
            process, if memory allows.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(workers or default_workers(_BYTES_PER_JOB))
        self._own = threading.local()  # the idle worker of a thread
        self._lock = threading.RLock()  # of what follows
        self._workers: list[_Worker] = []  # those that have ended too
        self._shared: Path | None = None  # a directory for all that workers write, and their headers
        self._written: set[str] = set()  # names of headers' files in it
        self._is_shut = False
        self._owner = os.getpid()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``fn`` in a worker; RuntimeError if the executor was shut down."""
        return self._threads.submit(self._call, pickle.dumps((fn, args, kwargs)))

    def send(self, headers: Mapping[str, bytes]) -> SentHeaders:
        """Give all workers a set of headers; return what is pickled in its place.

        Each content is in a file called by its SHA-256. Through sockets each set would go to each worker, in megabytes,
        and most sets of a build differ in a few headers.

        Raises:
            JitltoError: If there is no temporary directory, or no space.
        """
        digest = f"{digest_headers(headers)}.set"
        with self._lock:
            if digest not in self._written:
                names = {name: digest_content(content).hex() for name, content in headers.items()}
                files = {sha256: headers[name] for name, sha256 in names.items()} | {digest: json.dumps(names).encode()}
                try:
                    for file in files.keys() - self._written:
                        (self.directory / file).write_bytes(files[file])
                except OSError as error:  # what is left behind is written over by the next attempt
                    raise no_temporary_directory(error) from error
                self._written.update(files)
            return SentHeaders(str(self.directory), digest)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - workers are awaited
        """Stop the workers when all calls are answered, or at once if ``cancel_futures``."""
        if os.getpid() != self._owner:
            return  # a fork's copy, which does not own the workers
        self._threads.shutdown(wait=not cancel_futures, cancel_futures=cancel_futures)
        with self._lock:
            self._is_shut = True
            for each in self._workers:
                each.process.terminate()
            for each in self._workers:
                each.process.wait()
            if self._shared is not None:
                shutil.rmtree(self._shared, ignore_errors=True)
        self._threads.shutdown()
        for each in self._workers:
            each.pipe.close()

    def _call(self, call: bytes) -> Any:
        """Let the worker of this thread make a call, a new one if it has none or that has ended."""
        mine: _Worker | None = self._own.__dict__.pop("worker", None)
        if mine is None or mine.pipe.poll():
            mine = self._start()
        try:
            mine.pipe.send_bytes(call)
            answer = mine.pipe.recv_bytes()
        except (EOFError, OSError):
            mine.pipe.close()
            raise _death(mine.process.wait()) from None
        self._own.worker = mine
        succeeded, value = pickle.loads(answer)  # noqa: S301 - from our own worker
        if not succeeded:
            raise value
        return value

    def _start(self) -> _Worker:
        with self._lock:
            if self._is_shut:
                raise WorkerDied("the executor was shut down")
            shared = str(self.directory)
            libraries = [f"{shared}/{_NO_DRIVER}", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            path = [str(Path(entry).absolute()) for entry in sys.path]
            ours, theirs = Pipe()
            command = [sys.executable, "-c", _COMMAND.format(path=path, module=worker.__name__)]
            with theirs:
                # NVRTC writes its working directory into LTO-IR, so it is the same in every build. Output of libraries
                # goes to standard error. The process group is new, so that an interrupt is for the program alone.
                process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(os.getpid()), shared],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=(theirs.fileno(),),
                    cwd="/",
                    env=os.environ | {"TMPDIR": shared, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
                    process_group=0,
                )
            self._workers.append(_Worker(process, ours))
            return self._workers[-1]

    @property
    def directory(self) -> Path:
        """The directory that workers share; what they leave behind is removed with it, and with the executor.

        When NVRTC makes PTX, it loads and initialises the driver if there is one, in each copy of a snapshot: under its
        lock, which took most of the time of a build with 16 workers. Where the loader finds what is no library, it
        stops.
        """
        with self._lock:
            if self._shared is None:
                try:
                    shared = Path(tempfile.mkdtemp(prefix="jitlto-workers-"))
                    (shared / _NO_DRIVER).mkdir()
                    (shared / _NO_DRIVER / "libcuda.so.1").touch()
                except OSError as error:
                    raise no_temporary_directory(error) from error
                self._shared = shared
            return self._shared


_local: dict[int, ProcessExecutor] = {}  # by process: a fork has the copy of an executor that is not its own


def local_executor() -> ProcessExecutor:
    """Return the executor of this process for what lasts as long as it: loaded sources, workers of other executors.

    Its workers share neither working directory nor threads with this process, and a crash ends only a worker.
    """
    if (process := os.getpid()) not in _local:
        made = _local.setdefault(process, ProcessExecutor())
        atexit.register(made.shutdown, cancel_futures=True)
    return _local[process]
