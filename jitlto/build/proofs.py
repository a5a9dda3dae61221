"""What was proved before: an unchanged kernel is not linked or compared again, an unchanged database not planned again.

Proofs are in the user's cache, and in shared stores for checks on other machines. A proof is known by all that it
depends on, such as the digest of a plan. Failures are not stored: they are found again, with their messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.base.version import __version__
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import Image

if TYPE_CHECKING:  # not imported at run time, so that checks without a store do not load it
    from jitlto.stores.shared import SharedStores

#: The folder of the entries in the cache directory.
ENTRIES = "proofs"
_SCHEMA = 2  # of what is proved


class Proofs:
    """The proofs in the user's cache.

    Args:
        store: The cache directory; None to know and store nothing.
        stores: Shared stores, for what the directory lacks.
    """

    def __init__(self, store: CacheDir | None, stores: SharedStores | None = None) -> None:
        self._store = store
        self._stores = stores
        self._fetched: set[str] = set()  # keys of proofs that shared stores have
        self._intact: set[str] = set()  # images that were read

    def key(self, of: str, *inputs: object) -> str:
        """Return the key of a proof, made from all that it depends on, as JSON values."""
        return hashlib.sha256(json.dumps([_SCHEMA, __version__, of, *inputs]).encode()).hexdigest()

    def image_key(self, database: FragmentDatabase, images: Iterable[Image], of: str, *inputs: object) -> str | None:
        """Return the key of a proof about images; None if the database no longer holds one as it was."""
        try:
            for image in images:
                if image.sha256 not in self._intact:
                    database.read(image)
                    self._intact.add(image.sha256)
        except JitltoError:
            return None  # whoever reads it says why
        return self.key(of, *inputs)

    def has(self, key: str | None) -> bool:
        """Return whether something was proved before."""
        # The key is in the entry too, because a file may have been renamed.
        if key in self._fetched:
            return True
        return key is not None and self._store is not None and self._store.get(ENTRIES, key) == key.encode()

    def fetch(self, keys: Iterable[str | None]) -> None:
        """Ask shared stores for the proofs that the directory lacks, and store them there."""
        if self._stores is None:
            return
        missing = [key for key in dict.fromkeys(keys) if key is not None and not self.has(key)]
        for key, data in self._stores.get_many(ENTRIES, missing).items():
            if data == key.encode():
                self._fetched.add(key)
                if self._store is not None:
                    self._store.put(ENTRIES, key, data)

    def add(self, key: str | None) -> None:
        """Store that something is proved."""
        if key is not None and self._store is not None:
            self._store.put(ENTRIES, key, key.encode())
            self._store.prune_if_due()
        if key is not None and self._stores is not None and not (self._store and self._store.readonly):
            self._stores.put(ENTRIES, key, key.encode())
