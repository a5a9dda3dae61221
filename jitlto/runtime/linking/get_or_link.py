"""Kernels that are not there yet: linked once, however many threads and processes want one at that moment.

A lock only saves work: who waits too long for another's link makes its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.errors import NotCachedError
from jitlto.runtime import events
from jitlto.runtime.events import Kind
from jitlto.runtime.linking.kernel_cache import ENTRIES, KINDS, CubinCache, LinkedKernel, pack
from jitlto.runtime.linking.link_key import Recipe
from jitlto.runtime.linking.single_flight import Flights
from jitlto.storage.cache_dir import CacheDir

if TYPE_CHECKING:  # which the store imports when it takes a lock
    from filelock import BaseFileLock

_SAID = 1.0  # seconds after which waiting is said on the log
_POLLS = (0.001, 0.05)  # seconds: the first and the longest pause between two looks

log = logging.getLogger(__name__)


class Linking:
    """Kernels for a cache.

    Parameters
    ----------
    cache : CubinCache
        Where they are looked for and kept.
    may_link : bool
        Whether a kernel that is not there may be linked.
    patience : float
        Seconds to wait at most for another process that links the same kernel.
    """

    def __init__(self, cache: CubinCache, *, may_link: bool, patience: float) -> None:
        self._cache = cache
        self._may_link = may_link
        self._patience = patience
        # By digest: a kernel, and the seconds for which another process was waited for.
        self._flights: Flights[str, tuple[LinkedKernel, float]] = Flights()

    def kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        """As :meth:`CubinCache.kernel`."""
        digest = recipe.digest
        (kernel, elsewhere), here = self._flights.run(digest, lambda: self._kernel(recipe, link, database))
        if here is not None:
            events.tell(Kind.WAITED, recipe.kernel, digest, here)
            return kernel
        # Nobody waits for this thread any more: a subscriber may take its time, or ask for the same kernel.
        if kernel.layer == "link" and self._cache.store is not None:
            self._cache.store.prune_if_due()
        if elsewhere:
            events.tell(Kind.WAITED, recipe.kernel, digest, elsewhere)
        events.tell(KINDS[kernel.layer], recipe.kernel, digest, kernel.seconds)
        return kernel

    def _kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> tuple[LinkedKernel, float]:
        """A kernel, and the seconds for which another process was waited for."""
        found = self._cache.find(recipe.digest, database)
        if found is not None:
            return found, 0.0
        if not self._may_link:
            chosen = ", ".join(f"{name}={value}" for name, value in recipe.configuration)
            raise NotCachedError(
                f"is not linked yet, and JITLTO_MODE=cached forbids to link it ({chosen}; digest {recipe.digest})",
                where=recipe.kernel,
                hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
            )
        if self._cache.store is None or self._cache.store.readonly:
            return _linked(recipe, link), 0.0
        claim, waited = self._claim(self._cache.store, recipe, database)
        try:
            # Between our look and our claim another process may have linked it.
            found = self._cache.find(recipe.digest, database)
            if found is not None:
                return found, waited
            kernel = _linked(recipe, link)
            self._cache.store.put(ENTRIES, recipe.digest, pack(recipe, kernel))
            return kernel, waited
        finally:
            if claim is not None:
                claim.release()

    def _claim(self, store: CacheDir, recipe: Recipe, database: Path) -> tuple[BaseFileLock | None, float]:
        """Wait until no other process is linking a recipe, or it is there, or patience ends.

        Returns
        -------
        lock or None
            To be released when the kernel is there.
        float
            Seconds waited; 0 if the claim was had at once.
        """
        begin = time.perf_counter()
        pause, waited, said = _POLLS[0], 0.0, False
        while True:
            claim = store.claim(recipe.digest)
            if claim is not None or (waited and self._cache.find(recipe.digest, database) is not None):
                return claim, waited
            if waited > self._patience:
                log.warning("another process links %s since %.0f s; linking it too", recipe.kernel, waited)
                return None, waited
            if waited > _SAID and not said:
                said = True
                log.warning("waiting for another process that links %s", recipe.kernel)
            time.sleep(pause)
            pause = min(2 * pause, _POLLS[1])
            waited = time.perf_counter() - begin


def _linked(recipe: Recipe, link: Callable[[], LinkedKernel]) -> LinkedKernel:
    kernel = link()
    log.info("linked %s for %s in %.3f s", recipe.kernel, kernel.target, kernel.seconds)
    return kernel
