"""A bound on the number of loaded kernels: the oldest are dropped first."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Protocol

from jitlto.base.events import Events, Kind


class Owner(Protocol):
    """An object that holds launchers by the digest of their plan."""

    name: str

    def forget(self, digest: str) -> None:
        """Drop a launcher."""


class Residency:
    """The kernels that families of a session have loaded, the oldest first.

    Args:
        limit: The largest number of kernels loaded at once.
        events: Where evictions are emitted.
    """

    def __init__(self, limit: int, events: Events) -> None:
        self._limit = limit
        self._events = events
        self._loaded: OrderedDict[tuple[int, str], weakref.ref[Owner]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, owner: Owner, digest: str) -> None:
        """Register a loaded kernel, and drop the oldest ones beyond the bound.

        A launcher that is still referenced keeps working; its code is unloaded with the last reference.
        """
        with self._lock:
            self._loaded[id(owner), digest] = weakref.ref(owner)
            evicted = []
            while len(self._loaded) > self._limit:
                (_, old), reference = self._loaded.popitem(last=False)
                evicted.append((reference(), old))
        for other, old in evicted:
            if other is not None:
                other.forget(old)
                self._events.emit(Kind.EVICTED, other.name, old)
