"""Snapshots: the leading includes of many sources are read once, and each compile continues from there.

A *template* is a process that compiles :class:`~jitlto.compile.nvrtc_program.Program` without its rest. At the
program's last line NVRTC opens the file :data:`~jitlto.compile.nvrtc_program.REST`, which in a template is a FIFO
without a writer, and blocks. The
template then forks once for each source; in the copy the rest of the source takes the FIFO's place, and the compile
runs to its end. The result is that of a plain compile, and nothing is written to disk.
"""

import contextlib
import ctypes
import hashlib
import logging
import os
import pickle
import signal
import socket
import time
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from jitlto.base.errors import CompileError
from jitlto.base.files import temporary_directory
from jitlto.base.lock import claim
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.nvrtc_program import Output, Program, Step
from jitlto.record.headers import Source, digest_headers

#: The least number of sources with the same includes for which a template pays.
LEAST_SHARERS = 3
_BYTES = 3 << 29  # memory limit for all templates of one process
_FORKS = 2  # a template pays if reading the includes takes longer than this many forks
_DESCRIPTOR = int(nvrtc.REST.rpartition("/")[2])
_PR_SET_PDEATHSIG = 1
_POLL, _PATIENCE = 0.001, 60.0  # seconds
_PROCESSORS_OF_ONE = 4  # processors that one forking process keeps busy
_log = logging.getLogger(__name__)
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


class Snapshots:
    """The templates of this process, and of other processes with the same directory.

    Args:
        shared: A private directory that the processes share; None to compile plainly.
    """

    def __init__(self, shared: Path | None) -> None:
        self._shared = shared
        self._templates: dict[int, int] = {}  # process → its memory in bytes, the oldest first
        #: The number of templates made here, and of compiles that used a template.
        self.made = self.used = 0

    def run(self, source: Source, step: Step, sharers: int, following: Sequence[Step] = ()) -> Output:
        """Run one step of a compile, from a template if enough sources (``sharers``) have the same includes.

        While a different process makes that template, make those of ``following`` steps, then wait: a plain compile
        would read the same includes, and later. Whatever else happens to a template, the source is compiled plainly.

        Raises:
            CompileError, ToolchainError: As :func:`jitlto.compile.nvrtc_program.run_step`.
        """
        program = Program.from_source(source)
        if self._shared is None or sharers < LEAST_SHARERS or not program.rest:
            return nvrtc.run_step(source, step)
        path = self._shared / _key(source, program, step)
        try:
            for each in (step, *following):
                self._prepare(self._shared / _key(source, program, each), source, program, each, 0.0)
            self._prepare(path, source, program, step, _PATIENCE)
        except OSError as error:  # a path too long for a socket, no memory for a process
            _log.debug("no snapshot: %s", error)
        output = _ask(path, program.rest) if path.exists() else None
        if output is None:  # no template, or an error, which a plain compile reports
            return nvrtc.run_step(source, step)
        self.used += 1
        return output

    def close(self) -> None:
        """End the templates of this process."""
        for process in list(self._templates):
            self._end(process)

    def _prepare(self, path: Path, source: Source, program: Program, step: Step, timeout: float) -> None:
        """Make a template that listens at a path, unless it is there or known not to pay."""
        refused = path.with_suffix(".refused")
        if path.exists() or refused.exists() or (lock := claim(path.with_suffix(".lock"), timeout)) is None:
            return
        try:
            if not path.exists() and not refused.exists() and not self._make(path, source, program, step):
                refused.touch()
        finally:
            lock.release()

    def _make(self, path: Path, source: Source, program: Program, step: Step) -> bool:
        """Make a template; return whether it pays."""
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(temporary))
            listener.listen(128)
            begin = time.perf_counter()
            process = _fork()
            if process == 0:
                _become_template(listener, source, program, step)
            forked = time.perf_counter()
        if not _stopped(process) or time.perf_counter() - forked < _FORKS * (forked - begin):
            self._end(process)
            return False
        os.kill(process, signal.SIGUSR1)
        # What it does not share; compiling may also give back more of our memory than it takes.
        self._templates[process] = max(1, _memory(process) - _memory(os.getpid()))
        self.made += 1
        while sum(self._templates.values()) > _BYTES and len(self._templates) > 1:
            self._end(next(iter(self._templates)))
        temporary.rename(path)
        return True

    def _end(self, process: int) -> None:
        self._templates.pop(process, None)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _key(source: Source, program: Program, step: Step) -> str:
    parts = (digest_headers(source.headers), program.name, step.kind, str(step.architecture), *step.options)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]  # short, because it is in a socket's path


