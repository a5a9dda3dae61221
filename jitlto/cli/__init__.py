"""The command line: one module a command group, each imported only when its command runs."""

from __future__ import annotations

import importlib
import io
import os
import sys

import click

from jitlto.cli.outcome import end_in_order, interrupted
from jitlto.errors import JitltoError

# command → the module that holds a click command of that name (dashes and keywords spelled with underscores)
_COMMANDS = {
    "new": "jitlto.cli.new",
    "expand": "jitlto.cli.expand",
    "render": "jitlto.cli.build",
    "build": "jitlto.cli.build",
    "merge": "jitlto.cli.merge",
    "ls": "jitlto.cli.database",
    "show": "jitlto.cli.database",
    "verify": "jitlto.cli.database",
    "manifest": "jitlto.cli.manifest",
    "check": "jitlto.cli.check",
    "report": "jitlto.cli.report",
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
    """Run the command line. Exit status: 0 all held, 1 the work failed, 2 usage, 128 + N ended by signal N."""
    end_in_order()
    # What the encoding lacks (a tick in latin-1, an undecodable path in UTF-8) is escaped, as on standard error.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(cli.main(prog_name="jitlto", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(interrupted())
    except OSError as error:
        click.echo(f"error: {error.filename or 'standard output'}: {error.strerror}", err=True)
        os._exit(1)  # whatever is left in the buffers cannot be written either
    except JitltoError as error:
        click.secho("error: ", fg="red", nl=False, err=True)
        click.echo(str(error), err=True)
        sys.exit(1)
