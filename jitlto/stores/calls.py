"""Callers that wait for replies of a store, each with a queue of its own."""

from __future__ import annotations

import threading
from queue import SimpleQueue


class Call:
    """A caller that waits for replies.

    Each is the name of what was requested and the reply: bytes, whether something was done, None for a miss, an error,
    or an ellipsis while a large object arrives. None wakes the caller, so that it looks at the time.
    """

    def __init__(self) -> None:
        self.replies: SimpleQueue[tuple[str, object] | None] = SimpleQueue()
        self.has_left = False


class Calls:
    """The callers that wait now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Call] = set()

    def add(self, call: Call) -> None:
        """Begin to wait."""
        with self._lock:
            self._waiting.add(call)

    def leave(self, call: Call) -> None:
        """Wait no longer: replies that still come are not looked at."""
        call.has_left = True
        with self._lock:
            self._waiting.discard(call)

    def wake(self) -> None:
        """Let every caller look at how long it may still wait."""
        with self._lock:
            for call in self._waiting:
                call.replies.put(None)
