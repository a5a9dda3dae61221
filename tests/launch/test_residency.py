"""The bound on loaded kernels: the oldest are dropped by who holds them, and an owner that is gone holds none."""

from __future__ import annotations

from jitlto.base.events import Events, Kind
from jitlto.launch.residency import Residency


class Family:
    """An owner that notes what it is told to drop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dropped: list[str] = []

    def forget(self, digest: str) -> None:
        self.dropped.append(digest)


def test_the_oldest_kernels_are_dropped_whoever_owns_them() -> None:
    events = Events()
    residency = Residency(2, events)
    first, second = Family("first"), Family("second")
    for owner, digest in ((first, "a"), (second, "a"), (second, "b"), (first, "c")):
        residency.add(owner, digest)
    assert (first.dropped, second.dropped) == (["a"], ["a"])
    assert events.counters()[str(Kind.EVICTED)] == 2


def test_a_freed_owner_is_ignored() -> None:
    residency = Residency(1, Events())
    residency.add(Family("gone"), "a")
    last = Family("last")
    residency.add(last, "b")
    assert last.dropped == []
