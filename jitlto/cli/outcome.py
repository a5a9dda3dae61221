"""How commands end that link much and say whether all of it holds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click


def conclude(run: Callable[[], bool]) -> None:
    """Run a command's work; exit with 1 if it returns False, and with 130 at once if it is interrupted."""
    try:
        holds = run()
    except KeyboardInterrupt:
        # A link that runs cannot be stopped, and leaving in order would wait for it.
        click.echo("interrupted", err=True)
        sys.stdout.flush()
        os._exit(130)
    if not holds:
        raise SystemExit(1)
