"""A worker, and the process that starts it and waits for its end: a fresh interpreter, and a fork of it.

The worker does not import the program's ``__main__`` again. It ends with the program, and what it has started ends with
it.
"""

import contextlib
import ctypes
import os
import pickle
import shutil
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PATIENCE = 0.5  # seconds in which the end of the program is noticed
_AT_END = 0  # the exit status of a worker whose program ends, which may not have happened yet
#: The exit status that stands for a signal is its number and this, as in shells.
OF_SIGNAL = 128

#: In a worker, a directory that the workers of one executor share; elsewhere None.
shared_directory: Path | None = None


def start(descriptor: str, program: str, shared: str) -> tuple[Connection, int]:
    """Start a worker, and wait until it or the program ends, or the program sends SIGTERM; then end all that is left.

    The exit status is the worker's.

    Args:
        descriptor: Of the worker's side of the connection to the program.
        program: Its process id.
        shared: The directory, which is removed if the program has ended.

    Returns:
        In the worker, the arguments of :func:`work`.
    """
    global shared_directory
    shared_directory, pipe, this = Path(shared), Connection(int(descriptor)), os.getpid()
    awaited = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # to wait for what the worker leaves, whose time then counts
    if (worker := os.fork()) == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        return pipe, this
    pipe.close()
    with contextlib.suppress(OSError):  # as the worker itself does; whoever is first
        os.setpgid(worker, worker)
    while os.getppid() == int(program) and not os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        caught = signal.sigtimedwait(awaited, _PATIENCE)
        if caught and caught.si_signo == signal.SIGTERM:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with contextlib.suppress(ChildProcessError):  # not for a daemon that it has started
        while True:
            os.waitpid(-worker, 0)
    if status == _AT_END or os.getppid() != int(program):
        shutil.rmtree(shared, ignore_errors=True)
    sys.exit(status if status >= 0 else OF_SIGNAL - status)


def work(pipe: Connection, parent: int) -> NoReturn:
    """Answer calls until the program or the parent ends."""
    try:
        os.setpgid(0, 0)  # compilers that it starts end with it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == parent:
            call = pipe.recv_bytes()
            try:
                fn, args, kwargs = pickle.loads(call)  # noqa: S301 - from the program
                answer = pickle.dumps((True, fn(*args, **kwargs)))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                answer = pickle.dumps((False, error))
            pipe.send_bytes(answer)
    except EOFError:
        os._exit(_AT_END)
    finally:
        os._exit(1)
