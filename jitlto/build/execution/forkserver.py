"""A process that has loaded the compilers, and forks the workers: each starts in milliseconds and shares its memory.

The fork server of ``multiprocessing`` imports the caller's ``__main__`` again in every process. This one is a fresh
interpreter that receives requests over a socket, has no threads, and ends with the program that started it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import {name}; {name}(*sys.argv[1:])"
_PATIENCE = 10.0  # seconds that a process that closed its socket may take to end


class ForkServer:
    """The process, as seen from the program that started it; thread-safe.

    Args:
        serve: A function of a module that calls :func:`serve_forks` with its arguments: a socket, our process id, and
            ``arguments``.
        arguments: Texts.
        environment: Variables that it has beside ours.
    """

    def __init__(self, serve: Callable[..., object], *arguments: str, environment: Mapping[str, str]) -> None:
        path = [str(Path(entry).absolute()) for entry in sys.path]
        command = _COMMAND.format(path=path, module=serve.__module__, name=serve.__name__)
        self._lock = threading.Lock()
        self._pipe, theirs = Pipe()
        with theirs:
            # NVRTC writes its working directory into LTO-IR, so it is the same in every build. Output of libraries goes
            # to standard error. The process group is new, so that an interrupt is for the program alone.
            error = _standard_error()
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, str(theirs.fileno()), str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=error,
                stderr=error,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=os.environ | dict(environment),
                process_group=0,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def preload(self, fn: Callable[..., object], *args: object) -> None:
        """Call a function there before the next fork, and do not wait for it; its errors are ignored."""
        with self._lock, contextlib.suppress(OSError):
            self._pipe.send_bytes(pickle.dumps(("preload", fn, args)))

    def fork(self, descriptor: int) -> int:
        """Fork a process that serves this socket, in a process group of its own; return its id.

        Raises:
            EOFError: If the server has ended.
            OSError: If there can be no further process.
        """
        answer = self._ask("fork", descriptor=descriptor)
        if isinstance(answer, OSError):
            raise answer
        process: int = answer
        return process

    def poll(self, process: int) -> int | None:
        """Return the exit status of a forked process, negative for a signal; None while it runs.

        A status is told once: then the process id may be that of another process.
        """
        return self._status(process, False)

    def wait(self, process: int) -> int:
        """Wait for the end of a forked process, and kill it after ten seconds; return its status as :meth:`poll`."""
        status = self._status(process, True)
        return self._process.wait() if status is None else status

    def _status(self, process: int, wait: bool) -> int | None:
        try:
            status: int | None = self._ask("status", process, wait)
        except (EOFError, OSError):  # with the server all that it forked has ended
            return self._process.wait()
        return status

    def close(self) -> None:
        """End the process, which has nothing to tidy up; what it forked ends too."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, *request: object, descriptor: int | None = None) -> Any:
        with self._lock:
            self._pipe.send_bytes(pickle.dumps(request))
            if descriptor is not None:
                send_handle(self._pipe, descriptor, None)
            # The socket alone does not show an end: a fork made during the start may hold the other side open.
            while not self._pipe.poll(1):
                if not self.is_alive:
                    raise EOFError
            return pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - from our own process


def _standard_error() -> int:
    """Return the descriptor of standard error, or that of the null device if it is closed."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def serve_forks(serve: Callable[[int, int], object], socket: int, parent: int) -> None:
    """Answer requests until the program ``parent`` ends, and end all forks.

    A fork calls ``serve`` with its socket and our process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles interrupts; compilers inherit this
    os.set_inheritable(socket, False)
    pipe = Connection(socket)
    server = os.getpid()
    forks: set[int] = set()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            while not pipe.poll(0.5):
                if os.getppid() != parent:  # a fork of the program may hold the other side of the socket open
                    raise EOFError
            action, *arguments = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from the program that started us
            if action == "preload":
                with contextlib.suppress(Exception):  # whoever needs it will say what is wrong
                    arguments[0](*arguments[1])
                gc.freeze()  # its pages stay shared
            elif action == "fork":
                descriptor = recv_handle(pipe)
                process = _fork(lambda: serve(descriptor, server), pipe)  # noqa: B023
                if isinstance(process, int):
                    forks.add(process)
                pipe.send_bytes(pickle.dumps(process))
                os.close(descriptor)
            else:
                process, wait = arguments
                status = _status(process, wait)
                if status is not None:
                    forks.discard(process)
                pipe.send_bytes(pickle.dumps(status))
    for process in forks:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _fork(run: Callable[[], object], pipe: Connection) -> int | OSError:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        process = os.fork()
    except OSError as error:
        return error
    if process:
        with contextlib.suppress(OSError):  # as the process itself does; whoever is first
            os.setpgid(process, process)
        return process
    status = 1
    try:
        pipe.close()
        # Compilers that it starts end with it.
        os.setpgid(0, 0)
        run()
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)


def _status(process: int, wait: bool) -> int | None:
    end = time.monotonic() + _PATIENCE
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if not wait:
            return None
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.002)
