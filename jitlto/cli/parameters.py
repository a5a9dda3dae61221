"""Parameters that commands share: paths, targets, ``NAME=VALUE``.

An unreadable file is reported where it is read, as a failure (status 1) and not as wrong usage (status 2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from jitlto.base.errors import JitltoError
from jitlto.base.files import SUFFIX, check_path
from jitlto.base.versions import Architecture

if TYPE_CHECKING:
    from jitlto.build.shards import Shard

F = TypeVar("F", bound=Callable[..., Any])


class PathType(click.Path):
    """A path that a file can have."""

    def __init__(self, **how: Any) -> None:
        super().__init__(readable=False, path_type=Path, **how)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if "://" in os.fsdecode(value) and not os.path.lexists(value):
            self.fail(f"{os.fsdecode(value)} is not a path: fetch it with `jitlto pull` first", param, ctx)
        try:
            check_path(value)
        except OSError as error:
            self.fail(f"{error.strerror}: {value!r}", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


#: A file, a directory, or a name.
PATH = PathType()
#: A file, to be read or written.
FILE = PathType(dir_okay=False)
#: A directory to write to.
DIRECTORY = PathType(file_okay=False)


class OutputFile(PathType):
    """A file to write whose name should end with ``suffix``; warns if it does not."""

    def __init__(self, suffix: str) -> None:
        super().__init__(dir_okay=False)
        self._suffix = suffix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if path.suffix.lower() != self._suffix:
            click.echo(f"warning: {path}: the name does not end with {self._suffix}", err=True)
        return path


#: A fragment database to write; jitlto finds databases by this suffix.
DATABASE_FILE = OutputFile(SUFFIX)
#: An HTML page to write.
PAGE_FILE = OutputFile(".html")


class Target(click.ParamType):  # type: ignore[type-arg]  # generic only in recent versions of click
    """An architecture to link for, e.g. ``sm_90``. Any other value is wrong usage (status 2) in every command.

    Args:
        accept: ``linkable``: the installed nvJitLink links for it. ``reachable``: or makes PTX that the driver of a
            newer device compiles. ``any``: every well-formed architecture.
    """

    name = "arch"

    def __init__(self, accept: Literal["linkable", "reachable", "any"] = "linkable") -> None:
        self._accept = accept

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert one architecture.

        Raises:
            click.BadParameter: If it is invalid or not acceptable.
            ToolchainError: If nvJitLink is not installed.
        """
        try:
            target = Architecture.parse(value)
        except JitltoError as error:
            self.fail(f"{error.what}; {error.hint}", param, ctx)
        if self._accept == "any":
            return target
        from jitlto.cuda import nvjitlink  # loads msgspec, 10 ms, which other commands need not wait for
        from jitlto.cuda.compatibility import can_link_for, jit_base, linkable_architectures

        linker = nvjitlink.version()
        is_reachable = self._accept == "reachable" and jit_base(target, linker, requested=True) is not None
        if not can_link_for(linker, target) and not is_reachable:
            known = ", ".join(f"sm_{number}" for number in linkable_architectures(linker))
            self.fail(f"nvJitLink {linker} does not link for {target.sm}; it links for {known}", param, ctx)
        return target


class TargetList(Target):
    """Architectures separated by commas, as a list."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [super(TargetList, self).convert(text, param, ctx) for text in value.split(",")]


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
allow_incomplete_option = click.option(
    "--allow-incomplete", is_flag=True, help="Write the database although kernels lack something, with warnings."
)


def jobs_option(what: str) -> Callable[[F], F]:
    """Return the option ``--jobs`` of a command that runs several ``what`` (e.g. "links") in parallel."""
    return click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        help=f"Number of parallel {what} [default: limited by cores and memory].",
    )


def shard_option(text: str) -> Callable[[F], F]:
    """Return the option ``--shard`` of a command that several jobs share, with its help."""
    return click.option("--shard", metavar="I/N", callback=_parse_shard, help=text)


def _parse_shard(_: click.Context, __: click.Parameter, value: str | None) -> Shard | None:
    from jitlto.build.shards import Shard  # loads msgspec, 10 ms, which most commands need not wait for

    try:
        return None if value is None else Shard.parse(value)
    except JitltoError as error:
        raise click.BadParameter(str(error)) from error


def targets_option(flag: str, what: str, target: TargetList) -> Callable[[F], F]:
    """Return a repeatable option for ``archs``: a list of distinct targets, in the order given."""
    return click.option(
        flag,
        "archs",
        metavar="ARCH[,ARCH]...",
        type=target,
        multiple=True,
        callback=lambda _, __, lists: list(dict.fromkeys(chain.from_iterable(lists))),
        help=f"{what}, e.g. sm_90. Repeatable.",
    )


def parse_pairs(settings: Iterable[str]) -> list[tuple[str, str]]:
    """Parse ``NAME=VALUE`` arguments; a name may occur several times.

    Raises:
        click.UsageError: If one is not ``NAME=VALUE``.
    """
    pairs = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"invalid setting {setting!r}: write NAME=VALUE")
        pairs.append((name, value))
    return pairs


def parse_configuration(settings: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` arguments of different names.

    Raises:
        click.UsageError: If one is not ``NAME=VALUE``, or a name is given twice.
    """
    configuration: dict[str, str] = {}
    for name, value in parse_pairs(settings):
        if name in configuration:
            raise click.UsageError(f"{name} is given twice")
        configuration[name] = value
    return configuration
