"""How long a process waits for a store that fails, in all, and when a store that failed is tried again."""

from __future__ import annotations

import threading
import time

#: Seconds that a process loses at most by waiting for one store that fails: ``JITLTO_STORE_PATIENCE``.
DEFAULT = 0.05
_WAITED = 0.75  # of it, by intent: a thread that wakes up while another one imports waits longer than that
_FOR_OPENING = 0.3  # of it
_DELAY = 0.05  # of it: what opening may take beyond that because this machine is busy
_PROOF = 3  # good replies: after them, waiting for the store to be opened was not in vain
_MOST_FAILURES = 3  # one after the other; then the store is off
_FIRST_BACK_OFF = 1.0  # seconds
_LONGEST_BACK_OFF = 300.0


class BackOff:
    """Whether requests of one sort may be sent: not for a while after several have failed, longer each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = _FIRST_BACK_OFF
        self._retry_at: float | None = None

    @property
    def is_off(self) -> bool:
        """Whether no request may be sent now, other than one for which :meth:`may_retry` was true."""
        return self._retry_at is not None

    def may_retry(self) -> bool:
        """Return whether to try once, now, whether the store is back; True for one caller alone."""
        with self._lock:
            now = time.monotonic()
            if self._retry_at is None or now < self._retry_at:
                return False
            self._pause = min(self._pause * 2, _LONGEST_BACK_OFF)
            self._retry_at = now + self._pause
            return True

    def succeeded(self) -> None:
        """Note a request that succeeded."""
        if self._failures or self._retry_at is not None:
            with self._lock:
                self._failures, self._pause, self._retry_at = 0, _FIRST_BACK_OFF, None

    def failed(self, *, at_once: bool = False) -> bool:
        """Note a request that failed; return whether the store is off now and was not before.

        Args:
            at_once: Whether one such failure is enough.
        """
        with self._lock:
            self._failures += 1
            if self._retry_at is not None or (not at_once and self._failures < _MOST_FAILURES):
                return False
            self._retry_at = time.monotonic() + self._pause
            return True


class Patience:
    """The time that callers may still lose by waiting for one store.

    Waiting for a store that is being opened counts, and so does waiting for replies that fail or do not come; that of
    several threads at the same time counts once. Three tenths of the time, at most, go into opening and the first
    reply, which no longer count when the store has answered a few times. A quarter is kept for what waits take longer
    than intended.

    Args:
        seconds: The time for this process.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._left = _WAITED * seconds
        self._left_for_opening = _FOR_OPENING * seconds
        self._delay = _DELAY * seconds
        self._counted_until = 0.0
        self._opening = 0.0  # counted
        self._good = 0  # replies

    @property
    def is_spent(self) -> bool:
        """Whether nobody waits for the store any more."""
        return self._left <= 0

    @property
    def left(self) -> float:
        """Seconds that callers may still lose."""
        return self._left

    @property
    def left_for_opening(self) -> float:
        """Seconds that a caller may wait for the store to be opened."""
        return min(self._left, self._left_for_opening)

    def deadline(self, since: float, *, opening: bool = False) -> float:
        """Return until when a caller may wait who has received nothing since a time of :func:`time.monotonic`."""
        with self._lock:
            return max(since, self._counted_until) + (self.left_for_opening if opening else self._left)

    def answered(self) -> None:
        """Note a good reply in time."""
        with self._lock:
            self._good += 1
            if self._good == _PROOF and self._left:
                self._left += self._opening

    def lost(self, since: float, *, opening: bool = False) -> None:
        """Count the time since then: what a caller waited for failed, or has not come."""
        with self._lock:
            now = time.monotonic()
            seconds = max(0.0, now - max(since, self._counted_until))
            self._counted_until = now
            if opening:
                seconds = min(seconds, self._left_for_opening + self._delay)
                self._left_for_opening -= seconds
                self._opening += seconds
                if self._left_for_opening < 0.001:
                    self._left_for_opening = 0.0
            self._left = max(0.0, self._left - seconds)
            if self._left < 0.001:  # too little for any reply
                self._left = 0.0
