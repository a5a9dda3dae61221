"""What was proved before: an unchanged kernel is not linked or compared again, an unchanged database not planned again.

Proofs are in the user's cache, and in shared stores for checks on other machines. A proof is known by all that it
depends on, such as the digest of a plan. Failures are not stored: they are found again, with their messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jitlto.base import __version__
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.build.cache.cache import Cache

if TYPE_CHECKING:  # not imported at run time, so that builds load no planner, and checks without a store not that
    from jitlto.plan.plan import Plan
    from jitlto.stores.shared import SharedStore

#: The folder of the entries in the cache directory.
ENTRIES = "proofs"
_SCHEMA = 4  # of what is proved


class Proofs:
    """The proofs in the user's cache.

    Args:
        store: The cache directory; None to know and store nothing.
        stores: Shared stores, for what the directory lacks.
    """

    def __init__(self, store: CacheDir | None, stores: SharedStore | None = None) -> None:
        self._cache = Cache(store, stores) if store else None
        self._intact: set[str] = set()  # images that were read

    def key(self, of: str, *inputs: object) -> str:
        """Return the key of a proof, made from all that it depends on, as JSON values."""
        return hashlib.sha256(json.dumps([_SCHEMA, __version__, of, *inputs]).encode()).hexdigest()

    def plan_key(self, plan: Plan, of: str) -> str | None:
        """Return the key of a proof about a kernel; None if it cannot be linked, or an image is no longer as it was."""
        try:
            for image in plan.images:
                if image.sha256 not in self._intact:
                    plan.database.read(image)
                    self._intact.add(image.sha256)
        except JitltoError:
            return None  # whoever links it says why
        return self.key(of, plan.digest)

    def find(self, keys: Iterable[str | None]) -> dict[str | None, bytes]:
        """Return what is known of those that were proved before, by their keys."""
        found = self._cache.find(ENTRIES, [key for key in keys if key is not None]) if self._cache else {}
        return {key: data for key, (data, _) in found.items()}

    def add(self, key: str | None, known: bytes = b"") -> None:
        """Store that something is proved, and what is ``known`` of it."""
        if key is not None and self._cache is not None:
            self._cache.put(ENTRIES, key, known)
            self._cache.store.prune_if_due()
