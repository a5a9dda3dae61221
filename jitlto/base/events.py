"""Counters of what the run side does, and events for those who subscribe.

>>> stop = jitlto.base.events.subscribe(print)
>>> jitlto.base.events.counters()["linked"]
0
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from jitlto.base.frozen import Frozen
from jitlto.base.log import log


class Kind:
    """The kinds of events."""

    #: A configuration was resolved.
    PLANNED = "planned"
    #: The kernel of a plan is about to be found or linked.
    REQUESTED = "requested"
    #: Linked code was found in a pack beside a database.
    FOUND_IN_PACK = "found_in_pack"
    #: Linked code was found in the user's cache.
    FOUND_ON_DISK = "found_on_disk"
    #: Linked code was found in a shared store.
    FOUND_IN_STORE = "found_in_store"
    #: nvJitLink linked it.
    LINKED = "linked"
    #: It was linked of cubins, for its first launches.
    LINKED_FAST = "linked_fast"
    #: This thread waited while another thread, process or machine linked it.
    WAITED = "waited"
    #: The driver loaded it.
    LOADED = "loaded"
    #: The kernel that was linked with LTO took the place of the one that was linked fast.
    EXCHANGED = "exchanged"


class Event(Frozen):
    """One thing that happened.

    Args:
        kind: One of :class:`Kind`.
        kernel: The key of the entrypoint fragment.
        digest: The plan's digest; empty if it is not known yet.
        seconds: Its duration.
        plan (Plan or None): The plan, for :attr:`Kind.REQUESTED`.
    """

    kind: str
    kernel: str
    digest: str = ""
    seconds: float = 0.0
    plan: object = None


Subscriber: TypeAlias = "Callable[[Event], object]"
#: Name and kernel of a step → a context that the step runs in.
StepObserver: TypeAlias = "Callable[[str, str], AbstractContextManager[object]]"
_UNOBSERVED = nullcontext()

#: All kinds, in the order in which counters list them.
KINDS = tuple(value for name, value in vars(Kind).items() if name.isupper())


class Events:
    """The counters and subscribers of a session."""

    def __init__(self) -> None:
        self.after_fork()
        self._subscribers: dict[object, Subscriber] = {}
        #: Who observes steps while they run, such as a profiler.
        self.step_observer: StepObserver | None = None

    def step(self, name: str, kernel: str) -> AbstractContextManager[object]:
        """Return the context in which to run a step that takes long: ``plan``, ``link`` or ``load``."""
        observer = self.step_observer
        return _UNOBSERVED if observer is None else observer(name, kernel)

    def counters(self) -> Mapping[str, int]:
        """Return the number of events of each kind.

        Finding a launcher in memory is not an event: counting it would cost more than finding it.
        """
        with self._lock:
            return dict(self._counts)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have ``subscriber`` called with every event, in the thread in which it happens.

        An exception that it raises is logged and not propagated.

        Returns:
            callable: Ends the subscription.
        """
        subscription = object()  # a unique token, so that one callable may subscribe twice
        with self._lock:
            self._subscribers[subscription] = subscriber

        def stop() -> None:
            with self._lock:
                self._subscribers.pop(subscription, None)

        return stop

    def emit(self, kind: str, kernel: str, digest: str = "", seconds: float = 0.0, plan: object = None) -> None:
        """Count an event and hand it to the subscribers."""
        with self._lock:
            self._counts[kind] += 1
            subscribers = tuple(self._subscribers.values())
        event = Event(kind, kernel, digest, seconds, plan)
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - of any code of a caller
                log(__name__, "exception", "a subscriber to events failed")

    def after_fork(self) -> None:
        """Begin anew in a forked process: another thread may have held the lock, and the counts are the parent's."""
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(KINDS, 0)


#: The events of the default session.
default = Events()
counters = default.counters
subscribe = default.subscribe
