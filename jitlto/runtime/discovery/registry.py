"""The registry: the fragment databases that a process can see, by path and in installed packages."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto import config
from jitlto.errors import DatabaseError, RegistryError
from jitlto.runtime.discovery import lookup_cache
from jitlto.runtime.discovery.lookup_cache import Contents
from jitlto.storage.files import SUFFIX, Identity, digest_of, identity

if TYPE_CHECKING:  # what a database that was known before need not load
    from jitlto.runtime.discovery.entry_points import InstalledFamily
    from jitlto.runtime.family import KernelFamily
    from jitlto.storage.database import FragmentDatabase


class DatabaseFile:
    """A database as it stands on the disk, opened when more is wanted than what is known of it.

    Parameters
    ----------
    path : Path
        As the caller names it.
    location : Path
        The same, wherever the process goes.
    contents : Contents
        What it holds.
    database : FragmentDatabase, optional
        The file, opened.
    """

    def __init__(
        self,
        path: Path,
        location: Path,
        contents: Contents,
        database: FragmentDatabase | None = None,
    ) -> None:
        self.path = path
        self.location = location
        self.contents = contents
        self._database = database

    @classmethod
    def of(cls, database: FragmentDatabase) -> DatabaseFile:
        """The file of a database that is open."""
        return cls(database.path, database.location, Contents.of(database), database)

    @property
    def database(self) -> FragmentDatabase:
        """The file, opened.

        Raises
        ------
        DatabaseError
            If it cannot be read any more, or another one has taken its place.
        """
        if self._database is None:
            opened = default().open(self.location)
            if opened.digest != self.contents.digest:
                raise DatabaseError(
                    "another database has taken the place of the one that the family was loaded from",
                    where=str(self.path),
                    hint="load the family again",
                )
            self._database = opened
        return self._database


class Registry:
    """Databases by path, opened once each, and families by name.

    Parameters
    ----------
    paths : iterable of Path
        Database files, and directories whose ``*.fragdb`` are taken in the order of their names.
    """

    def __init__(self, paths: tuple[Path, ...] = ()) -> None:
        self._paths = paths
        self._open: dict[Path, FragmentDatabase] = {}
        #: Families that were found by name and distribution.
        self.loaded: dict[tuple[str, str | None], KernelFamily] = {}
        self._lock, self._process = threading.Lock(), os.getpid()

    def open(self, path: str | os.PathLike[str]) -> FragmentDatabase:
        """Open a database, or return the one that was opened from the same file, unchanged since.

        Raises
        ------
        DatabaseError
            If it cannot be read.
        """
        resolved = Path(os.path.realpath(path))  # Path.resolve raises at a circle of links
        if self._process != os.getpid():
            # A fork: a thread of the parent may have held the lock.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            database = self._open.get(resolved)
            # A database is replaced whole, by a new file under the old name.
            if database is None or _identity(resolved) != database.identity:
                from jitlto.storage.database import FragmentDatabase

                database = self._open[resolved] = FragmentDatabase(path)
            return database

    def file(self, path: str | os.PathLike[str]) -> DatabaseFile:
        """A database, opened only if this user has not opened an equal one before.

        Raises
        ------
        DatabaseError
            If it cannot be read.
        """
        given = Path(path)
        location, known = given.absolute(), lookup_cache.in_use()
        digest = digest_of(location) if known else None
        contents = known.contents(digest) if known and digest else None
        if contents is not None:
            return DatabaseFile(given, location, contents)
        database = self.open(given)
        contents = Contents.of(database)
        if known and digest == database.digest:
            known.keep_contents(contents)
        return DatabaseFile(given, location, contents, database)

    def databases(self) -> list[FragmentDatabase]:
        """Every database on the search path, opened.

        Raises
        ------
        DatabaseError
            If one of them cannot be read.
        """
        return [self.open(path) for path in self._files()]

    def _files(self) -> Iterable[Path]:
        files: list[Path] = []
        for path in self._paths:
            directory = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            files += sorted(path.glob(f"*{SUFFIX}")) if directory else [path]
        return dict.fromkeys(files)

    def find(self, family: str, distribution: str | None = None) -> DatabaseFile:
        """The database that holds a family: one on the search path, or else one in an installed package.

        Parameters
        ----------
        family : str
            The family's name.
        distribution : str, optional
            The installed package that is meant; the search path is then left out.

        Raises
        ------
        RegistryError
            If none holds it, or several hold different ones.
        DatabaseError
            If a database that has to be looked at cannot be read.
        """
        files = [] if distribution else self._on_path(family)
        holders = [file for file in files if family in file.contents.families]
        if len({file.contents.digest for file in holders}) > 1:
            raise RegistryError(
                f"several databases hold the family {family!r}: " + ", ".join(str(d.path) for d in holders),
                hint="say which: --db DB, or database=",
            )
        if holders:
            return holders[0]
        from jitlto.runtime.discovery import entry_points  # which whoever names a file has no need of

        found = entry_points.families(family)
        if distribution:
            wanted = entry_points.normalised(distribution)
            found = [each for each in found if entry_points.normalised(each.distribution) == wanted]
        if len(found) == 1:
            return self.of_package(found[0])
        from jitlto.runtime.discovery import errors  # which loads what a family that is there does not need

        if found:
            return self.file(errors.only_one(family, found))
        if distribution:
            raise errors.not_in(distribution, family)
        raise errors.unknown(family, {name for file in files for name in file.contents.families})

    def _on_path(self, family: str) -> list[DatabaseFile]:
        """The databases on the search path; one that cannot be read may be the one that holds the family."""
        try:
            return [self.file(path) for path in self._files()]
        except DatabaseError as error:
            from jitlto.runtime.discovery import entry_points

            titles = ", ".join(each.title for each in entry_points.families(family))
            if titles:
                error.hint = (
                    f"it is on JITLTO_DATABASE_PATH, which comes before installed packages: take it off, and the "
                    f"family {family!r} is that of {titles}; or {error.hint}"
                )
            raise

    def of_package(self, package: InstalledFamily) -> DatabaseFile:
        """The database that an installed package brings.

        Raises
        ------
        DatabaseError
            If it cannot be had.
        """
        path = package.database()
        try:
            return self.file(path)
        except DatabaseError as error:
            from jitlto.storage.database import BUILD_HINT, REBUILD_HINT

            if package.source is None and error.hint in (REBUILD_HINT, BUILD_HINT):
                error.hint = package.reinstall
            raise


def _identity(path: Path) -> Identity | None:
    """Which file it is; None if there is none, which opening it will say."""
    try:
        return identity(path.stat())
    except OSError:
        return None


@cache
def default() -> Registry:
    """The registry of this process: what ``JITLTO_DATABASE_PATH`` names."""
    return Registry(config.current().database_path)
