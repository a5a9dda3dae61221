"""The cubin cache: linked kernels by the digest of their plan, in packs beside databases and in the user's directory.

What is there is found; what is not is linked once, however many threads and processes want it at that moment. A lock
only saves work: who waits too long for another's link makes its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto import config, files
from jitlto.errors import NotCachedError
from jitlto.runtime import events
from jitlto.runtime.events import Kind
from jitlto.runtime.linked import LinkedKernel, pack, unpack
from jitlto.store import Store, open_store

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from jitlto.runtime.once import Flights
    from jitlto.runtime.recipe import Recipe

ENTRIES = "kernels"
_PATIENCE = 60.0  # seconds to wait for another process before linking the same
_SAID = 1.0  # seconds after which waiting is said on the log
_POLLS = (0.001, 0.05)  # seconds: the first and the longest pause between two looks
_KINDS = {"link": Kind.LINKED, "pack": Kind.FOUND_IN_PACK, "disk": Kind.FOUND_ON_DISK}


class CubinCache:
    """Linked kernels by digest.

    Parameters
    ----------
    store : Store or None
        The user's directory; None to keep nothing.
    may_link : bool
        Whether a kernel that is not there may be linked.
    patience : float
        Seconds to wait at most for another process that links the same kernel.
    """

    def __init__(self, store: Store | None, *, may_link: bool = True, patience: float = _PATIENCE) -> None:
        self.store = store
        self._may_link = may_link
        self._patience = patience

    @property
    def _flights(self) -> Flights[str, tuple[LinkedKernel, float]]:
        """By digest: a kernel, and the seconds for which another process was waited for."""
        from jitlto.runtime.once import Flights  # of which whoever only finds kernels has no need

        made: Flights[str, tuple[LinkedKernel, float]] = Flights()
        return self.__dict__.setdefault("_flights_here", made)  # type: ignore[no-any-return]  # the first thread's

    def find(self, digest: str, database: Path) -> LinkedKernel | None:
        """The kernel of a digest, from a pack beside its database or from the user's directory."""
        begin = time.perf_counter()
        for payload in _packed(digest, database):
            found = unpack(digest, payload, time.perf_counter() - begin, "pack")
            if found is not None:
                return found
        kept = self.store.get(ENTRIES, digest) if self.store else None
        return None if kept is None else unpack(digest, kept, time.perf_counter() - begin, "disk")

    def take(self, digest: str, kernel: str, database: Path) -> LinkedKernel | None:
        """As :meth:`find`, for what is going to be used: told as an event.

        Parameters
        ----------
        kernel : str
            The key of the entrypoint fragment.
        """
        found = self.find(digest, database)
        if found is not None:
            events.tell(_KINDS[found.layer], kernel, digest, found.seconds)
        return found

    def kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        """Find a kernel, or link it; one thread does, the others that ask for the same meanwhile get what it got.

        Raises
        ------
        NotCachedError
            If it is not there and may not be linked.
        LinkError
            What ``link`` raises.
        """
        digest = recipe.digest
        (kernel, elsewhere), here = self._flights.run(digest, lambda: self._kernel(recipe, link, database))
        if here is not None:
            events.tell(Kind.WAITED, recipe.kernel, digest, here)
            return kernel
        # Nobody waits for this thread any more: a subscriber may take its time, or ask for the same kernel.
        if kernel.layer == "link" and self.store is not None:
            self.store.keep_bound()
        if elsewhere:
            events.tell(Kind.WAITED, recipe.kernel, digest, elsewhere)
        events.tell(_KINDS[kernel.layer], recipe.kernel, digest, kernel.seconds)
        return kernel

    def _kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> tuple[LinkedKernel, float]:
        """A kernel, and the seconds for which another process was waited for."""
        found = self.find(recipe.digest, database)
        if found is not None:
            return found, 0.0
        if not self._may_link:
            chosen = ", ".join(f"{name}={value}" for name, value in recipe.configuration)
            raise NotCachedError(
                f"is not linked yet, and JITLTO_MODE=cached forbids to link it ({chosen}; digest {recipe.digest})",
                where=recipe.kernel,
                hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
            )
        if self.store is None or self.store.readonly:
            return _linked(recipe, link), 0.0
        claim, waited = self._claim(self.store, recipe, database)
        try:
            # Between our look and our claim another process may have linked it.
            found = self.find(recipe.digest, database)
            if found is not None:
                return found, waited
            kernel = _linked(recipe, link)
            self.store.put(ENTRIES, recipe.digest, pack(recipe, kernel))
            return kernel, waited
        finally:
            if claim is not None:
                claim.release()

    def _claim(self, store: Store, recipe: Recipe, database: Path) -> tuple[BaseFileLock | None, float]:
        """Wait until no other process is linking a recipe, or it is there, or patience ends.

        Returns
        -------
        lock or None
            To be released when the kernel is there.
        float
            Seconds waited; 0 if the claim was had at once.
        """
        import logging  # 2 ms, which finding a kernel need not wait for

        log = logging.getLogger(__name__)
        begin = time.perf_counter()
        pause, waited, said = _POLLS[0], 0.0, False
        while True:
            claim = store.claim(recipe.digest)
            if claim is not None or (waited and self.find(recipe.digest, database) is not None):
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


def _packed(digest: str, database: Path) -> Iterator[bytes]:
    """What the packs beside a database hold under a digest."""
    paths = files.beside(database, ".pack")
    if not paths:
        return  # most databases have none, and need not wait for what reads them
    from jitlto.runtime import packs

    for each in packs.opened(paths):
        payload = each.get(digest)
        if payload is not None:
            yield payload


def _linked(recipe: Recipe, link: Callable[[], LinkedKernel]) -> LinkedKernel:
    import logging

    kernel = link()
    logging.getLogger(__name__).info("linked %s for %s in %.3f s", recipe.kernel, kernel.target, kernel.seconds)
    return kernel


class _Default:
    """The cache of this process, as ``JITLTO_CACHE`` and the other variables say; made by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: CubinCache | None = None

    def __call__(self) -> CubinCache:
        with self._lock:
            if self._cache is None:
                self._cache = _opened()
            return self._cache

    def cache_clear(self) -> None:
        """Forget it, and its locks, which a fork may have copied while threads of the parent held them."""
        self._lock = threading.Lock()
        self._cache = None


def _opened() -> CubinCache:
    settings = config.current()
    store = None
    if settings.cache != "off":
        directory = settings.cache_dir / "cubins"
        store = open_store(directory, settings.cache_size, readonly=settings.cache == "readonly")
    return CubinCache(store, may_link=settings.mode != "cached")


default = _Default()
# What the threads of the parent were linking, a fork would wait for in vain.
os.register_at_fork(after_in_child=default.cache_clear)
