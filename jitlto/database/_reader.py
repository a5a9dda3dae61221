"""Reading values from an SQLite file that is not trusted.

The file may be damaged or hostile: it is never written here, no journal beside it is played back, none of its own SQL
is run, and neither time nor memory exceeds what a file of its size can need. Source: SQLite's «Defense Against The Dark
Arts».
"""

import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jitlto.base.errors import DatabaseError
from jitlto.base.files import identity
from jitlto.base.uninterrupted import uninterrupted

#: Hints for a file that is not a database, or not a sound one.
BUILD_HINT, REBUILD_HINT = "make it with `jitlto build FAMILY -o DB`", "fetch, install or build it again"
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 20,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 3,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_PRAGMAS = "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0;"
_LARGEST = (1 << 31) - 1
_FETCHED = 1 << 24  # bytes that the rows fetched at a time may have, each as long as the file
# SQLite's message may quote damaged text, which Python cannot decode; a damaged length may exceed all memory.
_ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError)


def list_schema(ddl: str) -> list[tuple[bytes, ...]]:
    """Return type, name, table and SQL of what DDL creates, sorted, as ``sqlite_master`` holds them."""
    return sorted(
        (kind.lower().encode(), name.encode(), name.encode(), statement.encode())
        for statement in map(str.strip, ddl.split(";"))
        for kind, name in re.findall(r"^CREATE (\w+) (\w+)", statement)
    )


class SqliteReader:
    """A read-only connection to one file, safe to use from several threads and after a fork.

    Raises:
        DatabaseError: If there is no such file, or it is not an SQLite database. All methods raise it if they cannot
            read the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = path.absolute()
        self._lock = threading.Lock()
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            what = "is not a regular file" if os.path.lexists(path) else "no such file"
            is_address = re.match("[a-z0-9]+:/", str(path))  # a path has one slash in place of two
            raise self.error(
                what,
                "fetch it from its store first: jitlto pull URL#sha256=DIGEST -o DB" if is_address else BUILD_HINT,
                code="database-not-found",
            )
        try:
            self.identity = identity(path.stat())
        except OSError as error:  # gone since
            raise self.error(f"cannot be read: {error.strerror}", BUILD_HINT, code="database-unreadable") from error
        self.size = self.identity[2]
        self._connect()

    @uninterrupted  # a fork could leave a lock of SQLite locked
    def _connect(self) -> None:
        # immutable: no locks and no journal beside a file that may lie in a read-only site-packages.
        uri = f"file:{quote(os.fsencode(self.location))}?mode=ro&immutable=1"
        self._process = os.getpid()
        size = min(self.size, _LARGEST // 2)
        try:
            self.connection = connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            connection.text_factory = bytes
            for limit, value in _LIMITS.items():
                connection.setlimit(limit, value)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size + 10_000)  # no value is longer than its file
            # No statement takes more steps than the file has bytes, unless pages refer to each other cyclically. This
            # includes SQLite's own read of the schema.
            connection.set_progress_handler(lambda: True, size + 100_000)
            connection.executescript(_PRAGMAS)
        except _ERRORS as error:
            raise self._explain(error) from error

    def pragma(self, name: str) -> Any:
        """Return the value of a pragma, a number or bytes."""
        ((value,),) = self.query(f"PRAGMA {name}")
        return value

    def scan(self, table: str, *columns: str) -> Iterator[list[bytes]]:
        """Yield some columns of all rows of a table, sorted by the first, its key; no more than the file can hold.

        A malicious file may link its pages so that a few of them yield more, or longer, rows than any machine can read.
        """
        last, remaining = b"", self.size
        # A full scan: a look-up through a damaged index could miss a row in silence.
        query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED"  # noqa: S608 - our own names
        for row in self.query(query):
            if not all(isinstance(value, bytes) for value in row):
                raise self.damaged(f"invalid row in table {table}")
            remaining -= sum(map(len, row))
            if row[0] <= last or remaining < 0:
                raise self.damaged(f"the rows of table {table} are out of order, or longer than the file")
            last = row[0]
            yield row

    def find(self, table: str, key: str, value: str, *columns: str) -> tuple[object, ...] | None:
        """Return some columns of the row whose ``key`` is ``value``; None if there is no such row."""
        self._survive_fork()
        query = f"SELECT {', '.join(columns)} FROM {table} WHERE {key} = ?"  # noqa: S608 - our own names
        try:
            with uninterrupted, self._lock:
                row: tuple[object, ...] | None = self.connection.execute(query, (value,)).fetchone()
        except UnicodeEncodeError:  # an unpaired surrogate, which no key has
            return None
        except _ERRORS as error:
            raise self._explain(error) from error
        return row

    def query(self, sql: str) -> Iterator[Any]:
        """Yield the rows of a query of ours."""
        self._survive_fork()
        try:
            # From Python 3.12, two threads that begin one statement at once can share it, and each other's rows.
            with uninterrupted, self._lock:
                rows = self.connection.execute(sql)
            fetched = most = max(1, min(256, _FETCHED // (self.size + 1)))
            while fetched == most:
                with uninterrupted, self._lock:
                    several = rows.fetchmany(most)
                yield from several
                fetched = len(several)
        except _ERRORS as error:
            raise self._explain(error) from error

    def _survive_fork(self) -> None:
        """Open the file again in a forked process: SQLite's connections do not survive a fork.

        Raises:
            DatabaseError: If another file has its name now, or none.
        """
        if self._process == os.getpid():
            return
        try:
            is_same = identity(self.location.stat())[:3] == self.identity[:3]
        except OSError:
            is_same = False
        if not is_same:
            raise self.error(
                "was replaced or removed before this forked process read it",
                "open it in this process",
                code="database-replaced",
            )
        self._lock = threading.Lock()  # a thread of the parent may have held it
        with self._lock:
            self._connect()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def damaged(self, why: str) -> DatabaseError:
        """Return the error for a file that is damaged."""
        return self.error(f"is damaged: {why}", REBUILD_HINT, code="database-damaged")

    def foreign(self) -> DatabaseError:
        """Return the error for a file that is not a fragment database."""
        return self.error("is not a fragment database", BUILD_HINT, code="database-foreign")

    def _explain(self, error: Exception) -> DatabaseError:
        """Return our error for one of SQLite's."""
        text = str(error)
        if "unable to open" in text:
            return self.error(
                "cannot be read: permission denied", "make it readable for this user", code="database-unreadable"
            )
        if isinstance(error, sqlite3.ProgrammingError):
            return self.error(f"cannot be read: {text}", "open it again", code="database-unreadable")
        if text == "interrupted":
            return self.damaged("its pages refer to each other cyclically")
        return self.foreign() if "not a database" in text else self.damaged(text)

    def error(self, what: str, hint: str, *, code: str) -> DatabaseError:
        """Return an error about this file."""
        return DatabaseError(what, code=code, where=str(self.path), hint=hint)
