"""How many kernels are loaded at once: the oldest make room, where a bound is set."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from functools import cache
from typing import Protocol

from jitlto.runtime import events
from jitlto.runtime.events import Kind


class Owner(Protocol):
    """What holds launchers by the digest of their plan."""

    name: str

    def forget(self, digest: str) -> None:
        """Drop a launcher."""


class Loaded:
    """The kernels that this process has loaded through families, the oldest first.

    Parameters
    ----------
    limit : int
        How many may be held at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, str], weakref.ref[Owner]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, owner: Owner, digest: str) -> None:
        """Take note of a kernel that was loaded, and have the oldest forgotten beyond the bound.

        A launcher that somebody still holds goes on to work; its code is unloaded when nobody does.
        """
        with self._lock:
            self._held[id(owner), digest] = weakref.ref(owner)
            evicted = []
            while len(self._held) > self._limit:
                (_, old), reference = self._held.popitem(last=False)
                evicted.append((reference(), old))
        for other, old in evicted:
            if other is not None:
                other.forget(old)
                events.tell(Kind.EVICTED, other.name, old)


@cache
def of_process(limit: int) -> Loaded:
    """Those of this process, bounded by ``JITLTO_MAX_LOADED``."""
    return Loaded(limit)
