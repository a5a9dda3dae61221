"""The kernel cache: linked kernels by digest, in packs beside databases, in the user's directory and in shared stores.

A missing kernel is linked once, even if several threads and processes request it at the same time. Locks between
processes only save work: who has waited too long for another links the kernel.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jitlto.base import events as runtime_events
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError, NotCachedError
from jitlto.base.events import Events, Kind
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

if TYPE_CHECKING:  # imported only if there are shared stores
    from jitlto.link.shared_kernels import SharedKernels
    from jitlto.plan.cache_entry import Chosen

V = TypeVar("V")

#: Name of the kind of entry, and of the directory, in the user's cache.
ENTRIES = "kernels"
#: :attr:`LinkedKernel.layer` → the event that is emitted for a kernel from this layer.
EVENT_OF_LAYER = {
    "link": Kind.LINKED,
    "pack": Kind.FOUND_IN_PACK,
    "disk": Kind.FOUND_ON_DISK,
    "store": Kind.FOUND_IN_STORE,
}
_PATIENCE = 60.0  # seconds to wait for another process before linking the same


class KernelCache:
    """Linked kernels by digest.

    Args:
        store: The user's cache directory; None to store nothing.
        shared: The shared stores; None if there are none.
        may_link: Whether a missing kernel may be linked.
        patience: The longest time to wait for another process that links the same kernel, in seconds.
        events: Counts links and hits; by default those of the default session.
        flights: The computations that the process's threads share.
    """

    def __init__(
        self,
        store: CacheDir | None,
        *,
        shared: SharedKernels | None = None,
        may_link: bool = True,
        patience: float = _PATIENCE,
        events: Events = runtime_events.default,
        flights: SingleFlight | None = None,
    ) -> None:
        self.store = store
        self.shared = shared
        self._may_link = may_link
        self._patience = patience
        self._events = events
        self._flights = flights or SingleFlight()
        self._warned: set[str] = set()  # digests

    def warn(self, chosen: Chosen, kernel: LinkedKernel) -> None:
        """Issue what nvJitLink and ptxas warned of when a kernel was linked, once for each kernel."""
        texts = kernel.warnings
        if texts and chosen.digest not in self._warned:
            from jitlto.base.python_warnings import LinkWarning, warn  # imported lazily: most kernels need none

            self._warned.add(chosen.digest)
            for text in texts:
                warn(LinkWarning(f"{chosen.kernel} for {kernel.target}", text))

    def find(self, digest: str, database: Path) -> LinkedKernel | None:
        """Look a kernel up on this machine: in packs beside its database, then in the user's directory.

        Returns:
            LinkedKernel or None: None if it is missing. It may be in a shared store.
        """
        begin = time.perf_counter()
        if has_packs(database):
            from jitlto.link import packs  # imported lazily: most databases have no packs

            for pack in packs.beside(database):
                payload = pack.get(digest)
                if payload is not None:
                    found = LinkedKernel.decode(digest, payload, time.perf_counter() - begin, "pack")
                    if found is not None:
                        return found
        payload = self.store.get(ENTRIES, digest) if self.store else None
        return None if payload is None else LinkedKernel.decode(digest, payload, time.perf_counter() - begin, "disk")

    def get_or_link(self, key: LinkKey, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        """Find a kernel, or link it. One thread does the work; others that request the same kernel wait for its result.

        Raises:
            NotCachedError: If it is missing and may not be linked.
            LinkError: If ``link`` raises it.
        """
        digest = key.digest
        (kernel, elsewhere), here = self._flights.run(digest, lambda: self._find_or_link(key, digest, link, database))
        if here is not None:
            self._events.emit(Kind.WAITED, key.kernel, digest, here)
            return kernel
        # Emitted after the waiting threads were released: a subscriber may be slow, or request the same kernel.
        if kernel.layer in ("link", "store") and self.store is not None:
            self.store.prune_if_due()
        if elsewhere:
            self._events.emit(Kind.WAITED, key.kernel, digest, elsewhere)
        self._events.emit(EVENT_OF_LAYER[kernel.layer], key.kernel, digest, kernel.seconds)
        return kernel

    def _find_or_link(
        self, key: LinkKey, digest: str, link: Callable[[], LinkedKernel], database: Path
    ) -> tuple[LinkedKernel, float]:
        """Return a kernel, and the seconds spent waiting for another process."""
        store, shared = self.store, self.shared
        found = self.find(digest, database)
        if found is not None:
            return found, 0.0
        if not self._may_link and shared is None:
            raise _not_cached(key)

        def link_now() -> LinkedKernel:
            if not self._may_link:
                raise _not_cached(key)
            kernel = link()
            _log("info", "linked %s for %s in %.3f s", key.kernel, kernel.target, kernel.seconds)
            return kernel

        def find_or_link_now() -> LinkedKernel:
            return link_now() if shared is None else shared.get_or_link(key, link_now)

        if store is None or store.readonly:
            return find_or_link_now(), 0.0
        with store.locked(digest, self._patience, f"links {key.kernel}") as waited:
            found = self.find(digest, database)  # another process may have linked it since the first look-up
            if found is not None:
                return found, waited
            kernel = find_or_link_now()
            store.put(ENTRIES, digest, key.encode(kernel))
            return kernel, waited


class _Flight:
    """A computation under way, and its outcome. (`Future` would do, but importing it takes longer than a launch.)"""

    __slots__ = ("ended", "failure", "thread", "value")

    value: Any

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.get_ident()


class SingleFlight:
    """Computations under way, by key.

    A :class:`~jitlto.base.errors.JitltoError` is raised in the waiting threads too. Any other failure (an interrupt, a
    lack of memory) affects only the computing thread; one of the waiting threads then computes instead.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget all computations: in a forked process, the threads that compute do not exist."""
        self._flights: dict[Hashable, _Flight] = {}
        self._lock = threading.Lock()

    def run(self, key: Hashable, compute: Callable[[], V]) -> tuple[V, float | None]:
        """Compute a value, or wait for the thread that computes it.

        Returns:
            value (object)
            waited (float or None): Seconds spent waiting for another thread; None if this thread computed the value.
        """
        begin = time.perf_counter()
        while True:
            with self._lock:
                flights = self._flights  # kept, because a fork meanwhile would replace the attribute
                flight = flights.get(key)
                if flight is None:
                    mine = flights[key] = _Flight()
                    break
            if flight.thread == threading.get_ident():
                return compute(), None  # requested by the computation itself, e.g. by a subscriber to events
            flight.ended.wait()
            if flight.failure is None:
                return flight.value, time.perf_counter() - begin
            if isinstance(flight.failure, JitltoError):
                raise_copy(flight.failure)
        try:
            mine.value = compute()
        except BaseException as error:
            mine.failure = error
            raise
        finally:
            with self._lock:
                del flights[key]
            mine.ended.set()
        return mine.value, None


def _not_cached(key: LinkKey) -> NotCachedError:
    configuration = ", ".join(f"{name}={value}" for name, value in key.configuration)
    return NotCachedError(
        f"kernel is not linked yet, and JITLTO_MODE=cached forbids linking it ({configuration}; digest {key.digest})",
        where=key.kernel,
        hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
    )


def raise_copy(failure: JitltoError) -> NoReturn:
    """Raise a copy of an error: the traceback of one that is raised repeatedly grows with each raise."""
    import copy  # imported lazily: not needed when a kernel is found

    raise copy.copy(failure) from failure.__cause__


def has_packs(database: Path) -> bool:
    """Return whether packs lie beside a database, perhaps of another one."""
    try:
        return any(name.endswith(".pack") for name in os.listdir(database.parent))  # noqa: PTH208 - names are enough
    except OSError:
        return False


def _log(level: str, message: str, *values: object) -> None:
    if level == "info" and "logging" not in sys.modules:
        return  # nobody has asked for what is logged below a warning, and the import takes 2 ms
    import logging

    getattr(logging.getLogger(__name__), level)(message, *values)
