"""The registry: the fragment databases that a process can see."""

from __future__ import annotations

import difflib
import os
import threading
from functools import cache
from pathlib import Path

from jitlto import config
from jitlto.database import FragmentDatabase
from jitlto.errors import DatabaseError, RegistryError


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
        self._lock = threading.Lock()

    def open(self, path: str | os.PathLike[str]) -> FragmentDatabase:
        """Open a database, or return the one that was opened from the same file, unchanged since.

        Raises
        ------
        DatabaseError
            If it cannot be read.
        """
        resolved = Path(path).resolve()
        with self._lock:
            database = self._open.get(resolved)
            if database is None or _identity(resolved) != _identities.get(database):
                identity = _identity(resolved)
                database = FragmentDatabase(path)
                self._open[resolved] = database
                _identities[database] = identity
            return database

    def databases(self) -> list[FragmentDatabase]:
        """Every database on the search path, opened.

        Raises
        ------
        DatabaseError
            If one of them cannot be read.
        """
        files: list[Path] = []
        for path in self._paths:
            files += sorted(path.glob("*.fragdb")) if path.is_dir() else [path]
        return [self.open(path) for path in dict.fromkeys(files)]

    def find(self, family: str) -> FragmentDatabase:
        """The database that holds a family.

        Raises
        ------
        RegistryError
            If none holds it, or several hold different ones.
        DatabaseError
            If a database on the search path cannot be read.
        """
        databases = self.databases()
        holders = [database for database in databases if family in database.families]
        if len({database.digest for database in holders}) > 1:
            raise RegistryError(
                f"several databases hold the family {family!r}: " + ", ".join(str(d.path) for d in holders),
                hint="say which: --db DB, or database=",
            )
        if holders:
            return holders[0]
        known = sorted({name for database in databases for name in database.families})
        near = difflib.get_close_matches(family, known, 1)
        seen = f"families seen: {', '.join(known)}" if known else "no database is on JITLTO_DATABASE_PATH"
        raise RegistryError(
            f"no database holds the family {family!r}",
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"{seen}; name a database (--db DB, or database=), "
            + f"or build one: jitlto build {family} -o {family}.fragdb",
        )


_identities: dict[FragmentDatabase, tuple[int, ...]] = {}


def _identity(path: Path) -> tuple[int, ...]:
    """Which file it is: a database is replaced whole, by a new file under the old name."""
    try:
        status = path.stat()
    except OSError as error:
        raise DatabaseError(
            "there is no such file", where=str(path), hint="make it with `jitlto build FAMILY -o DB`"
        ) from error
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def default() -> Registry:
    """The registry of this process: what ``JITLTO_DATABASE_PATH`` names."""
    return Registry(config.current().database_path)
