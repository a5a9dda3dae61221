"""The end of a command: its error, its exit status, and clean-up after a signal."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import NoReturn

import click

from jitlto.base.errors import JitltoError

_received: list[int] = []  # signals that ended this process, except interrupts
_status: list[int] = []  # of an interrupted command


def handle_signals() -> None:
    """Have SIGTERM and SIGHUP clean up as an interrupt does, unless they are handled or ignored, as under nohup."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    atexit.register(_leave)  # the first to be registered is the last to run


def take_over_signals(early: Iterable[int]) -> None:
    """Have these signals clean up too: they ended the process at once until now."""
    for number in early:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)


def _end(number: int, _: FrameType | None) -> None:
    _received.append(number)
    # A second one, as timeout(1) sends, must not stop the clean-up. The alarm is for an interrupt that was dropped by C
    # code, as by msgspec's where it looks up a type.
    if len(_received) == 1 or (number == signal.SIGALRM and not _is_ending()):
        signal.signal(signal.SIGALRM, _end)
        signal.alarm(1)
        raise KeyboardInterrupt


def _is_ending() -> bool:
    """Return whether an interrupt is on its way through the program, or has reached its end."""
    error = sys.exception()
    while error is not None and not is_interrupt(error):
        error = error.__context__
    return error is not None or bool(_status)


def replace_closed_streams() -> None:
    """Open the null device in the place of a closed standard input or standard error.

    Else the next file to be opened would get its descriptor, and be read or written as if it were the stream.
    """
    for number, name, mode in ((0, "stdin", "r"), (2, "stderr", "w")):
        if getattr(sys, f"__{name}__") is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.dup2(descriptor, number)
            os.set_inheritable(number, True)
            if descriptor != number:
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace"))  # noqa: PTH123, SIM115


def is_interrupt(error: BaseException) -> bool:
    """Return whether an interrupt raised this error: Python 3.11 wraps what comes in a ``__set_name__``."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def interrupted() -> int:
    """Print which signal ended the command; return the exit status: 128 plus the signal's number."""
    number = signal.Signals(_received[0]) if _received else signal.SIGINT
    click.echo("interrupted" if number is signal.SIGINT else f"ended by {number.name}", err=True)
    _status.append(128 + number)
    return 128 + number


def _leave() -> None:
    """Exit with the status of an interrupt, because an interpreter interrupted in an ``exec`` would end by SIGINT.

    It records such an interrupt and never clears it (``run_eval_code_obj``, Python/pythonrun.c), and dataclasses are
    created by ``exec``.
    """
    if _status:
        _exit(_status[0])


def _exit(status: int) -> NoReturn:
    """Exit at once, after flushing what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def print_error(error: JitltoError) -> None:
    """Print an error to standard error."""
    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo(str(error), err=True)


def conclude(run: Callable[[], bool]) -> None:
    """Run a command's work; exit with 1 if it returns False, and at once if it is interrupted."""
    try:
        holds = run()
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interrupt(error):
            raise
        # A running link cannot be stopped, and a normal exit would wait for it.
        status = interrupted()
        # Of the exit handlers, only this one is needed: it removes the workers' directories.
        if (workers := sys.modules.get("jitlto.build.execution.workers")) is not None:
            workers.close_local()
        _exit(status)
    if not holds:
        raise SystemExit(1)
