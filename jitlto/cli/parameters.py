"""Parameters that commands share: paths, sizes, targets, ``NAME=VALUE``.

An unreadable file is reported where it is read, as a failure (status 1) and not as wrong usage (status 2).
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from jitlto.base import config
from jitlto.base.errors import JitltoError, ToolchainError
from jitlto.base.files import check_path
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import check_target

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class _Path(click.Path):
    """A path that a file can have. Whether it can be read or written is found by who does it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if "://" in os.fsdecode(value) and not os.path.lexists(value):
            self.fail(f"{os.fsdecode(value)} is not a path: fetch it with `jitlto pull` first", param, ctx)
        try:
            check_path(value)
        except OSError as error:
            self.fail(f"{error.strerror}: {value!r}", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


PATH = _Path(readable=False)


def as_callback(parse: Callable[[Any], T]) -> Callable[[click.Context, click.Parameter, Any], T | None]:
    """Make a callback of a function that parses what is given: what it refuses is wrong usage (status 2)."""

    def callback(_: click.Context, __: click.Parameter, value: Any) -> T | None:
        try:
            return None if value is None else parse(value)
        except ToolchainError:
            raise
        except JitltoError as error:
            raise click.BadParameter(f"{error.what}; {error.hint}") from error

    return callback


#: The callback of an option ``--size``: a number of bytes, such as 500M.
parse_size = as_callback(lambda text: config.parse_size(text.removesuffix("B"), "--size"))


def parse_target(text: str) -> Architecture:
    """Return an architecture that nvJitLink links for.

    Raises:
        JitltoError: If it is invalid or not acceptable.
        ToolchainError: If nvJitLink is not installed.
    """
    linker, target = nvjitlink.version(), Architecture.parse(text)
    check_target(target, linker)
    return target


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
github_option = click.option(
    "--github", "as_github", is_flag=True, help="Print what was found as annotations of a GitHub workflow."
)
allow_incomplete_option = click.option(
    "--allow-incomplete", is_flag=True, help="Write the database although kernels lack something, with warnings."
)


def jobs_option(what: str) -> Callable[[F], F]:
    """Return the option ``--jobs`` of a command that runs several ``what`` (e.g. "links") in parallel."""
    limits = f"Number of parallel {what} [default: limited by cores and memory]."
    return click.option("-j", "--jobs", type=click.IntRange(min=1), help=limits)


def targets_option(flag: str, what: str) -> Callable[[F], F]:
    """Return a repeatable option for ``archs``: a list of distinct targets, in the order given."""
    parse = as_callback(
        lambda lists: list(dict.fromkeys(map(parse_target, ",".join(lists).split(",") if lists else ())))
    )
    help_text = f"{what}, e.g. sm_90. Repeatable."
    return click.option(flag, "archs", metavar="ARCH[,ARCH]...", multiple=True, callback=parse, help=help_text)


def parse_pairs(settings: Iterable[str]) -> list[tuple[str, str]]:
    """Parse ``NAME=VALUE`` arguments; a name may occur several times.

    Raises:
        click.UsageError: If one is not ``NAME=VALUE``.
    """
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise click.UsageError(f"invalid setting {name!r}: write NAME=VALUE")
    return [(name, value) for name, _, value in pairs]
