"""The registry: the fragment databases that a process can see, by path and in installed packages."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base.errors import DatabaseError, JitltoError, RegistryError
from jitlto.base.files import SUFFIX, digest_of
from jitlto.base.frozen import Frozen
from jitlto.base.text import suggest
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.requests import Contents, FamilyContents, find_contents
from jitlto.link.sources import CONTENTS, put_all

if TYPE_CHECKING:  # not imported at run time: a hit in the look-ups needs none
    from jitlto.database import FragmentDatabase
    from jitlto.runtime.discovery.entry_points import InstalledFamily

_UNKNOWN = "registry-unknown-family"
_DIGITS = 12  # of a digest, enough to tell databases apart
_REMEDY = (
    "install the package that provides it, give its database (jitlto.load(FAMILY, DB); on the command line --db DB, or "
    "DB in place of the name), or build one: jitlto build FAMILY"
)


class DatabaseFile(Frozen):
    """A database file. It is opened only when more is needed than its summary gives."""

    path: Path  # as the caller names it
    location: Path  # absolute: a later change of the working directory does not affect it
    contents: Contents  # the summary
    database: FragmentDatabase | None = None  # if it is open

    @classmethod
    def from_database(cls, database: FragmentDatabase) -> DatabaseFile:
        """Wrap an open database."""
        if not hasattr(database, "families"):
            raise TypeError(f"database must be a path or a FragmentDatabase, not {type(database).__name__}")
        return cls(database.path, database.location, Contents.from_database(database), database)

    def require(self, family: str) -> FamilyContents:
        """Return what it holds of a family.

        Raises:
            RegistryError: If it does not hold it.
            DatabaseError: If it is only a part of a sharded build.
        """
        if self.contents.part is not None:
            from jitlto.database import MERGE_HINT

            raise DatabaseError(
                f"database is {self.contents.part} of a build: its kernels lack fragments",
                code="database-part",
                where=str(self.path),
                hint=MERGE_HINT,
            )
        if family not in self.contents.families:
            known = sorted(self.contents.families)
            raise RegistryError(
                f"database holds no family {family!r}",
                code=_UNKNOWN,
                where=str(self.path),
                hint=f"{suggest(family, known)} it holds {', '.join(known) or 'none'}".lstrip(),
            )
        return self.contents.families[family]

    def open(self) -> FragmentDatabase:
        """Open the database.

        Raises:
            DatabaseError: If it can no longer be read, or was replaced by a different database.
        """
        if self.database is not None:
            return self.database
        database = _open(self.location)
        if database.digest != self.contents.digest:
            raise DatabaseError(
                "the database was replaced since the family was loaded from it",
                code="database-replaced",
                where=str(self.path),
                hint="load the family again",
            )
        return database


class Registry:
    """Databases by path, and families by name.

    Args:
        paths: Database files, and directories whose ``*.fragdb`` are taken in the order of their names.
        cache: The kernel cache, in which the contents of databases lie too.
    """

    def __init__(self, paths: tuple[Path, ...] = (), *, cache: KernelCache | None = None) -> None:
        self._paths = paths
        self._cache = cache or KernelCache(None)

    # --- by path ---

    def file(self, path: str | os.PathLike[str]) -> DatabaseFile:
        """Return the database at a path; it is opened only if its summary is in no cache and in no pack beside it.

        Raises:
            DatabaseError: If it cannot be read.
        """
        path = Path(path)
        location = path.absolute()
        digest = digest_of(location)
        if digest and (contents := find_contents(self._cache.sources(location), digest)):
            return DatabaseFile(path, location, contents)
        self._cache.open_store_soon()
        file = DatabaseFile.from_database(_open(path))
        if digest == file.contents.digest:
            put_all(self._cache.sources(location), CONTENTS, file.contents.key, file.contents.encode())
        return file

    def files(self) -> list[Path]:
        """Return the databases on the search path."""
        files: list[Path] = []
        for path in self._paths:
            directory = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            files += sorted(path.glob(f"*{SUFFIX}")) if directory else [path]
        return list(dict.fromkeys(files))

    # --- by the name of a family ---

    def find(self, family: str, distribution: str | None = None) -> DatabaseFile | InstalledFamily:
        """Find the database that holds a family: on the search path first, then in installed packages.

        Of a package that is installed editable, the result is where its sources are. If a distribution is named, only
        that is looked in.

        Raises:
            RegistryError: If no database holds it, or several different ones do.
            DatabaseError: If a database that has to be searched cannot be read.
        """
        found = [] if distribution else self._on_path(family)
        packages = [] if found else _installed(family, distribution)
        packages.sort(key=lambda each: each.distribution)
        sources = [each for each in packages if each.source is not None]
        if len(packages) == len(sources) == 1:
            return sources[0]
        found += [self.of_package(each) for each in packages if each.source is None]
        if not sources and len({file.contents.digest for file in found}) == 1:
            return found[0]
        if packages:
            what = f"several installed packages provide the family {family!r}: {', '.join(p.title for p in packages)}"
            named = packages[0].distribution
            hint = f"name one: jitlto.family({family!r}, distribution={named!r}); on the command line {named}:{family}"
            raise RegistryError(what, code="registry-ambiguous-package", hint=hint)
        if found:
            raise RegistryError(
                f"several databases hold the family {family!r}: {', '.join(str(file.path) for file in found)}",
                code="registry-ambiguous-database",
                hint="name one: --db DB, or database=",
            )
        raise self._unknown(family, distribution)

    def _unknown(self, family: str, distribution: str | None) -> RegistryError:
        """Return the error for a family that no database holds, or none of the package that was named."""
        on_path = [] if distribution else [self.file(path).contents for path in self.files()]
        installed = _installed()
        known = {name: name for contents in on_path for name in contents.families}
        known |= {each.family: f"{each.family} ({each.distribution})" for each in installed}
        packages = sorted({each.distribution for each in installed})
        nearest = suggest(distribution, packages) if distribution and family in known else suggest(family, known)
        if family.endswith(SUFFIX):
            nearest = "this names a database: give a family that it holds as well;"
        who = f"the package {distribution!r} provides no" if distribution else "no database holds the"
        listed = ", ".join(known[name] for name in sorted(known)) or "none"
        return RegistryError(
            f"{who} family {family!r}", code=_UNKNOWN, hint=f"{nearest} known are {listed}; {_REMEDY}".lstrip()
        )

    def _on_path(self, family: str) -> list[DatabaseFile]:
        """Return the databases on the search path that hold a family.

        An unreadable database is an error, because it may hold the family.
        """
        try:
            return [file for file in map(self.file, self.files()) if family in file.contents.families]
        except DatabaseError as error:
            error.hint = f"it is on JITLTO_DATABASE_PATH: {error.hint}"
            raise

    def find_again(self, family: str, digest: str, location: Path) -> DatabaseFile:
        """Find the database with a digest that a family was loaded from elsewhere.

        It is looked for at the path that it has there, on the search path, then in packages.

        Raises:
            RegistryError: If this process finds no database with this digest.
        """
        paths = [location]
        if digest_of(location) != digest:
            paths += self.files()
            for package in _installed(family):
                with suppress(JitltoError):  # as if it were not installed
                    paths.append(package.location)
        for path in paths:
            if digest_of(path) == digest:
                return self.file(path)
        other = f"; there is {found[:_DIGITS]}…" if (found := digest_of(location)) else ""
        raise RegistryError(
            f"this process finds no database with the digest {digest[:_DIGITS]}…, from which {family!r} was loaded"
            f"{other}",
            code="registry-not-found-again",
            where=str(location),
            hint="have the same one on both sides: in an installed package, on JITLTO_DATABASE_PATH, at the same path, "
            f"or loaded there before: jitlto.load({family!r}, DB)",
        )

    # --- in installed packages ---

    def of_package(self, package: InstalledFamily) -> DatabaseFile:
        """Return the database of an installed package.

        Raises:
            RegistryError: If the entry point is invalid.
            DatabaseError: If it cannot be read.
        """
        path = package.location
        try:
            return self.file(path)
        except DatabaseError as error:
            error.hint = f"{package.title} names it for the family {package.family!r}: {package.remedy}"
            raise


def _installed(family: str | None = None, distribution: str | None = None) -> list[InstalledFamily]:
    from jitlto.runtime.discovery import entry_points  # imported lazily: databases by path need none

    return entry_points.families(family, distribution)


def _open(path: Path) -> FragmentDatabase:
    from jitlto.database import FragmentDatabase  # imported lazily: loads SQLite

    return FragmentDatabase(path)
