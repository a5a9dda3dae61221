"""A user's copies of databases in stores: fetched once, by content, and opened from the user's cache from then on.

Each is a directory named after the SHA-256 in its address, with the database and its packs. It gets its name when all
of it is there and checked, and nothing asks the store for it again.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from jitlto.base.cache_dir import STALE, TEMPORARY, CacheDir
from jitlto.base.config import Config
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.files import FETCHED, SUFFIX, digest_of, remove_directory, write_hint
from jitlto.base.lock import locked
from jitlto.stores.address import parse_artifact

_NAME = "database" + SUFFIX
_PATIENCE = 600.0  # seconds that a process waits for another one that fetches the same


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
    directory, digest = settings.cache_dir / FETCHED, parse_artifact(address)[1]
    path = directory / digest / _NAME
    with contextlib.suppress(OSError):  # a directory that can only be read is enough for what is there
        CacheDir(directory, 0, readonly=True)
        if digest_of(path) is not None:
            return path
    try:
        CacheDir(directory, 0)
        with locked(directory / f"{digest[:3]}.lock", _PATIENCE, f"fetches {address}"):
            if digest_of(path) is None:
                _fetch(address, path.parent)
    except OSError as error:
        what = f"a database cannot be kept here: {error.strerror or error}"
        hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
        raise JitltoError(what, code="jitlto-unusable-cache", where=str(directory), hint=hint) from error
    return path


def _fetch(address: str, target: Path) -> None:
    from jitlto.stores.artifacts import pull  # 10 ms with what stores need, for what is not here yet

    for left in target.parent.glob(f"{TEMPORARY}*"):  # by processes that died
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > STALE:
                remove_directory(left)
    temporary = target.parent / f"{TEMPORARY}{os.urandom(8).hex()}"
    try:
        temporary.mkdir(0o700)
        pull(address, temporary / _NAME)
        if digest_of(temporary / _NAME) is None:
            what = "is not a fragment database, or one of another version"
            hint = "push a database: jitlto push DB URL; other files are fetched by `jitlto pull`"
            raise DatabaseError(what, code="database-foreign", where=address, hint=hint)
        remove_directory(target)  # damaged
        try:
            temporary.rename(target)
        except OSError:
            if digest_of(target / _NAME) is None:  # not because another process was first, without a lock
                raise
    finally:
        remove_directory(temporary)
