"""What the run side does, seen from outside: counters, and events for those who subscribe.

>>> stop = jitlto.runtime.events.subscribe(print)
>>> jitlto.runtime.events.counters()["linked"]
0
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

_log = logging.getLogger(__name__)


class Kind(StrEnum):
    """What can happen to a kernel."""

    #: A configuration was resolved.
    PLANNED = "planned"
    #: Linked code was found in a pack beside a database.
    FOUND_IN_PACK = "found_in_pack"
    #: Linked code was found in the user's cache.
    FOUND_ON_DISK = "found_on_disk"
    #: nvJitLink linked it.
    LINKED = "linked"
    #: Another thread or process linked it, and was waited for.
    WAITED = "waited"
    #: The driver loaded it.
    LOADED = "loaded"
    #: A loaded kernel was forgotten to make room for another.
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Parameters
    ----------
    kind : Kind
    kernel : str
        The key of the entrypoint fragment.
    digest : str
        The plan's digest; empty where it is not known yet.
    seconds : float
        How long it took.
    """

    kind: Kind
    kernel: str
    digest: str = ""
    seconds: float = 0.0


Subscriber = Callable[[Event], object]

_lock = threading.Lock()
_counts: Counter[Kind] = Counter()
_subscribers: dict[object, Subscriber] = {}


def _in_child() -> None:
    _counts.clear()  # what happened in the parent
    _lock.release()


# Forked while another thread held the lock, a child would have nobody to release it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)


def counters() -> Mapping[str, int]:
    """How often each kind of event has happened in this process.

    Finding a launcher in memory is no event: it costs less than counting it.
    """
    with _lock:
        return {kind.value: _counts[kind] for kind in Kind}


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Have ``subscriber`` called with every event, in the thread in which it happens.

    What it raises is logged and goes no further.

    Returns
    -------
    callable
        Ends the subscription.
    """
    subscription = object()  # its own, should the same subscriber subscribe twice
    with _lock:
        _subscribers[subscription] = subscriber

    def stop() -> None:
        with _lock:
            _subscribers.pop(subscription, None)

    return stop


def tell(kind: Kind, kernel: str, digest: str = "", seconds: float = 0.0) -> None:
    """Count an event and tell the subscribers."""
    with _lock:
        _counts[kind] += 1
        subscribers = tuple(_subscribers.values())
    event = Event(kind, kernel, digest, seconds)
    for subscriber in subscribers:
        try:
            subscriber(event)
        except Exception:  # noqa: BLE001 - whatever a subscriber does
            _log.exception("a subscriber to events failed")
