"""The cubin cache: linked kernels by the digest of their plan, in packs beside databases and in the user's directory.

What is there is found; what is not is linked once, however many threads and processes want it at that moment. A lock
only saves work: who waits too long for another's link makes its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from pathlib import Path

from jitlto import config
from jitlto.errors import NotCachedError
from jitlto.runtime import events, packs
from jitlto.runtime.events import Kind
from jitlto.runtime.linked import LinkedKernel, Recipe, pack, unpack
from jitlto.store import Store, open_store

ENTRIES = "kernels"
_PATIENCE = 60.0  # seconds to wait for another process before linking the same
_SAID = 1.0  # seconds after which waiting is said on the log
_POLLS = (0.001, 0.05)  # seconds: the first and the longest pause between two looks
_log = logging.getLogger(__name__)


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
        self._flying: dict[str, Future[LinkedKernel]] = {}
        self._lock = threading.Lock()

    def find(self, recipe: Recipe, database: Path) -> LinkedKernel | None:
        """The kernel of a recipe, from a pack beside its database or from the user's directory."""
        digest = recipe.digest
        begin = time.perf_counter()
        for each in packs.beside(database):
            payload = each.get(digest)
            if payload is not None:
                found = unpack(digest, payload, time.perf_counter() - begin, "pack")
                if found is not None:
                    return found[1]
        payload = self.store.get(ENTRIES, digest) if self.store else None
        if payload is None:
            return None
        found = unpack(digest, payload, time.perf_counter() - begin, "disk")
        return found[1] if found else None

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
        with self._lock:
            future = self._flying.get(digest)
            mine = future is None
            if future is None:
                future = self._flying[digest] = Future()
        if not mine:
            begin = time.perf_counter()
            kernel = future.result()
            events.tell(Kind.WAITED, recipe.kernel, digest, time.perf_counter() - begin)
            return kernel
        try:
            kernel = self._kernel(recipe, link, database)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(kernel)
            return kernel
        finally:
            with self._lock:
                del self._flying[digest]

    def _kernel(self, recipe: Recipe, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        found = self._found(recipe, database)
        if found is not None:
            return found
        if not self._may_link:
            chosen = ", ".join(f"{name}={value}" for name, value in recipe.configuration)
            raise NotCachedError(
                f"is not linked yet, and JITLTO_MODE=cached forbids to link it ({chosen}; digest {recipe.digest})",
                where=recipe.kernel,
                hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
            )
        if self.store is None or self.store.readonly:
            return _linked(recipe, link)
        with self._claimed(self.store, recipe, database):
            # Between our look and our claim another process may have linked it.
            found = self._found(recipe, database)
            if found is not None:
                return found
            kernel = _linked(recipe, link)
            self.store.put(ENTRIES, recipe.digest, pack(recipe, kernel))
            self.store.keep_bound()
            return kernel

    @contextlib.contextmanager
    def _claimed(self, store: Store, recipe: Recipe, database: Path) -> Iterator[None]:
        """Wait until no other process is linking a recipe, or it is there, or patience ends."""
        begin = time.perf_counter()
        pause, said = _POLLS[0], False
        while True:
            claim = store.claim(recipe.digest)
            waited = time.perf_counter() - begin
            if claim is not None or waited > self._patience or self.find(recipe, database) is not None:
                break
            if waited > _SAID and not said:
                said = True
                _log.warning("waiting for another process that links %s", recipe.kernel)
            time.sleep(pause)
            pause = min(2 * pause, _POLLS[1])
        if waited > _POLLS[0]:
            events.tell(Kind.WAITED, recipe.kernel, recipe.digest, waited)
        if claim is None and waited > self._patience:
            _log.warning("another process links %s since %.0f s; linking it too", recipe.kernel, waited)
        try:
            yield
        finally:
            if claim is not None:
                claim.release()

    def _found(self, recipe: Recipe, database: Path) -> LinkedKernel | None:
        kernel = self.find(recipe, database)
        if kernel is not None:
            kind = Kind.FOUND_IN_PACK if kernel.layer == "pack" else Kind.FOUND_ON_DISK
            events.tell(kind, recipe.kernel, recipe.digest, kernel.seconds)
            _log.debug("found %s (%s)", recipe.kernel, kernel.layer)
        return kernel


def _linked(recipe: Recipe, link: Callable[[], LinkedKernel]) -> LinkedKernel:
    kernel = link()
    events.tell(Kind.LINKED, recipe.kernel, recipe.digest, kernel.seconds)
    _log.info("linked %s for %s in %.3f s", recipe.kernel, kernel.architecture.sm, kernel.seconds)
    return kernel


@cache
def default() -> CubinCache:
    """The cache of this process, as ``JITLTO_CACHE`` and the other variables say; made at the first use."""
    settings = config.current()
    store = None
    if settings.cache != "off":
        directory = settings.cache_dir / "cubins"
        store = open_store(directory, settings.cache_size, readonly=settings.cache == "readonly")
    return CubinCache(store, may_link=settings.mode != "cached")


# What the threads of the parent were linking, a fork would wait for in vain.
os.register_at_fork(after_in_child=default.cache_clear)
