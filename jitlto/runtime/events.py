"""What the run side does, seen from outside: counters, and events for those who subscribe.

>>> stop = jitlto.runtime.events.subscribe(print)
>>> jitlto.runtime.events.counters()["linked"]
0
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TypeAlias

from jitlto.frozen import Frozen


class Kind:
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


class Event(Frozen):
    """One thing that happened.

    Parameters
    ----------
    kind : str
        One of :class:`Kind`.
    kernel : str
        The key of the entrypoint fragment.
    digest : str
        The plan's digest; empty where it is not known yet.
    seconds : float
        How long it took.
    """

    kind: str
    kernel: str
    digest: str = ""
    seconds: float = 0.0


Subscriber: TypeAlias = "Callable[[Event], object]"

_lock = threading.Lock()
#: All of them, in the order in which counters list them.
KINDS = tuple(value for name, value in vars(Kind).items() if name.isupper())
_counts = dict.fromkeys(KINDS, 0)
_subscribers: dict[object, Subscriber] = {}


def _in_child() -> None:
    _counts.update(dict.fromkeys(KINDS, 0))  # what happened in the parent
    _lock.release()


# Forked while another thread held the lock, a child would have nobody to release it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)


def counters() -> Mapping[str, int]:
    """How often each kind of event has happened in this process.

    Finding a launcher in memory is no event: it costs less than counting it.
    """
    with _lock:
        return dict(_counts)


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


def tell(kind: str, kernel: str, digest: str = "", seconds: float = 0.0) -> None:
    """Count an event and tell the subscribers."""
    with _lock:
        _counts[kind] += 1
        subscribers = tuple(_subscribers.values())
    event = Event(kind, kernel, digest, seconds)
    for subscriber in subscribers:
        try:
            subscriber(event)
        except Exception:
            import logging

            logging.getLogger(__name__).exception("a subscriber to events failed")
