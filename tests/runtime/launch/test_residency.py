"""The bound on loaded kernels: the oldest make room, and nothing is kept alive by being counted."""

from __future__ import annotations

import gc
import weakref

from jitlto.runtime.events import Events
from jitlto.runtime.launch.residency import Residency


class Owner:
    """A family, as far as the bound is concerned."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dropped: list[str] = []

    def forget(self, digest: str) -> None:
        self.dropped.append(digest)


def test_the_oldest_kernel_makes_room_for_another() -> None:
    events = Events()
    residency = Residency(2, events)
    one, two = Owner("one"), Owner("two")
    residency.add(one, "a")
    residency.add(two, "b")
    assert (one.dropped, two.dropped) == ([], [])
    residency.add(one, "c")
    residency.add(one, "d")
    assert (one.dropped, two.dropped) == (["a"], ["b"])
    assert events.counters()["evicted"] == 2


def test_owners_that_are_gone_need_not_drop_anything() -> None:
    events = Events()
    residency = Residency(1, events)
    gone = Owner("gone")
    residency.add(gone, "a")
    freed = weakref.ref(gone)
    del gone
    gc.collect()
    assert freed() is None
    residency.add(Owner("other"), "b")
    assert events.counters()["evicted"] == 0
