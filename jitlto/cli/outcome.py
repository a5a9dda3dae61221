"""How commands end: what they say of their work, and what a signal that asks them to end leads to."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

_asked: list[int] = []  # the signals that have asked this process to end, but for an interrupt
_status: list[int] = []  # with which an interrupted command ends


def end_in_order() -> None:
    """Have SIGTERM and SIGHUP clean up as an interrupt does, but where somebody has decided otherwise, as nohup."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    atexit.register(_leave)  # the first to be registered is the last to run


def _end(number: int, _: FrameType | None) -> None:
    _asked.append(number)
    if len(_asked) == 1:  # a second one, as timeout(1) sends, must not stop the cleaning up
        raise KeyboardInterrupt


def interrupted() -> int:
    """Say what has ended the command; returns its exit status, 128 and the signal's number."""
    number = signal.Signals(_asked[0]) if _asked else signal.SIGINT
    click.echo("interrupted" if number is signal.SIGINT else f"ended by {number.name}", err=True)
    _status.append(128 + number)
    return 128 + number


def _leave() -> None:
    """End with the status of an interrupt: an interpreter that was in an ``exec`` then kills itself by SIGINT instead.

    It notes the interrupt and forgets it no more (``run_eval_code_obj``, Python/pythonrun.c), and dataclasses are made
    by ``exec``.
    """
    if _status:
        _exit(_status[0])


def _exit(status: int) -> NoReturn:
    """End at once, with all that was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def conclude(run: Callable[[], bool]) -> None:
    """Run a command's work; exit with 1 if it returns False, and at once if it is interrupted."""
    try:
        holds = run()
    except KeyboardInterrupt:
        # A link that runs cannot be stopped, and leaving in order would wait for it.
        status = interrupted()
        # Of what would be done at exit, one thing is not done by the system too: workers' directories.
        if (workers := sys.modules.get("jitlto.build.execution.workers")) is not None:
            workers.close_local()
        _exit(status)
    if not holds:
        raise SystemExit(1)
