"""Parameters that commands share: paths, sizes, targets, ``NAME=VALUE``.

An unreadable file is reported where it is read, as a failure (status 1) and not as wrong usage (status 2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.files import SUFFIX, check_path
from jitlto.base.versions import Architecture
from jitlto.cli.ending import print_warning
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_link_for, jit_base, linkable_architectures

if TYPE_CHECKING:
    from jitlto.build.shards import Shard

F = TypeVar("F", bound=Callable[..., Any])


class PathType(click.Path):
    """A path that a file can have; with ``is_database`` that of a database to write, whose name jitlto should find."""

    def __init__(self, *, is_database: bool = False, **how: Any) -> None:
        super().__init__(readable=False, path_type=Path, **how)
        self._is_database = is_database

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if "://" in os.fsdecode(value) and not os.path.lexists(value):
            self.fail(f"{os.fsdecode(value)} is not a path: fetch it with `jitlto pull` first", param, ctx)
        try:
            check_path(value)
        except OSError as error:
            self.fail(f"{error.strerror}: {value!r}", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self._is_database and path.suffix.lower() != SUFFIX:
            print_warning(f"{path}: the name does not end with {SUFFIX}")
        return path


#: A file, a directory, or a name.
PATH = PathType()
#: A file, to be read or written.
FILE = PathType(dir_okay=False)
#: A directory to write to.
DIRECTORY = PathType(file_okay=False)
#: A fragment database to write.
DATABASE_FILE = PathType(dir_okay=False, is_database=True)


def parse_size(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a number of bytes, such as 500M, as a callback of an option."""
    try:
        return None if value is None else config.parse_size(value.removesuffix("B"), parameter.opts[0])
    except JitltoError as error:
        raise click.BadParameter(f"{error.what}; {error.hint}") from error


class Target(click.ParamType):  # type: ignore[type-arg]  # generic only in recent versions of click
    """An architecture that nvJitLink links for; any other is wrong usage (status 2) in every command.

    Args:
        reachable: Whether to accept one for which it makes PTX that the driver compiles, too.
        several: Whether they are a list, separated by commas.
    """

    name = "arch"

    def __init__(self, *, reachable: bool = False, several: bool = False) -> None:
        self._reachable, self._several = reachable, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert one architecture, or several.

        Raises:
            click.BadParameter: If one is invalid or not acceptable.
            ToolchainError: If nvJitLink is not installed.
        """
        found = []
        for text in value.split(",") if self._several else [value]:
            try:
                target = Architecture.parse(text)
            except JitltoError as error:
                self.fail(f"{error.what}; {error.hint}", param, ctx)
            linker = nvjitlink.version()
            is_reachable = self._reachable and jit_base(target, linker, requested=True) is not None
            if not can_link_for(linker, target) and not is_reachable:
                known = ", ".join(f"sm_{number}" for number in linkable_architectures(linker))
                self.fail(f"nvJitLink {linker} does not link for {target.sm}; it links for {known}", param, ctx)
            found.append(target)
        return found if self._several else found[0]


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
allow_incomplete_option = click.option(
    "--allow-incomplete", is_flag=True, help="Write the database although kernels lack something, with warnings."
)


def jobs_option(what: str) -> Callable[[F], F]:
    """Return the option ``--jobs`` of a command that runs several ``what`` (e.g. "links") in parallel."""
    limits = f"Number of parallel {what} [default: limited by cores and memory]."
    return click.option("-j", "--jobs", type=click.IntRange(min=1), help=limits)


def shard_option(text: str) -> Callable[[F], F]:
    """Return the option ``--shard`` of a command that several jobs share, with its help."""
    return click.option("--shard", metavar="I/N", callback=_parse_shard, help=text)


def _parse_shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    from jitlto.build.shards import Shard  # imported late: takes 35 ms, which most commands need not wait for

    try:
        return None if value is None else Shard.parse(value)
    except JitltoError as error:
        raise click.BadParameter(str(error)) from error


def targets_option(flag: str, what: str) -> Callable[[F], F]:
    """Return a repeatable option for ``archs``: a list of distinct targets, in the order given."""
    return click.option(
        flag, "archs", metavar="ARCH[,ARCH]...", type=Target(several=True), multiple=True,
        callback=lambda _, __, lists: list(dict.fromkeys(chain.from_iterable(lists))),
        help=f"{what}, e.g. sm_90. Repeatable.",
    )  # fmt: skip


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
