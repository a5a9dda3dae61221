"""Counters of what shared stores did for a process; several threads count."""

from __future__ import annotations

import threading

from jitlto.base.frozen import Frozen


class StoreStatistics(Frozen):
    """What shared stores did for a process until now.

    Args:
        hits: Entries that were found.
        misses: Entries that no store had, or had in time.
        rejected: Entries that were not used: damaged, not signed, of a different name.
        failures: Requests that failed, and replies that did not come in time.
        bytes_read: Bytes of the entries that were found.
        bytes_written: Bytes of the entries that were written.
        seconds_waited: Time that callers waited for replies.
        writes: Entries that were written.
        dropped: Entries that were not written, because a store failed, too many waited, or a key is missing.
        leases_lost: Leases that were taken from a machine whose time had passed, or without a store that could say
            whether another has them: what they are for may be made twice.
    """

    hits: int = 0
    misses: int = 0
    rejected: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds_waited: float = 0.0
    writes: int = 0
    dropped: int = 0
    leases_lost: int = 0


class Counters:
    """Statistics in the making."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = dict.fromkeys(StoreStatistics._fields, 0)

    def add(self, **amounts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                self._values[name] += amount

    def snapshot(self) -> StoreStatistics:
        """Return the statistics until now."""
        with self._lock:
            return StoreStatistics(**self._values)  # type: ignore[arg-type]
