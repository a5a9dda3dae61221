"""Families and databases as arguments: by path, or by ``[PACKAGE:]FAMILY``."""

import os.path
import re
from pathlib import Path

import click

from jitlto.database import FragmentDatabase
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily, family, load

#: Metavariable of a database.
DATABASE = "DB|[PACKAGE:]FAMILY"
#: Metavariable of a family, and the help of the option for its database.
FAMILY = "[PACKAGE:]FAMILY"
DB_HELP = "The database [default: JITLTO_DATABASE_PATH, then installed packages]."
# A family's name, optionally after a distribution's: neither contains a slash, so it is not a path.
_NAMED = re.compile(r"(?:[A-Za-z0-9._-]+:)?[A-Za-z_]\w*", re.ASCII)


def find_family(text: str, database: Path | None) -> KernelFamily:
    """Return a family of a database, or find it by ``[PACKAGE:]FAMILY`` on the search path and in installed packages.

    Raises:
        click.UsageError: If both a database and a package are named.
        RegistryError, DatabaseError: If it is not found or cannot be read.
    """
    package, _, name = text.rpartition(":")
    if database is None:
        return family(name, distribution=package or None)
    if package:
        raise click.UsageError(f"--db and the package {package!r} exclude each other")
    return load(name, database)


def locate(target: Path) -> tuple[Path, str | None]:
    """Return the path of a database given by path or by ``[PACKAGE:]FAMILY``, and the family if it is named.

    Raises:
        RegistryError, DatabaseError: If nothing holds the family, or its database cannot be read.
    """
    if not _NAMED.fullmatch(str(target)) or os.path.isfile(target):  # noqa: PTH113 - Path.is_file raises on long names
        return target, None
    package, _, name = str(target).rpartition(":")
    return session.default.registry.find(name, package or None).location, name


def open_database(target: Path) -> tuple[FragmentDatabase, str | None]:
    """Open the database that :func:`locate` finds, and say on standard error if something is not in it.

    Unlike the registry's, it is not shared: the caller closes it.

    Raises:
        RegistryError, DatabaseError: If it is not found or cannot be read.
    """
    path, name = locate(target)
    opened = FragmentDatabase(path)
    if opened.part is not None:
        click.echo(f"{opened.path}: {opened.part}", err=True)
    return opened, name
