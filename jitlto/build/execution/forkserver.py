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
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from jitlto.base.files import remove_directory

_COMMAND = "import sys; sys.path[:] = {path!r}; from {module} import serve, work; work(*serve(*sys.argv[1:]))"
_PATIENCE = 10.0  # seconds that a process that is to end may take

#: In a worker, a directory that the workers of one executor share; elsewhere None.
shared_directory: Path | None = None


class ForkServer:
    """The process, as seen from the program that started it; thread-safe.

    Args:
        shared: A directory for all that it forks, which it removes if the program is killed.
        environment: Variables that it has beside ours.
    """

    def __init__(self, shared: str, environment: Mapping[str, str]) -> None:
        path = [str(Path(entry).absolute()) for entry in sys.path]
        command = _COMMAND.format(path=path, module=__name__)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._pipe = Connection(os.dup(self._socket.fileno()))
        with theirs:
            # NVRTC writes its working directory into LTO-IR, so it is the same in every build. Output of libraries goes
            # to standard error. The process group is new, so that an interrupt is for the program alone.
            error = _standard_error()
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, str(theirs.fileno()), str(os.getpid()), shared],
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

    def fork(self) -> tuple[int, Connection]:
        """Fork a worker, in a process group of its own; return its process id and our end of its socket.

        Raises:
            EOFError: If the server has ended.
            OSError: If there can be no further process.
        """
        ours, theirs = Pipe()
        with theirs:
            process = self._ask("fork", descriptor=theirs.fileno())
        if isinstance(process, OSError):
            ours.close()
            raise process
        return process, ours

    def status(self, process: int, *, wait: bool) -> int | None:
        """Return the exit status of a worker, negative for a signal; None while it runs.

        Args:
            process: Its id.
            wait: Wait for its end, and kill it after ten seconds.
        """
        try:
            status: int | None = self._ask("status", process, wait)
        except (EOFError, OSError):  # with the server all that it forked has ended
            return self._process.wait()
        return status

    def close(self) -> None:
        """End the process, and at once all that it has forked."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
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


# --- in the process that forks workers


def serve(descriptor: str, program: str, shared: str) -> tuple[int, int]:
    """Answer a program until it ends; then end all forks, and remove what it and they left behind, and exit.

    Returns:
        In a fork, the arguments of :func:`work`.
    """
    global shared_directory
    shared_directory = Path(shared)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles interrupts; compilers inherit this
    os.set_inheritable(int(descriptor), False)
    pipe, server = Connection(int(descriptor)), os.getpid()
    ended: dict[int, int | None] = {}  # the statuses of forks, None while they run
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            while not pipe.poll(0.5):
                if os.getppid() != int(program):  # a fork of the program may hold the other side of the socket open
                    raise EOFError
            action, *arguments = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from the program that started us
            if action == "preload":
                with contextlib.suppress(Exception):  # whoever needs it will say what is wrong
                    arguments[0](*arguments[1])
                gc.freeze()  # its pages stay shared
            elif action == "fork":
                theirs = recv_handle(pipe)
                try:
                    process = os.fork()
                except OSError as error:
                    pipe.send_bytes(pickle.dumps(error))
                else:
                    if process == 0:
                        return theirs, server
                    with contextlib.suppress(OSError):  # as the process itself does; whoever is first
                        os.setpgid(process, process)
                    ended[process] = None
                    pipe.send_bytes(pickle.dumps(process))
                os.close(theirs)
            else:
                process, wait = arguments
                if ended[process] is None:
                    ended[process] = _status(process, wait=wait)
                pipe.send_bytes(pickle.dumps(ended[process]))
    for process in (each for each, status in ended.items() if status is None):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
    remove_directory(shared)
    sys.exit()


def _status(process: int, *, wait: bool) -> int | None:
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


# --- in a worker


def work(descriptor: int, server: int) -> NoReturn:
    """Answer calls until the program or the process that forked us ends."""
    try:
        os.setpgid(0, 0)  # compilers that it starts end with it
        os.set_inheritable(descriptor, False)
        calls: SimpleQueue[bytes] = SimpleQueue()
        pipe = Connection(descriptor)
        threading.Thread(target=_read, args=(pipe, calls, server), daemon=True).start()
        while True:
            call = calls.get()
            try:
                fn, args, kwargs = pickle.loads(call)  # noqa: S301 - from the program that started us
                succeeded, value = True, fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                succeeded, value = False, error
            pipe.send_bytes(_encode(succeeded, value))
    finally:
        os._exit(1)


def _read(pipe: Connection, calls: SimpleQueue[bytes], server: int) -> None:
    # Runs during compiles too, which release the interpreter's lock. The server's process id is needed because a fork
    # of the program may hold the other end of the socket open.
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == server:
            if pipe.poll(0.5):
                calls.put(pipe.recv_bytes())
    os.killpg(0, signal.SIGKILL)


def _encode(succeeded: bool, value: object) -> bytes:
    try:
        return pickle.dumps((succeeded, value))
    except Exception as error:  # noqa: BLE001 - as above
        return pickle.dumps((False, TypeError(f"{value!r} cannot be pickled: {error}")))
