"""Families and databases as arguments: one function finds what is meant by a file, a directory or a name."""

import os.path
import re
from pathlib import Path

import click

from jitlto.base.errors import DatabaseError, JitltoError, RegistryError
from jitlto.base.files import SUFFIX, digest_of
from jitlto.cli.ending import print_warning
from jitlto.database import FragmentDatabase
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load

#: Metavariable of what :func:`locate` finds, and the help of the option that names a family's database.
DATABASE = "DB|DIR|[PACKAGE:]FAMILY"
DB_HELP = "The database of FAMILY [default: JITLTO_DATABASE_PATH, then installed packages]."
# A family's name, optionally after a distribution's: neither contains a slash, so it is not a path.
_NAMED = re.compile(r"(?:[A-Za-z0-9._-]+:)?[A-Za-z_]\w*", re.ASCII)
_TOML = "family.toml"


def locate(target: Path, *, compiles: bool = False) -> tuple[Path, str | None]:
    """Find the database that an argument means, and the family in it if the argument names one.

    A file is a database. ``[PACKAGE:]FAMILY`` is looked up on the search path and in installed packages. A name that is
    not known there, the directory of a family and its ``family.toml`` stand for the database that ``jitlto build``
    writes for it in the working directory; a warning says that a file was changed since. With ``compiles``, a
    declaration stands for itself: its path is returned.

    Raises:
        RegistryError, DatabaseError: If nothing holds the family, or its database cannot be read.
        FamilyError: If the declaration cannot be read.
    """
    if os.path.isfile(target) and target.name != _TOML:  # noqa: PTH113 - Path.is_file raises on long names
        return target, None
    package, _, name = str(target).rpartition(":")
    missing: JitltoError | None = None
    edited: list[Path] = []
    if _NAMED.fullmatch(str(target)):
        try:
            return session.default.registry.find(name, package or None).location, name
        except RegistryError as error:
            if package or error.code != "registry-unknown-family":
                raise
            missing = error
    toml = target if target.name == _TOML else target / _TOML
    if os.path.isfile(toml):  # noqa: PTH113
        if compiles:
            return toml, None
        from jitlto.compile.family_files import family_files  # imported late: few commands read a declaration
        from jitlto.families.declaration import load_family

        family = load_family(toml)
        name, edited = family.name, family_files((family, *family.all_used().values()))
        what = f"the family {name} has not been built here"
        missing = DatabaseError(what, code="database-not-found", where=name + SUFFIX, hint=f"jitlto build {target}")
    if missing is None:
        return target, None  # whoever opens it says what is wrong
    path = Path(name + SUFFIX)
    if not os.path.isfile(path):  # noqa: PTH113
        raise missing
    newest = max(edited, key=os.path.getmtime, default=path)
    if newest.stat().st_mtime_ns > path.stat().st_mtime_ns:
        print_warning(f"{path} is older than {newest}: jitlto build {target}")
    return path, name


def is_other_file(target: Path) -> bool:
    """Return whether an argument is a file that is meant to be neither a database nor a declaration."""
    is_file = os.path.isfile(target)  # noqa: PTH113
    return is_file and target.suffix != SUFFIX and target.name != _TOML and digest_of(target) is None


def find_family(target: Path, database: Path | None = None, *, compiles: bool = False) -> KernelFamily:
    """Load the family that an argument means: by its name from a database, or as :func:`locate` finds it.

    Raises:
        click.UsageError: If both a database and a package are named, or a database with several families.
        JitltoError: As :func:`locate`.
    """
    if database is not None:
        package, _, name = str(target).rpartition(":")
        if package:
            raise click.UsageError(f"--db and the package {package!r} exclude each other")
        return load(name, database)
    path, named = locate(target, compiles=compiles)
    if path.name == _TOML:
        return load(path)
    held = session.default.registry.file(path).contents.families
    own = [named] if named else [name for name, each in held.items() if each.entrypoints]
    if len(own) != 1:
        raise click.UsageError(f"{path} holds {', '.join(held) or 'no family'}: name one, and give --db {path}")
    return load(own[0], path)


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
