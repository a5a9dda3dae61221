"""The command line: one module a command group, each imported only when its command runs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

from jitlto.cli.outcome import handle_signals, interrupted, print_error, replace_closed_streams
from jitlto.errors import JitltoError

# command → the module with a click command in a variable of the same name, which must be an identifier
_COMMANDS = {
    "new": "jitlto.cli.new",
    "expand": "jitlto.cli.expand",
    "render": "jitlto.cli.build",
    "build": "jitlto.cli.build",
    "merge": "jitlto.cli.database",
    "ls": "jitlto.cli.database",
    "show": "jitlto.cli.database",
    "verify": "jitlto.cli.database",
    "manifest": "jitlto.cli.database",
    "check": "jitlto.cli.check",
    "report": "jitlto.cli.database",
    "plan": "jitlto.cli.plan",
    "warm": "jitlto.cli.warm",
    "cache": "jitlto.cli.cache",
    "doctor": "jitlto.cli.doctor",
    "demo": "jitlto.cli.demo",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(module), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - a slip in the table above, not a user's error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], _COMMANDS, 1)
        if args[0] not in _COMMANDS and near:
            raise click.UsageError(f"no such command {args[0]!r}; did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jitlto", message="%(prog)s %(version)s")
def cli() -> None:
    """Kernel families for NVIDIA GPUs: build fragments, plan, link, launch.

    \b
    Start here:
      jitlto demo                      build, link and (with a GPU) run the shipped family `search`
      jitlto doctor                    what is installed, what is missing, how to get it
    """


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 failure, 2 wrong usage, 128 + N ended by signal N."""
    replace_closed_streams()
    handle_signals()
    # Characters that the encoding lacks (a tick in latin-1, an undecodable path in UTF-8) are escaped, as on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if sys.__stdout__ is None:  # closed: without this, the next file opened would get its descriptor
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.exit(run(sys.argv[1:]))
    except OSError as error:
        with contextlib.suppress(OSError):  # standard error may be full too
            click.echo(f"error: {error.filename or 'standard output'}: {error.strerror}", err=True)
        os._exit(1)  # what is left in the buffers cannot be written either


def run(arguments: Sequence[str]) -> int:
    """Run one command and print its errors; returns the exit status.

    Raises:
        OSError: If standard output cannot be written.
    """
    try:
        return cli.main(arguments, prog_name="jitlto", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return interrupted()
    except SystemExit as ended:
        return int(ended.code or 0)
    except JitltoError as error:
        print_error(error)
        return 1
