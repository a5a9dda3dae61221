"""Parameters that commands share: paths, targets, ``NAME=VALUE``.

An unreadable file is reported where it is read, as a failure (status 1) and not as wrong usage (status 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from jitlto.errors import JitltoError
from jitlto.model.versions import Architecture

F = TypeVar("F", bound=Callable[..., Any])

#: A file, a directory, or a name.
PATH = click.Path(readable=False, path_type=Path)
#: A file, to be read or written.
FILE = click.Path(dir_okay=False, readable=False, path_type=Path)
#: A directory to write to.
DIRECTORY = click.Path(file_okay=False, path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def jobs_option(what: str) -> Callable[[F], F]:
    """Return the option ``--jobs`` of a command that runs several ``what`` (e.g. "links") in parallel."""
    return click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        help=f"Number of parallel {what} [default: limited by cores and memory].",
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


def parse_targets(texts: Iterable[str], option: str) -> list[Architecture]:
    """Parse architectures such as ``sm_90``, each once, in the order given.

    Raises:
        click.UsageError: If one is invalid, or the nvJitLink at hand does not link for it.
    """
    from jitlto.cuda import toolkit  # loads cuda-bindings, which usage errors need not wait for
    from jitlto.model.compatibility import can_link_for, linkable_architectures  # 10 ms, with msgspec

    targets = []
    for text in texts:
        try:
            target = Architecture.parse(text)
        except JitltoError as error:
            raise click.UsageError(f"{option}: {error.what}; {error.hint}") from None
        linker = toolkit.nvjitlink_version()
        if not can_link_for(linker, target):
            known = ", ".join(f"sm_{number}" for number in linkable_architectures(linker))
            raise click.UsageError(f"nvJitLink {linker} does not link for {target.sm}; it links for {known}")
        targets.append(target)
    return list(dict.fromkeys(targets))
