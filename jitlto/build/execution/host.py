"""The process that forks workers, hands calls to them and tells how they end.

It is a fresh interpreter with one thread, which has loaded the compilers: a worker starts in milliseconds, shares their
memory, and does not import the program's ``__main__`` again. It ends with the program, and its workers end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

from jitlto.base.files import remove_directory

_PR_SET_PDEATHSIG = 1

#: In a worker, a directory that the workers of one executor share; elsewhere None.
shared_directory: Path | None = None


def serve(descriptor: str, program: str, shared: str, most: str) -> tuple[Connection, int]:
    """Do what a program asks until it ends; then end all workers, remove what they left behind, and exit.

    Args:
        descriptor: Of the socket to the program, which sends ``(number, call)``, and is sent ``(number, answer)``: what
            the worker has sent, or its exit status. A number of None is for this process itself.
        program: Its process id.
        shared: The directory to remove.
        most: The maximum number of workers.

    Returns:
        In a worker, the arguments of :func:`work`.
    """
    global shared_directory
    shared_directory = Path(shared)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles interrupts; compilers inherit this
    os.set_inheritable(int(descriptor), False)
    pipe, host = Connection(int(descriptor)), os.getpid()
    calls: dict[int, bytes] = {}  # by number, that wait
    workers: dict[Connection, int] = {}  # with their processes
    busy: dict[Connection, int] = {}  # with the numbers of their calls
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            ready = wait([pipe, *workers], 0.5)
            if os.getppid() != int(program):  # a fork of the program may hold the other side of the socket open
                break
            if pipe in ready:
                number, call = pipe.recv()
                if number is None:
                    _preload(call)
                elif call is None:  # cancelled
                    calls.pop(number, None)
                else:
                    calls[number] = call
            for worker in [each for each in workers if each in ready]:
                answer: bytes | int
                try:
                    answer = worker.recv_bytes()
                except (EOFError, OSError):
                    answer = _end(workers.pop(worker))
                if worker in busy:
                    pipe.send((busy.pop(worker), answer))
            while calls and (len(busy) < len(workers) or len(workers) < int(most)):
                number = next(iter(calls))
                call = calls.pop(number)
                idle = next((each for each in workers if each not in busy), None)
                if idle is None:
                    idle, theirs = Pipe()
                    try:
                        process = os.fork()
                    except OSError as error:
                        pipe.send((number, pickle.dumps((False, error))))
                        continue
                    if process == 0:
                        for other in (pipe, idle, *workers):
                            other.close()
                        return theirs, host
                    theirs.close()
                    with contextlib.suppress(OSError):  # as the process itself does; whoever is first
                        os.setpgid(process, process)
                    workers[idle] = process
                busy[idle] = number
                with contextlib.suppress(OSError):  # it has ended, and is not known to have
                    idle.send_bytes(call)
    for process in workers.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        _end(process)
    remove_directory(shared)
    sys.exit()


def _preload(call: bytes) -> None:
    with contextlib.suppress(Exception):  # whoever needs it will say what is wrong
        fn, args = pickle.loads(call)  # noqa: S301 - from the program that started us
        fn(*args)
    gc.freeze()  # its pages stay shared


def _end(process: int) -> int:
    """Return the exit status of a worker that ends, negative for a signal; what it has started ends with it."""
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


# --- in a worker


def work(pipe: Connection, host: int) -> NoReturn:
    """Answer calls until the host ends."""
    try:
        os.setpgid(0, 0)  # compilers that it starts end with it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        while os.getppid() == host:
            call = pipe.recv_bytes()
            try:
                fn, args, kwargs = pickle.loads(call)  # noqa: S301 - from the program
                succeeded, value = True, fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                succeeded, value = False, error
            pipe.send_bytes(_encode(succeeded, value))
    finally:
        os._exit(1)


def _encode(succeeded: bool, value: object) -> bytes:
    try:
        return pickle.dumps((succeeded, value))
    except Exception as error:  # noqa: BLE001 - as above
        return pickle.dumps((False, TypeError(f"{value!r} cannot be pickled: {error}")))
