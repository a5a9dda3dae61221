"""The kernel cache: linked kernels by digest, in packs beside databases, in the user's directory and in shared stores.

A missing kernel is linked once, even if several threads and processes request it at the same time. A lock between
processes only saves work: who has waited too long for another links the kernel.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base import events as runtime_events
from jitlto.base import files
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import NotCachedError
from jitlto.base.events import Events, Kind
from jitlto.base.log import log
from jitlto.base.python_warnings import LinkWarning, warn
from jitlto.link.single_flight import SingleFlight
from jitlto.link.sources import Disk, SharedKernels
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

if TYPE_CHECKING:  # not imported at run time: a kernel that is found needs none of them
    from jitlto.link.sources import KernelSource
    from jitlto.plan.cache_entry import Chosen

#: :attr:`LinkedKernel.layer` → the event that is emitted for a kernel from this layer.
EVENT_OF_LAYER = {
    "link": Kind.LINKED,
    "pack": Kind.FOUND_IN_PACK,
    "disk": Kind.FOUND_ON_DISK,
    "store": Kind.FOUND_IN_STORE,
}
_PATIENCE = 60.0  # seconds to wait for another process before linking the same


class KernelCache:
    """Linked kernels by digest, and the linker that plans hold.

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
        self._disk = [] if store is None else [Disk(store)]
        self._may_link = may_link
        self._patience = patience
        self._events = events
        self._flights = flights or SingleFlight()
        self._warned: set[str] = set()  # digests

    def sources(self, database: Path) -> list[KernelSource]:
        """Return the places on this machine where kernels of a database may lie, in order."""
        return [*_packs(database), *self._disk]

    def look_up_sources(self, database: Path) -> Iterator[KernelSource]:
        """Yield the same places for look-ups, which are equal everywhere: packs, which have to be found, come last."""
        yield from self._disk
        yield from _packs(database)

    def find(self, digest: str, database: Path) -> LinkedKernel | None:
        """Look a kernel up on this machine; None if it is missing. It may be in a shared store."""
        return find_kernel(digest, self.sources(database))

    def get_or_link(self, key: LinkKey, link: Callable[[], LinkedKernel], database: Path) -> LinkedKernel:
        """Find a kernel, or link it. One thread does the work; others that request the same kernel wait for its result.

        Raises:
            NotCachedError: If it is missing and may not be linked.
            LinkError: If ``link`` raises it.
        """
        elsewhere = 0.0
        with self._flights.of(key.digest) as flight:
            if flight.waited is None:
                kernel = self.find(key.digest, database)
                if kernel is None:
                    if not self._may_link and self.shared is None:
                        raise _not_cached(key)
                    alone = self.store and self.store.locked(key.digest, self._patience, f"links {key.kernel}")
                    with alone or nullcontext(0.0) as elsewhere:
                        # Another process may have linked it since the first look-up.
                        kernel = self.find(key.digest, database) or self._find_far(key)
                        if kernel is None:
                            kernel = link()
                            self._keep(key, kernel)
                flight.value = kernel
        found: LinkedKernel = flight.value
        # Emitted after the waiting threads were released: a subscriber may be slow, or request the same kernel.
        if flight.waited or elsewhere:
            self._events.emit(Kind.WAITED, key.kernel, key.digest, flight.waited or elsewhere)
        if flight.waited is None:
            if found.layer in ("link", "store") and self.store is not None:
                self.store.prune_if_due()
            self._events.emit(EVENT_OF_LAYER[found.layer], key.kernel, key.digest, found.seconds)
        return found

    def _find_far(self, key: LinkKey) -> LinkedKernel | None:
        """Find a kernel in the shared stores, and keep it here; raise an error if it may not be linked either."""
        kernel = None if self.shared is None else find_kernel(key.digest, [self.shared])
        if kernel is None and not self._may_link:
            raise _not_cached(key)
        if kernel is not None:
            for place in self._disk:
                place.put(key.digest, key.encode(kernel))
        return kernel

    def _keep(self, key: LinkKey, kernel: LinkedKernel) -> None:
        if "logging" in sys.modules:  # otherwise nobody has asked for what is logged below a warning
            log(__name__, "info", "linked %s for %s in %.3f s", key.kernel, kernel.target, kernel.seconds)
        places: list[KernelSource] = [*self._disk, *([self.shared] if self.shared else [])]
        for place in places:
            place.put(key.digest, key.encode(kernel))

    @property
    def linker(self) -> Callable[..., LinkedKernel]:
        """What links a plan, without looking into any cache for it: :func:`~jitlto.link.linker.link_plan`."""
        from jitlto.link.linker import link_plan  # imported lazily: loads nvJitLink

        return partial(link_plan, self.store)

    def warn(self, chosen: Chosen, kernel: LinkedKernel) -> None:
        """Issue what nvJitLink and ptxas warned of when a kernel was linked, once for each kernel."""
        texts = kernel.warnings
        if texts and chosen.digest not in self._warned:
            self._warned.add(chosen.digest)
            for text in texts:
                warn(LinkWarning(f"{chosen.kernel} for {kernel.target}", text))


def _packs(database: Path) -> Iterable[KernelSource]:
    beside = files.beside(database, ".pack")
    if not beside:
        return ()
    from jitlto.link import packs  # imported lazily: most databases have no packs

    return packs.open_all(beside)


def find_kernel(digest: str, sources: Iterable[KernelSource]) -> LinkedKernel | None:
    """Return a kernel from the first place that has it; None if none has."""
    begin = time.perf_counter()
    for source in sources:
        payload = source.find(digest)
        if payload is not None:
            found = LinkedKernel.decode(digest, payload, time.perf_counter() - begin, source.layer)
            if found is not None:
                return found
    return None


def _not_cached(key: LinkKey) -> NotCachedError:
    configuration = ", ".join(f"{name}={value}" for name, value in key.configuration)
    return NotCachedError(
        f"kernel is not linked yet, and JITLTO_MODE=cached forbids linking it ({configuration}; digest {key.digest})",
        where=key.kernel,
        hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
    )
