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
from jitlto.base.cached import SingleFlight, cached_property
from jitlto.base.errors import NotCachedError
from jitlto.base.events import Events, Kind
from jitlto.base.log import LinkWarning, log, warn
from jitlto.link.sources import KERNELS, find_first, open_shared, put_all
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

if TYPE_CHECKING:  # not imported at run time: a kernel that is found needs none of them
    from jitlto.base.config import Config
    from jitlto.link.sources import KernelSource
    from jitlto.plan.cache_entry import Chosen
    from jitlto.stores.shared import SharedStore

#: :attr:`LinkedKernel.layer` → the event that is emitted for a kernel from this layer, and what that is.
LAYERS = {
    "link": (Kind.LINKED, "linked"),
    "pack": (Kind.FOUND_IN_PACK, "found in a pack"),
    "disk": (Kind.FOUND_ON_DISK, "found in the user's cache"),
    "store": (Kind.FOUND_IN_STORE, "found in a shared store"),
}
_PATIENCE = 60.0  # seconds to wait for another process before linking the same


class KernelCache:
    """Linked kernels by digest, and the linker that plans hold.

    Args:
        store: The user's cache directory; None to store nothing.
        settings: They may name a shared store; None for none.
        may_link: Whether a missing kernel may be linked.
        patience: The longest time to wait for another process that links the same kernel, in seconds.
        events: Counts links and hits; by default those of the default session.
        flights: The computations that the process's threads share.
    """

    def __init__(
        self,
        store: CacheDir | None,
        *,
        settings: Config | None = None,
        may_link: bool = True,
        patience: float = _PATIENCE,
        events: Events = runtime_events.default,
        flights: SingleFlight | None = None,
    ) -> None:
        self.store = store
        self._settings = settings
        self._disk: list[KernelSource] = [] if store is None else [store]
        #: Whether a missing kernel may be linked.
        self.may_link = may_link
        self._patience = patience
        self._events = events
        self._flights = flights or SingleFlight()
        self._warned: set[str] = set()  # digests

    @cached_property
    def shared(self) -> SharedStore | None:
        """The shared store, for kernels that are not on this machine; None if there is none.

        Raises:
            StoreError: If its address is malformed.
        """
        return open_shared(self._settings) if self._settings else None

    @property
    def _far(self) -> list[KernelSource]:
        return [self.shared] if self.shared else []

    def sources(self, database: Path) -> Iterator[KernelSource]:
        """Yield the places on this machine where kernels of a database and what leads to them may lie, in order."""
        if files.beside(database, ".pack"):
            from jitlto.link import packs  # imported lazily: most databases have no packs

            yield from packs.beside(database)
        yield from self._disk

    def find(self, digest: str, database: Path) -> LinkedKernel | None:
        """Look a kernel up on this machine; None if it is missing. It may be in a shared store."""
        return find_kernel(digest, self.sources(database))

    def get_or_link(
        self, key: LinkKey, link: Callable[[], LinkedKernel], database: Path, *, is_behind: bool = False
    ) -> LinkedKernel:
        """Find a kernel, or link it. One thread does the work; others that request the same kernel wait for its result.

        So do other processes of this machine, unless it is done behind launches: the first lock of a process imports
        modules for 9 ms, in which a launch could wait for the interpreter.

        Raises:
            NotCachedError: If it is missing and may not be linked.
            LinkError: If ``link`` raises it.
        """
        begin, waited = time.perf_counter(), 0.0
        with self._flights.of(key.digest) as flight:
            found: LinkedKernel | None = flight.value
            is_first = found is None
            if found:
                waited = time.perf_counter() - begin
            elif not (found := self.find(key.digest, database)):
                # Who may not link waits for nobody who does.
                alone = (
                    self.may_link
                    and not is_behind
                    and self.store
                    and self.store.locked(key.digest, self._patience, f"links {key.kernel}")
                )
                with alone or nullcontext(0.0) as waited:
                    # Another process may have linked it since the first look-up.
                    found = self.find(key.digest, database) or self._find_far(key)
                    if not found:
                        found = link()
                        put_all([*self._disk, *self._far], KERNELS, key.digest, key.encode(found))
            flight.value = found
        # Emitted after the waiting threads were released: a subscriber may be slow, or request the same kernel.
        if waited:
            self._events.emit(Kind.WAITED, key.kernel, key.digest, waited)
        if is_first:
            if found.layer == "link" and "logging" in sys.modules:  # else nobody has asked for more than warnings
                log(__name__, "info", "linked %s for %s in %.3f s", key.kernel, found.target, found.seconds)
            if found.layer in ("link", "store") and self.store is not None:
                self.store.prune_if_due()
            self._events.emit(LAYERS[found.layer][0], key.kernel, key.digest, found.seconds)
        return found

    def _find_far(self, key: LinkKey) -> LinkedKernel | None:
        """Find a kernel in the shared store, and keep it here; raise an error if it may not be linked either."""
        kernel = find_kernel(key.digest, self._far)
        if kernel is not None:
            put_all(self._disk, KERNELS, key.digest, key.encode(kernel))
        elif not self.may_link:
            told = "".join(f"{name}={value}, " for name, value in key.configuration) + f"digest {key.digest}"
            raise NotCachedError(
                f"kernel is not linked yet, and JITLTO_MODE=cached forbids linking it ({told})",
                where=key.kernel,
                hint="link it ahead with `jitlto warm`, on any machine with the same nvJitLink",
            )
        return kernel

    def open_store_soon(self) -> None:
        """Open the shared store, if there is one, in the background: a kernel may be needed that is not here."""
        if self.shared is not None:
            self.shared.open_soon()

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


def find_kernel(digest: str, sources: Iterable[KernelSource]) -> LinkedKernel | None:
    """Return a kernel from the first place that has it; None if none has."""
    begin = time.perf_counter()

    def decode(payload: bytes, layer: str) -> LinkedKernel | None:
        return LinkedKernel.decode(digest, payload, time.perf_counter() - begin, layer)

    return find_first(sources, KERNELS, digest, decode)
