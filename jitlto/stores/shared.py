"""The shared store of a process: opened, read and written in threads of ours, checked, and never the cause of an error.

A caller hears of replies through a queue, and leaves when the bound on what it may lose ends.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from jitlto.base.config import Config
from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.base.log import warn_once
from jitlto.stores import entry
from jitlto.stores.address import parse_store
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.trust import load_signing_key, load_trusted

if TYPE_CHECKING:
    from jitlto.stores.signatures import SigningKey, TrustedKeys

# Parts of the patience. What is left is for threads that wake up late, behind one that imports.
_FOR_OPENING, _FOR_REPLIES = 0.3, 0.45
_MOST_FAILURES = 3  # one after the other; then the process goes on without the store
_READERS, _WRITERS = 8, 4  # threads
_MOST_QUEUED = 256 << 20  # bytes
_AT_EXIT = 2.0  # seconds at most for what is not written yet
_PROBE = "v1/probe"  # need not exist
_LATE = "a reply did not come in time; set JITLTO_STORE_PATIENCE to more seconds if the store is far away"


class _Workers:
    """Daemon threads, for whose tasks a process does not wait when it ends, as it would for concurrent.futures."""

    def __init__(self, most: int) -> None:
        self._missing = most
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def submit(self, task: Callable[[], None]) -> None:
        """Run a function that raises nothing as soon as a thread is free."""
        self._tasks.put(task)
        if self._missing > 0:
            with suppress(RuntimeError):  # no more threads, or the interpreter is ending
                self._missing -= 1
                # Thread.start() would wait until the new thread has had its turn, behind one that imports.
                _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self._tasks.get()()


class SharedStore:
    """The shared store of a process; in one that is forked from it, where obstore hangs, nothing is found or written.

    Args:
        settings: They name the store, and decide what is trusted and what signs.
        patience: Seconds that callers may lose by waiting for it in vain; a wait that ends with a good reply costs
            nothing. Waiting for the store to be opened has a part of its own: one that takes longer is used when it
            has answered.

    Attributes:
        counts: What it did until now: ``hits``; entries that were ``rejected``; ``failures``, late replies included;
            ``bytes_read`` and ``bytes_written`` of entries; ``writes``; and entries that were ``dropped``, since the
            store failed, too many waited or a key is missing.
    """

    #: What kernels that come from it are marked with; see ``jitlto.link.sources``.
    layer = "store"

    def __init__(self, settings: Config, patience: float) -> None:
        self._settings, self.address = settings, parse_store(settings.store, "JITLTO_STORE")
        self.counts: Counter[str] = Counter()
        self._pid = os.getpid()
        self._for_opening, self._for_replies = _FOR_OPENING * patience, _FOR_REPLIES * patience  # what is left
        self._failures = 0  # one after the other
        self._is_given_up = False
        self._writes = self.address.writes
        self._readers, self._writers = _Workers(_READERS), _Workers(_WRITERS)
        self._changed = threading.Condition()  # guards counts, and what follows
        self._queued = 0  # bytes, and one for each entry
        self._begun = threading.Lock()  # acquired once
        self._opened = threading.Event()  # set too if it fails
        self._backend: Backend | None = None
        self._trusted: TrustedKeys | None = None
        self._key: SigningKey | None = None
        self._absent = set[str]()  # names of objects that were missing
        atexit.register(self.flush, _AT_EXIT, self._for_replies / 2)

    # Opening

    def open_soon(self) -> None:
        """Open the store in the background, once: before the first use this saves its caller the wait."""
        if not self._is_forked and self._begun.acquire(blocking=False):
            self._readers.submit(self._open)

    def _open(self) -> None:
        """Load obstore and the keys, and send one request, so that a connection with all that it needs is there."""
        try:
            self._trusted = load_trusted(self._settings, self.address)
            try:
                self._key = load_signing_key(self._settings, self.address) if self._writes else None
            except StoreError as error:
                self._stop_writing(error)
            backend = open_backend(self.address, retries=0, makes=self.address.writes)
            backend.get(_PROBE)
            self._backend = backend
        except BaseException as error:  # noqa: BLE001 - Rust's panics too; a thread of ours ends without a traceback
            self._failed(error, at_once=True)
        finally:
            self._opened.set()

    @property
    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    # Reading

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the checked payload of an entry; None if there is none that comes in time."""
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the checked payloads of the entries that come in time, by key; they are read side by side."""
        self.open_soon()
        found: dict[str, bytes] = {}
        if self._is_forked:
            return found
        begin = time.monotonic()
        self._opened.wait(max(0.0, self._for_opening))
        self._for_opening -= time.monotonic() - begin
        if self._backend is None:
            return found
        replies: SimpleQueue[tuple[str, bytes | None, bool]] = SimpleQueue()
        pending, since = set(keys), time.monotonic()
        for key in pending:
            self._readers.submit(partial(self._answer, kind, key, replies))
        while pending and self._is_waited_for:
            try:
                # One that is here is not late: this thread is.
                left = self._for_replies - (time.monotonic() - since)
                key, payload, is_good = replies.get(timeout=max(0.0, left))
            except Empty:
                self._for_replies = 0.0
                self._count(failures=1)
                self._warn("nothing more is read from it by this process", _LATE)
                break
            pending.discard(key)
            if payload is not None:
                found[key] = payload
            if not is_good:
                self._for_replies -= time.monotonic() - since
            since = time.monotonic()
        return found

    def _answer(self, kind: str, key: str, replies: SimpleQueue[tuple[str, bytes | None, bool]]) -> None:
        """Get and check one entry, in a thread of ours."""
        payload, is_good, name = None, True, entry.object_name(kind, key)
        try:
            if self._is_waited_for and self._backend is not None:
                data = self._backend.get(name)
                if data is None:
                    self._absent.add(name)
                else:
                    payload = entry.decode(kind, key, data, self._trusted)
                    self._count(hits=1, bytes_read=len(data))
                self._failures = 0
        except RejectedEntryError as error:
            self._count(rejected=1)
            self._warn("an entry is rejected", str(error), error.what if error.what != entry.DAMAGED else "failed")
        except BaseException as error:  # noqa: BLE001 - as above
            is_good = False
            self._failed(error)
        replies.put((key, payload, is_good))

    @property
    def _is_waited_for(self) -> bool:
        return self._for_replies > 0 and not self._is_given_up

    def _failed(self, error: BaseException, *, at_once: bool = False) -> None:
        """Note a failed request: after several, or ``at_once``, the process goes on without the store."""
        self._count(failures=1)
        self._failures += 1
        if self._failures >= _MOST_FAILURES or at_once or _is_denied(error):
            self._is_given_up = True
            self._warn("it is not used any more by this process", str(error))

    # Writing

    @property
    def takes_writes(self) -> bool:
        """Whether entries are written to it, as far as is known yet."""
        return self._writes and not self._is_given_up and not self._is_forked

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Write an entry in the background, unless a good one is there."""
        size = len(payload) + 1
        if self._is_forked:
            return
        self.open_soon()
        with self._changed:
            is_full = self._queued and self._queued + size > _MOST_QUEUED
            if is_full or not self.takes_writes:
                self.counts["dropped"] += self.address.writes
                return
            self._queued += size
        self._writers.submit(partial(self._put, kind, key, payload))

    def _put(self, kind: str, key: str, payload: bytes) -> None:
        dropped = 1
        try:
            self._opened.wait()
            if self._backend is not None and self.takes_writes:
                if not self._is_there(self._backend, kind, key):
                    data = entry.encode(kind, key, payload, self._key)
                    self._backend.put(entry.object_name(kind, key), data)
                    self._absent.discard(entry.object_name(kind, key))
                    self._count(writes=1, bytes_written=len(data))
                self._failures = dropped = 0
        except BaseException as error:  # noqa: BLE001 - as above
            if _is_denied(error):
                self._stop_writing(error)
            else:
                self._failed(error)
        finally:
            with self._changed:
                self.counts["dropped"] += dropped
                self._queued -= len(payload) + 1
                self._changed.notify_all()

    def _stop_writing(self, error: BaseException) -> None:
        self._writes = False
        self._warn("nothing is written", str(error), "nothing is written")

    def _is_there(self, backend: Backend, kind: str, key: str) -> bool:
        """Return whether the store holds a good entry."""
        name = entry.object_name(kind, key)
        with suppress(RejectedEntryError):
            if name not in self._absent and (there := backend.get(name)) is not None:
                entry.decode(kind, key, there, self._trusted)
                return True
        return False

    def flush(self, timeout: float, stall: float | None = None) -> bool:
        """Wait so many seconds until everything is written or given up; say and return False if something is left.

        In ``stall`` seconds the store has to write something, and in none after it was too late for a reader.
        """
        if self._is_forked:
            return True
        end = time.monotonic() + timeout
        stall = timeout if stall is None else stall if self._for_replies > 0 else 0.0
        with self._changed:
            while self._queued:
                if not self._changed.wait(max(0.0, min(end - time.monotonic(), stall))):
                    self._warn("not everything was written", "it did not do it in time")
                    return False
        return True

    def _count(self, **amounts: int) -> None:
        with self._changed:
            self.counts.update(amounts)

    def _warn(self, what: str, why: str, subject: str = "failed") -> None:
        """Warn about something that is not done or not used, once for each subject."""
        warn_once(__name__, (self.address.url, subject), "shared store %s: %s: %s", self.address.url, what, why)


def _is_denied(error: BaseException) -> bool:
    return getattr(error, "code", "") == "store-denied"


#: The store of this process, or of the one that it was forked from: the same for the same settings.
store_of = cache(SharedStore)
