"""Families and databases as arguments: one function finds what is meant by a file, a directory or a name."""

import os.path
import re
from pathlib import Path

import click

from jitlto.base.errors import RegistryError
from jitlto.base.files import SUFFIX, digest_of
from jitlto.database import FragmentDatabase
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import family, load

#: Metavariable of what :func:`locate` finds, and the help of the option that names a family's database.
DATABASE = "DB|DIR|[PACKAGE:]FAMILY"
DB_HELP = "The database of FAMILY [default: JITLTO_DATABASE_PATH, then installed packages]."
# A family's name, optionally after a distribution's: neither contains a slash, so it is not a path.
_NAMED = re.compile(r"(?:[A-Za-z0-9._-]+:)?[A-Za-z_]\w*", re.ASCII)
_TOML = "family.toml"


def locate(target: Path) -> tuple[Path, str | None]:
    """Find the database that an argument means, and the family in it if the argument names one.

    A file is a database. All else is a family, as :func:`find_family` finds it; of sources, all is compiled.

    Raises:
        JitltoError: As :func:`find_family`.
    """
    if (found := _find(target)) is None:
        return target, None  # whoever opens it says what is wrong
    return found.database.path if found.path.name == _TOML else found.path, found.name


def _find(target: Path) -> KernelFamily | None:
    """Find a family by name, in the working directory too, or by where its sources are; None for all other files."""
    if os.path.isfile(target) and target.name != _TOML:  # noqa: PTH113 - Path.is_file raises on long names
        return None
    package, _, name = str(target).rpartition(":")
    missing: RegistryError | None = None
    if _NAMED.fullmatch(str(target)):
        try:
            return family(name, distribution=package or None)
        except RegistryError as error:
            if package or error.code != "registry-unknown-family":
                raise
            missing = error
    if target.name == _TOML or os.path.isfile(target / _TOML):  # noqa: PTH113
        return load(target)
    if missing is None:
        return None
    if not os.path.isfile(path := Path(name + SUFFIX)):  # noqa: PTH113
        raise missing
    return load(name, path)


def is_other_file(target: Path) -> bool:
    """Return whether an argument is a file that is meant to be neither a database nor a declaration."""
    is_file = os.path.isfile(target)  # noqa: PTH113
    return is_file and target.suffix != SUFFIX and target.name != _TOML and digest_of(target) is None


def find_family(target: Path, database: Path | None = None) -> KernelFamily:
    """Load the family that an argument means; of a database that is given, the one of this name.

    ``[PACKAGE:]FAMILY`` is looked up on the search path and in installed packages. The directory of a family and its
    ``family.toml`` are its sources. Any other name stands for the database that ``jitlto build`` writes for it in the
    working directory.

    Raises:
        click.UsageError: If both a database and a package are named, or a database with several families.
        RegistryError, DatabaseError: If nothing holds the family, or its database cannot be read.
        FamilyError, MatrixError, RenderError: If sources are not those of a family.
    """
    if database is not None:
        package, _, name = str(target).rpartition(":")
        if package:
            raise click.UsageError(f"--db and the package {package!r} exclude each other")
        return load(name, database)
    if found := _find(target):
        return found
    held = session.default.registry.file(target).contents.families
    own = [name for name, each in held.items() if each.entrypoints]
    if len(own) != 1:
        raise click.UsageError(f"{target} holds {', '.join(held) or 'no family'}: name one, and give --db {target}")
    return load(own[0], target)


def open_database(target: Path) -> tuple[FragmentDatabase, str | None]:
    """Open the database that :func:`locate` finds, and say on standard error if something is not in it.

    Unlike the registry's, it is not shared: the caller closes it.

    Raises:
        JitltoError: As :func:`locate`, or if it cannot be read.
    """
    path, name = locate(target)
    opened = FragmentDatabase(path)
    if opened.part is not None:
        click.echo(f"{opened.path}: {opened.part}", err=True)
    return opened, name
