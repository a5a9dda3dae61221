"""The twin of a database with line information: a directory beside it, ``STEM.lineinfo``.

It holds a database of the same name, whose fragments are the same and compiled with line information; their sources
and headers, under ``sources/``, where profilers find them by the names in line tables; and the digest of the database
whose twin it is.
"""

from pathlib import Path

from jitlto.base.log import warn_once

#: Directory of the sources in it.
SOURCES = "sources"
_ORIGINAL = "original"  # the file with the digest
_HINT = "`jitlto build ... -o %s --lineinfo` builds it"


def twin_directory(database: Path) -> Path:
    """Return the directory of a database's twin, which need not exist."""
    return database.with_suffix(".lineinfo")


def mark_twin(directory: Path, original: str) -> None:
    """Write into a twin's directory the digest of the database whose twin it is."""
    (directory / _ORIGINAL).write_text(original)


def read_original(directory: Path) -> str | None:
    """Return the digest of the database whose twin a directory is; None if it is no twin."""
    try:
        return (directory / _ORIGINAL).read_text("ascii")
    except (OSError, ValueError):
        return None


def find_twin(database: Path, digest: str) -> Path | None:
    """Return the twin of a database with a digest; None if it is one itself, or with a warning, if there is none."""
    directory = twin_directory(database)
    original = read_original(directory)
    if original == digest:
        return directory / database.name
    if original is not None:
        warn_once(__name__, directory, f"%s is the twin of another build, and not used: {_HINT}", directory, database)
    elif read_original(database.parent) is None:
        warn_once(__name__, database, f"%s has no twin with line information: {_HINT}", database, database)
    return None
