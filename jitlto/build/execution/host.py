"""The process that forks workers, and the workers.

It is a fresh interpreter with one thread, which has loaded the compilers: a worker starts in milliseconds, shares their
memory, and does not import the program's ``__main__`` again. It ends with the program, and its workers end with it.
"""

import contextlib
import ctypes
import gc
import os
import pickle
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: The size in bytes of the largest request and answer.
LARGEST = 1 << 16

#: In a worker, a directory that the workers of one executor share; elsewhere None.
shared_directory: Path | None = None


def serve(descriptor: str, program: str, shared: str) -> tuple[Connection, int]:
    """Do what a program asks until it ends; then end all workers, remove what they left behind, and exit.

    Args:
        descriptor: Of the socket to the program. It sends None for a new worker, whose process and connection are the
            answer; the process of a worker that ends, for its exit status; or a call to make here.
        program: Its process id.
        shared: The directory to remove.

    Returns:
        In a worker, the arguments of :func:`work`.
    """
    global shared_directory
    shared_directory = Path(shared)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles interrupts; compilers inherit this
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # to wait for what workers leave, whose time then counts
    control, host = socket.socket(fileno=int(descriptor)), os.getpid()
    control.set_inheritable(False)
    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while os.getppid() == int(program):  # a fork of the program may hold the other side of the socket open
            if not select.select([control], [], [], 0.5)[0]:
                continue
            if not (data := control.recv(LARGEST)):
                break
            request: int | tuple[Callable[..., object], Any] | None = pickle.loads(data)  # noqa: S301 - our program's
            if isinstance(request, int):
                workers.remove(request)
                control.send(pickle.dumps(_end(request)))
            elif request is not None:
                with contextlib.suppress(Exception):  # whoever needs it will say what is wrong
                    request[0](*request[1])
                gc.freeze()  # its pages stay shared
            else:
                ours, theirs = socket.socketpair()
                with theirs:
                    if (process := os.fork()) == 0:
                        control.close()
                        return Connection(ours.detach()), host
                    ours.close()
                    workers.add(process)
                    with contextlib.suppress(OSError):  # as the process itself does; whoever is first
                        os.setpgid(process, process)
                    socket.send_fds(control, [pickle.dumps(process)], [theirs.fileno()])
    for process in workers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        _end(process)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    shutil.rmtree(shared, ignore_errors=True)
    sys.exit()


def _end(process: int) -> int:
    """Return the exit status of a worker that ends, negative for a signal; what it has started ends with it."""
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def work(pipe: Connection, host: int) -> NoReturn:
    """In a worker: answer calls until the program or the host ends."""
    try:
        os.setpgid(0, 0)  # compilers that it starts end with it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == host:
            call = pipe.recv_bytes()
            try:
                fn, args, kwargs = pickle.loads(call)  # noqa: S301 - from the program
                answer = pickle.dumps((True, fn(*args, **kwargs)))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                answer = pickle.dumps((False, error))
            pipe.send_bytes(answer)
    finally:
        os._exit(1)