def _ask(path: Path, rest: bytes) -> Output | None:
    """Let a template compile a source; None if it has ended, or the source does not compile."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # its template has ended
            return None
        connection = Connection(client.detach())
    with connection, contextlib.suppress(EOFError, OSError):
        connection.send_bytes(rest)
        answer: Output | None = pickle.loads(connection.recv_bytes())  # noqa: S301 - from our own copy
        return answer
    return None


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns that the copy lacks our threads, which only watch; the copy calls nothing but NVRTC.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _stopped(process: int) -> bool:
    """Wait until a template blocks at its FIFO; return False if it ends before."""
    stat = Path(f"/proc/{process}/stat")
    while True:
        state = stat.read_bytes().rpartition(b")")[2].split()[0]
        if state in (b"S", b"Z"):
            return state == b"S"
        time.sleep(_POLL)


def _memory(process: int) -> int:
    _, resident, of_files, *_ = map(int, Path(f"/proc/{process}/statm").read_bytes().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def _become_template(listener: socket.socket, source: Source, program: Program, step: Step) -> NoReturn:
    """In a fork, compile up to the program's last line, and from there in copies."""
    status = 1
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.closerange(3, listener.fileno())
        os.closerange(listener.fileno() + 1, 1 << 16)
        _block_rest()
        clients: list[Connection] = []

        def handler(_: int) -> None:
            # NVRTC blocks in a system call, which restarts when this returns, which happens only in copies.
            try:
                if len(list(Path("/proc/self/task").iterdir())) == 1:  # one with threads cannot be forked safely
                    clients.append(_copy_for_each(listener, libc))
            finally:
                if not clients:  # it must not continue without the source
                    os._exit(1)

        keep = _Handler(handler)
        libc.signal.argtypes = [ctypes.c_int, _Handler]
        libc.signal(signal.SIGUSR1, keep)  # Python's own handlers would wait until the compiler returns
        answer: Output | None = None
        with contextlib.suppress(CompileError):
            answer = nvrtc.run_program(program, source.headers, step)
        if clients:
            clients[0].send_bytes(pickle.dumps(answer))
            status = 0
    finally:
        os._exit(status)


def _block_rest() -> None:
    """Make opening :data:`~jitlto.compile.nvrtc_program.REST` block, because its FIFO never gets a writer."""
    with temporary_directory("jitlto-rest-") as directory:
        path = Path(directory) / "rest"
        os.mkfifo(path)
        fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.dup2(fifo, _DESCRIPTOR)
    os.close(fifo)


def _copy_for_each(listener: socket.socket, libc: ctypes.CDLL) -> Connection:
    """Fork for each client. Returns in the copies, where the rest of the source can be opened.

    One process forks for few clients at a time, so with many processors several do, all copies of the template.
    """
    template = os.getpid()
    for _ in range(len(os.sched_getaffinity(0)) // _PROCESSORS_OF_ONE - 1):
        if _fork() == 0:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != template:  # it ended in between
                os._exit(1)
            break
    while True:
        client, _ = listener.accept()
        if _fork() == 0:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            listener.close()
            connection = Connection(client.detach())
            rest = os.memfd_create("rest")
            with open(rest, "wb", closefd=False) as file:
                file.write(connection.recv_bytes())
            os.dup2(rest, _DESCRIPTOR)
            return connection
        client.close()
        with contextlib.suppress(ChildProcessError):  # so that who waits for this process is told their time too
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
