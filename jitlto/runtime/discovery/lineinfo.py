"""Twins of databases with line information: which one is used, and how its kernels lead to their sources."""

from pathlib import Path

from jitlto.base.log import WarnOnce
from jitlto.cuda.line_table import rename_files
from jitlto.database.twin import SOURCES, TwinManifest, twin_directory

_warn_once = WarnOnce(__name__)
_HINT = "`jitlto build ... -o %s --lineinfo` builds it"


def find_twin(database: Path, digest: str) -> Path | None:
    """Return the twin of a database with a digest; None if it is one itself, or with a warning, if there is none."""
    directory = twin_directory(database)
    manifest = TwinManifest.read(directory)
    if manifest is None:
        if TwinManifest.read(database.parent) is None:
            _warn_once(database, f"%s has no twin with line information: {_HINT}", database, database)
        return None
    if manifest.original != digest:
        _warn_once(directory, f"%s is the twin of another build, and not used: {_HINT}", directory, database)
        return None
    return directory / database.name


def point_to_sources(cubin: bytes, database: Path, family: str) -> bytes:
    """Return a kernel of a twin with a line table that names the files which the twin holds; other names are kept.

    Linked kernels name the files as they were compiled, without a directory, so that their bytes are the same
    everywhere.
    """
    manifest = TwinManifest.read(database.parent)
    if manifest is None:
        return cubin

    def rename(name: str) -> str:
        path = manifest.find(family, name)
        return name if path is None else str(database.parent / SOURCES / path)

    try:
        return rename_files(cubin, rename)
    except ValueError as error:
        _warn_once("format", "profilers will not find the sources: %s", error)
        return cubin
