"""The command line: one module a command group, each imported only when its command runs."""

import contextlib
import errno
import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import click

from jitlto.base.errors import JitltoError
from jitlto.base.log import LinkWarning
from jitlto.cli.ending import SHOWN, end_interrupted, handle_signals, print_error, print_warning

# command → the module with a click command in a variable of the same name, but import_; what it does
_COMMANDS = {
    "new": ("jitlto.cli.new", "Write a small package with a kernel family."),
    "expand": ("jitlto.cli.expand", "Print the combinations of a matrix, or of a family's."),
    "render": ("jitlto.cli.build", "Render the templates of a family to .cu files."),
    "build": ("jitlto.cli.build", "Compile families into a fragment database."),
    "import": ("jitlto.cli.new", "Write the declarations of another build system's kernels."),
    "merge": ("jitlto.cli.build", "Merge the parts of a build into one database."),
    "ls": ("jitlto.cli.database", "Show what a database holds: groups, values, kernels."),
    "show": ("jitlto.cli.database", "Show one fragment: symbols, signature, images."),
    "verify": ("jitlto.cli.verify", "Check databases and packs for damage, and their signatures."),
    "check": ("jitlto.cli.check", "Prove that every kernel of a database plans and links."),
    "report": ("jitlto.cli.report", "Write an HTML page about a database."),
    "plan": ("jitlto.cli.plan", "Plan and link one kernel, and inspect it."),
    "warm": ("jitlto.cli.warm", "Link kernels ahead, so that programs find them."),
    "wisdom": ("jitlto.cli.wisdom", "Show and merge what was measured to be the fastest."),
    "cache": ("jitlto.cli.cache", "Inspect and prune the caches of kernels and of builds."),
    "push": ("jitlto.cli.store", "Store databases and other files in a shared store."),
    "pull": ("jitlto.cli.store", "Fetch a file from a shared store, by its SHA-256."),
    "store": ("jitlto.cli.store", "Inspect, prune and verify a shared store."),
    "doctor": ("jitlto.cli.doctor", "Show what is installed, what is missing, how to get it."),
    "demo": ("jitlto.cli.demo", "Build, link and, with a GPU, run an example family."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name.replace("import", "import_")
        )
        handle_signals()  # from here on: an interrupted import would be a traceback
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # for which click would print an empty line too
            end_interrupted()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # Click would shorten each command's own help, and import all commands for that.
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jitlto", message="%(prog)s %(version)s")
def cli() -> None:
    """Kernel families for NVIDIA GPUs: build fragments, plan, link, launch.

    \b
    Start here:
      jitlto demo      build, link and, with a GPU, run an example family
      jitlto doctor    what is installed, what is missing, how to get it

    Wherever a command takes DB, that is the file of a database, FAMILY one on JITLTO_DATABASE_PATH, of an installed
    package or built here, and DIR the directory of a family that was built here.
    """


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 failure, 2 wrong usage, 128 + N ended by signal N."""
    for number in (0, 1, 2):  # or the next file opened would be read or written as if it were a stream that is closed
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    # Characters that the encoding lacks (a tick in latin-1, an undecodable path in UTF-8) are escaped, as on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        status = run(sys.argv[1:])
        gc.freeze()  # or the interpreter would look for garbage in all that a build has made, before it ends
        sys.exit(status)
    except OSError as error:
        with contextlib.suppress(OSError):  # standard error may be full too
            print_error(f"{error.filename or 'standard output'}: {error.strerror}")
        os._exit(1)  # what is left in the buffers cannot be written either


def run(arguments: Sequence[str]) -> int:
    """Run one command and print its errors; returns the exit status, which a command that fails returns.

    Raises:
        OSError: If standard output cannot be written.
    """
    how: dict[str, Any] = {"color": False if os.environ.get("NO_COLOR") else None}
    with click.Context(cli, **how):  # of errors too, which are printed when the command's own has ended
        try:
            with _print_warnings():
                return cli.main(arguments, prog_name="jitlto", standalone_mode=False, **how) or 0
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.Abort:
            end_interrupted()
        except JitltoError as error:
            print_error(error)
            asked = {"--json", "--github"}.intersection(arguments)
            if asked and arguments[0] != "expand":  # which may have begun to print its array
                output = importlib.import_module("jitlto.cli.output")
                output.print_annotations(error.diagnostics if "--github" in asked else ())
                output.print_result({"diagnostics": error.diagnostics}, (), as_json="--json" in asked)
            return 1


@contextlib.contextmanager
def _print_warnings() -> Iterator[None]:
    """Print at the end what links and others warned of, each text once."""
    said: dict[str, dict[str, None]] = {}  # text → the kernels
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LinkWarning)
        try:
            yield
        finally:
            for each in (entry.message for entry in caught):
                text, kernel = (each.text, each.kernel) if isinstance(each, LinkWarning) else (str(each), "")
                said.setdefault(text, {})[kernel] = None
            for text, (first, *others) in list(said.items())[:SHOWN]:
                more = f" (and {len(others)} more)" if others else ""
                print_warning(f"{first}{more}: {text}" if first else text)
            if len(said) > SHOWN:
                click.echo(f"  and {len(said) - SHOWN} more such warnings", err=True)
