"""How a command ends: an error is one message, a signal leaves nothing behind, and the exit status tells which."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from types import FrameType
from typing import NoReturn

import click

from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import JitltoError

#: How many of several alike are shown.
SHOWN = 5
_IN_FULL = 10
_received: list[tuple[int, float]] = []  # signals that ended this process, and when


def handle_signals() -> None:
    """Have signals that end the process at once clean up as an interrupt does.

    Others that are handled or ignored stay so, as under nohup.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        handler = signal.getsignal(number)
        if handler is signal.SIG_DFL or getattr(handler, "__name__", "") == "end_at_once":  # of jitlto.__main__
            signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> None:
    now = time.monotonic()
    # A second one at once, as timeout(1) sends, must not stop the clean-up.
    if not _received or now - _received[-1][1] > 1:
        _received.append((number, now))
        raise KeyboardInterrupt


def end_interrupted() -> NoReturn:
    """Say which signal ended the command, and exit at once: a running link, which cannot be stopped, is not awaited."""
    number = signal.Signals(_received[0][0] if _received else signal.SIGINT)
    click.echo(f"ended by {number.name}", err=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(128 + number)


def print_error(error: JitltoError | str) -> None:
    """Print an error to standard error; of several, each cause, and last what they are together."""
    if isinstance(error, JitltoError):
        print_diagnostics(error.causes)
        error = str(error.diagnostic)
    click.echo(click.style("error: ", fg="red") + error, err=True)


def print_diagnostics(found: Iterable[Diagnostic]) -> None:
    """Print what was found to standard error, the first few in full."""
    colours = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
    for number, each in enumerate(found):
        text = str(each) if number < _IN_FULL else str(each).partition("\n")[0]
        click.echo(click.style(f"{each.severity}: ", fg=colours[each.severity]) + text, err=True)


def print_warning(message: str) -> None:
    """Print a warning to standard error."""
    click.echo(click.style("warning: ", fg="yellow") + message, err=True)
