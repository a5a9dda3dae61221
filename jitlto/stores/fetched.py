"""A user's copies of databases in stores: fetched once, by content, and opened from the user's cache from then on.

Each is a directory named after the SHA-256 in its address, with the database and its packs. It gets its name when all
of it is there and checked, and nothing asks the store for it again.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base.cache_dir import STALE, TEMPORARY, CacheDir
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.files import SUFFIX, digest_of, write_hint
from jitlto.base.lock import locked

if TYPE_CHECKING:
    from jitlto.base.config import Config
    from jitlto.stores.artifact_address import ArtifactAddress

#: Below the user's cache directory.
DIRECTORY = "fetched"
_NAME = "database" + SUFFIX  # of a database that was pushed without packs, and so without its name
_MODE = 0o600
_PATIENCE = 600.0  # seconds that a process waits for another one that fetches the same
_DIGITS = 64  # of a SHA-256
_LOCK_DIGITS = 3  # of the name choose the lock file


def fetch(address: str, settings: Config) -> Path:
    """Return the path of this user's copy of a database in a store, and fetch it first if there is none.

    Args:
        address: With the SHA-256 of the database, or of the index of a database and its packs.
        settings: Determine the user's cache directory.

    Raises:
        StoreError: If the address has no digest, or the store cannot be reached, lacks it or sends other content.
        DatabaseError: If it is not a fragment database.
        JitltoError: If the cache directory cannot be used.
    """
    digest = address.rpartition("=")[2]
    if len(digest) == _DIGITS and digest.isalnum():
        with contextlib.suppress(OSError):  # a directory that can only be read is enough for what is there
            directory = CacheDir(settings.cache_dir / DIRECTORY, 0, readonly=True).directory
            found = _database_in(directory / digest)
            if found is not None:
                return found
    from jitlto.stores.artifact_address import ArtifactAddress  # imported lazily: most were fetched before

    parsed, directory = ArtifactAddress.parse(address), _directory(settings)
    with locked(directory / f"{parsed.digest[:_LOCK_DIGITS]}.lock", _PATIENCE, "fetches the same database"):
        target = directory / parsed.digest
        return _database_in(target) or _fetch(parsed, directory, target)


def copies(settings: Config) -> dict[Path, int]:
    """Return the directories of this user's copies, with their bytes."""
    found = {}
    with contextlib.suppress(OSError):
        directory = CacheDir(settings.cache_dir / DIRECTORY, 0, readonly=True).directory
        for path in sorted(directory.iterdir()):
            if _database_in(path) is not None:
                found[path] = sum(file.lstat().st_size for file in path.iterdir())
    return found


def clear(settings: Config) -> int:
    """Remove these copies; return their number. A process that has opened one keeps it."""
    removed = 0
    for path in copies(settings):
        with contextlib.suppress(OSError):
            _remove(path)
            removed += 1
    return removed


def _directory(settings: Config) -> Path:
    path = settings.cache_dir / DIRECTORY
    try:
        return CacheDir(path, 0).directory
    except OSError as error:
        what = f"a database cannot be kept here: {error.strerror or error}"
        hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
        raise JitltoError(what, code="jitlto-unusable-cache", where=str(path), hint=hint) from error


def _database_in(directory: Path) -> Path | None:
    """Return the database of a copy; None if there is no copy, or the database in it was cut off."""
    try:
        found = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]  # noqa: PTH208 - names
    except OSError:
        return None
    path = directory / found[0] if len(found) == 1 else None
    return path if path is not None and not directory.name.startswith(".") and digest_of(path) else None


def _remove_tree(directory: Path) -> None:
    import shutil  # imported lazily: takes 5 ms, and only what is fetched now needs it

    shutil.rmtree(directory, ignore_errors=True)


def _fetch(address: ArtifactAddress, directory: Path, target: Path) -> Path:
    _remove_stale(directory)
    temporary = directory / f"{TEMPORARY}{os.urandom(8).hex()}"
    try:
        temporary.mkdir(0o700)
        database = _download(address, temporary)
        if digest_of(temporary / database) is None:
            what = "is not a fragment database, or one of another version"
            hint = "push a database: jitlto push DB URL; other files are fetched by `jitlto pull`"
            raise DatabaseError(what, code="database-foreign", where=str(address), hint=hint)
        if os.path.lexists(target):  # damaged
            _remove(target)
        try:
            temporary.rename(target)
        except OSError:
            if _database_in(target) is None:  # not because another process was first, without a lock
                raise
    except OSError as error:
        what = f"a database cannot be kept here: {error.strerror or error}"
        hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
        raise JitltoError(what, code="jitlto-unusable-cache", where=str(directory), hint=hint) from error
    finally:
        _remove_tree(temporary)
    return target / database


def _download(address: ArtifactAddress, directory: Path) -> str:
    """Write a database and its packs to a directory; return the name of the database."""
    from jitlto.stores.artifact_address import ArtifactAddress
    from jitlto.stores.artifacts import download, open_store

    backend = open_store(address.store)
    digests = download(backend, address, directory / _NAME, _MODE)
    if digests is None:
        return _NAME
    (directory / _NAME).unlink()
    for name, digest in digests.items():
        download(backend, ArtifactAddress(address.store, digest), directory / name, _MODE)
    return next(iter(digests))


def _remove(copy: Path) -> None:
    """Remove a copy under another name, so that nobody finds a part of it."""
    aside = copy.with_name(f"{TEMPORARY}{os.urandom(8).hex()}")
    copy.rename(aside)
    _remove_tree(aside)


def _remove_stale(directory: Path) -> None:
    """Remove what processes that died have left."""
    for path in directory.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > STALE:
                _remove_tree(path)
