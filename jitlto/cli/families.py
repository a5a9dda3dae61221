"""Families and databases as arguments: by path, by name, or as ``PACKAGE:FAMILY`` of an installed package."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from jitlto.base.text import format_bytes
from jitlto.cli.output import print_json
from jitlto.cli.parameters import PATH, Target, parse_configuration

if TYPE_CHECKING:  # not imported at run time, so that usage errors and other commands start fast
    from jitlto.database import FragmentDatabase
    from jitlto.launch.launcher import Launcher
    from jitlto.plan.planner import Planner
    from jitlto.runtime.family import KernelFamily

#: Metavariable of a database.
DATABASE = "DB|[PACKAGE:]FAMILY"
#: Metavariable of a family, and the help of the option for its database.
FAMILY = "[PACKAGE:]FAMILY"
DB_HELP = "The database [default: JITLTO_DATABASE_PATH, then installed packages]."
P = ParamSpec("P")
R = TypeVar("R")
# A family's name, optionally after a distribution's: neither contains a slash, so it is not a path.
_NAMED = re.compile(r"(?:[A-Za-z0-9._-]+:)?[A-Za-z_]\w*", re.ASCII)


def plan_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the arguments that select one plan: family, configuration, database, target, entrypoint and link mode."""
    for option in reversed(
        (
            click.argument("name", metavar=FAMILY),
            click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1),
            click.option("--db", "database", type=PATH, help=DB_HELP),
            click.option(
                "--arch", type=Target("reachable"), help="Target, e.g. sm_90 [default: the current device's]."
            ),
            click.option("--entry", help="The entrypoint's group, if the family has several."),
            click.option("--link-mode", type=click.Choice(["lto", "ptx"]), default="lto", show_default=True),
        )
    ):
        command = option(command)
    return command


def find_family(text: str, database: Path | None) -> KernelFamily:
    """Return a family of a database, or find it by ``[PACKAGE:]FAMILY`` on the search path and in installed packages.

    Raises:
        click.UsageError: If both a database and a package are named.
        RegistryError, DatabaseError: If it is not found or cannot be read.
    """
    from jitlto.runtime.family import family, load

    package, _, name = text.rpartition(":")
    if database is None:
        return family(name, distribution=package or None)
    if package:
        raise click.UsageError(f"--db and the package {package!r} exclude each other")
    return load(name, database)


def find_planner(name: str, database: Path | None, entry: str | None, settings: Iterable[str]) -> Planner[Launcher]:
    """Return a planner for ``NAME=VALUE`` settings, of which ``entry=GROUP`` is the same as the option ``--entry``.

    Raises:
        click.UsageError: If the settings are invalid, or name two entrypoints.
        JitltoError: If the family is not found, or has no such parameter, value or entrypoint.
    """
    configuration = parse_configuration(settings)
    named = configuration.pop("entry", entry)
    if entry not in (None, named):
        raise click.UsageError(f"--entry {entry} and entry={named} exclude each other")
    return find_family(name, database).planner(named, **configuration)


def locate(target: Path) -> tuple[Path, str | None]:
    """Return the path of a database given by path or by ``[PACKAGE:]FAMILY``, and the family if it is named.

    Raises:
        RegistryError, DatabaseError: If nothing holds the family, or its database cannot be read.
    """
    text = str(target)
    if not _NAMED.fullmatch(text) or os.path.isfile(text):  # noqa: PTH113 - Path.is_file raises on a name that is too long
        return target, None
    from jitlto.runtime import session

    package, _, name = text.rpartition(":")
    return session.default.registry.find(name, package or None).location, name


def open_database(target: Path) -> tuple[FragmentDatabase, str | None]:
    """Open the database that :func:`locate` finds. Unlike the registry's, it is not shared: the caller closes it.

    Raises:
        RegistryError, DatabaseError: If it is not found or cannot be read.
    """
    from jitlto.database import FragmentDatabase

    path, family = locate(target)
    return FragmentDatabase(path), family


def print_installed(*, as_json: bool) -> None:
    """List the families of installed packages."""
    from jitlto.runtime import session
    from jitlto.runtime.discovery.installed import installed_families

    listed = installed_families(session.default.registry)
    if as_json:
        print_json({"families": [asdict(each) for each in listed]})
        return
    if not listed:
        click.echo("no installed package has a family", err=True)
    for each in listed:
        columns = [each.family, f"{each.distribution} {each.version}"]
        if each.architectures:
            columns += ["for " + ", ".join(f"compute_{a}" for a in each.architectures), *each.compilers]
        if each.size is not None:
            columns.append(format_bytes(each.size))
        click.echo("  ".join(columns))
        if each.editable:
            click.echo(f"  installed editable from {each.editable}")
        if each.database:
            click.echo(f"  {each.database}")
        if each.digest:
            click.echo(f"  digest {each.digest}")
        if each.trouble:
            click.secho(f"  {each.trouble}", fg="yellow")
