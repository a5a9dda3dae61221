"""One shared store as a process uses it: opened, read and written in threads of ours, and never the cause of an error.

A caller hears of replies through a queue, and leaves when the bound on what it may lose ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.base.log import WarnOnce, log
from jitlto.stores import entry
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import REFRESH_AFTER, Backend, open_backend
from jitlto.stores.patience import Bound, Breaker, Workers
from jitlto.stores.trust import SigningKey, Trust, TrustedKeys

_READERS, _WRITERS = 8, 4  # threads
_MOST_QUEUED_BYTES = 256 << 20
_TIME_LIMIT = 60.0  # seconds: of a request that nobody waits for
_POLL = 0.01  # seconds in which a caller notices that others have given the store up
_PROBE = "v1/probe"  # need not exist
_HOPELESS = {"store-missing-package", "store-settings", "store-forked", "store-address"}
_OFF_AT_ONCE = {*_HOPELESS, "store-denied"}
_GIVEN_UP = "nothing more is read from it by this process"
_LATE = "a reply did not come in time; set JITLTO_STORE_PATIENCE to more seconds if the store is far away"

_warn = WarnOnce(__name__)


@dataclass
class StoreStatistics:
    """What shared stores did for a process until now.

    Args:
        hits: Entries that were found.
        misses: Entries that no store had, or had in time.
        rejected: Entries that were not used: damaged, not signed, of a different name.
        failures: Requests that failed, and replies that did not come in time.
        bytes_read: Bytes of the entries that were found.
        bytes_written: Bytes of the entries that were written.
        writes: Entries that were written.
        dropped: Entries that were not written, because a store failed, too many waited, or a key is missing.
    """

    hits: int = 0
    misses: int = 0
    rejected: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    writes: int = 0
    dropped: int = 0


_counting = threading.Lock()


class _Call:
    """A caller that waits for replies: keys with what was found, None, an error, or an ellipsis for a piece of it."""

    def __init__(self) -> None:
        self.replies: SimpleQueue[tuple[str, object]] = SimpleQueue()
        self.has_left = False


class Store:
    """A store: requests to it, how long it may still be waited for, and what waits to be written.

    Args:
        address: The store.
        trust: What is trusted, and what signs.
        patience: Seconds that callers may lose by waiting for it.
        counts: Where to count.
    """

    def __init__(self, address: StoreAddress, trust: Trust, patience: float, counts: StoreStatistics) -> None:
        self.address = address
        self.reads, self.writes = address.reads, address.writes
        self._trust = trust
        self._counts = counts
        self._bound = Bound(patience)
        self._reading, self._writing = Breaker(), Breaker()
        self._readers, self._writers = Workers(_READERS), Workers(_WRITERS)
        self._lock = threading.Lock()
        self._has_begun = False
        self._loaded, self._opened = threading.Event(), threading.Event()  # set too if it fails
        self._has_answered = False  # so what follows needs no new connection, credentials or names
        self._backend: Backend | None = None
        self._trusted: TrustedKeys | None = None
        self._key: SigningKey | None = None
        self._key_lock = threading.Lock()
        self._has_key = False  # or knows that there is none
        self._absent = set[str]()  # names of objects that were missing or rejected
        self._changed = threading.Condition()
        self._queued = self._queued_bytes = 0

    # Opening

    def open_soon(self) -> None:
        """Open the store in the background, unless that has begun already."""
        with self._lock:
            begins, self._has_begun = not self._has_begun, True
        if begins:
            self._submit(self._open)

    def _open(self) -> None:
        """Load obstore and the keys, and send one request, so that a connection with all that it needs is there."""
        try:
            if self._backend is None:
                # A store that is only written to has the same readers: what they would reject is replaced.
                try:
                    self._trusted = self._trust.load_trusted()
                except StoreError as error:
                    if self.reads:
                        self._warn("nothing is read", str(error))
                    self.reads = False
                if self._trust.key is None:
                    self._load_key()  # there is none, which is known at once
                if self.reads or self.writes:
                    self._backend = open_backend(self.address, timeout=_TIME_LIMIT)
                self._loaded.set()
            if self._backend is not None:
                self._backend.get(_PROBE)
                self._has_answered = True
            self._reading.succeeded()
        except BaseException as error:  # noqa: BLE001 - Rust's panics too; a thread of ours ends without a traceback
            self._failed(error, at_once=True)
        finally:
            self._loaded.set()
            self._opened.set()

    @property
    def is_opening(self) -> bool:
        """Whether it is being opened: requests may be answered when it is open."""
        return self._has_begun and not self._has_answered and not self._opened.is_set()

    @property
    def is_waited_for(self) -> bool:
        """Whether callers wait for replies: it has not failed."""
        return not (self._bound.is_spent or self._reading.is_open)

    # Reading

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Return the entries that come in time, by key: payload and object."""
        if not self._bound.is_spent and self._reading.may_retry():
            self._submit(self._open)
        if not self.is_waited_for or not self._wait_until_loaded():
            return {}
        call, pending, since = _Call(), set(keys), time.monotonic()
        found: dict[str, tuple[bytes, bytes]] = {}
        try:
            if not all(self._submit(partial(self._reply, call, kind, key)) for key in pending):
                return found
            while pending and self.is_waited_for:
                opening = not self._has_answered
                left = self._bound.left(since, opening=opening)
                try:
                    # One that is here is not late: this thread is.
                    key, result = call.replies.get(timeout=min(_POLL, max(0.0, left)))
                except Empty:
                    if left <= 0:
                        self._late(since, opening)
                        return found
                    continue
                if isinstance(result, tuple):
                    found[key] = result
                    self._count(bytes_read=len(result[1]))
                elif isinstance(result, BaseException):
                    self._failed(result, since)
                if result is not ...:
                    pending.discard(key)
                since = time.monotonic()
            if pending:
                self._bound.lose(since)
        finally:
            call.has_left = True
        return found

    def _wait_until_loaded(self) -> bool:
        if not self._loaded.is_set():
            self.open_soon()
            since = time.monotonic()
            self._loaded.wait(max(0.0, self._bound.left(since, opening=True)))
            self._bound.lose(since, opening=True)
        if not self._has_answered and self._bound.left(time.monotonic(), opening=True) <= 0:
            return False  # it is used when it has answered
        return self._loaded.is_set() and self._backend is not None and self.reads

    def _reply(self, call: _Call, kind: str, key: str) -> None:
        """Get and check one entry, in a thread of ours."""
        if call.has_left:
            return
        try:
            call.replies.put((key, self._get(call, kind, key)))
            self._has_answered = True
            self._reading.succeeded()
        except BaseException as error:  # noqa: BLE001 - as above
            if isinstance(error, RejectedEntryError):
                self._has_answered = True
                if error.reason != entry.A_PAGE:  # that is not what the store holds
                    self._absent.add(entry.object_name(kind, key))
            call.replies.put((key, error))

    def _get(self, call: _Call, kind: str, key: str) -> tuple[bytes, bytes] | None:
        name, backend = entry.object_name(kind, key), self._backend
        found = backend.open(name) if backend else None
        if found is None or backend is None:
            self._absent.add(name)
            return None
        backend.check_size(found)
        pieces: list[bytes] = []
        for piece in found.pieces:
            if not pieces and len(piece) < found.size:  # the rest of what would be rejected is not received
                entry.read_header(kind, key, piece, found.size, self._trusted)
            pieces.append(piece)
            if len(piece) < found.size:  # it is large
                if call.has_left or self._bound.is_spent:
                    raise StoreError("nobody waits any more", code="store-failed")
                call.replies.put((key, ...))
        data = b"".join(pieces)
        payload = entry.decode(kind, key, data, self._trusted)
        if self.writes and time.time() - found.modified > REFRESH_AFTER:
            self._writers.submit(partial(_refresh, backend, name, data))
        return payload, data

    def _late(self, since: float, opening: bool) -> None:
        """Note that no reply came in time: nothing more is read, unless it is the first, which takes long to get."""
        self._bound.lose(since, opening=opening)
        self._count(failures=1)
        if not opening:
            self._warn(_GIVEN_UP, _LATE, "failed")

    def _failed(self, error: BaseException, since: float | None = None, *, at_once: bool = False) -> None:
        """Note a failed reply; one that is only rejected does not open the breaker."""
        if isinstance(error, RejectedEntryError):
            self._count(rejected=1)
            # If something other than a store answers, what else fails has the same cause.
            subject = "failed" if error.reason in (entry.A_PAGE, entry.NOT_AN_ENTRY) else error.reason
            self._warn("an entry", str(error), subject)
            return
        self._count(failures=1)
        code = getattr(error, "code", "")
        if since is not None:
            self._bound.lose(since)
        if code == "store-forked":
            log(__name__, "debug", "shared store %s: %s", self.address.url, error)
        elif self._reading.failed(at_once=at_once or code in _OFF_AT_ONCE):
            self._warn("it is not used" if code in _HOPELESS else "it is not used for a while", str(error), "failed")
        if code in _HOPELESS:
            self.writes = False
        if self._bound.is_spent:
            self._warn(_GIVEN_UP, str(error), "failed")

    # Writing

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Write an entry in the background, unless a good one is there."""

        def write(backend: Backend) -> None:
            signing_key = self._load_key()
            if self.writes:
                self._write(backend, kind, key, entry.encode(kind, key, payload, signing_key))
            else:
                self._count(dropped=1)

        self._enqueue(len(payload), write)

    def put_object(self, kind: str, key: str, data: bytes) -> None:
        """Write another store's object in the background, if this store's readers would trust it."""

        def write(backend: Backend) -> None:
            with suppress(RejectedEntryError):
                if self.reads:  # else what is trusted is not known
                    entry.decode(kind, key, data, self._trusted)
                    self._write(backend, kind, key, data)

        self._enqueue(len(data), write)

    def _write(self, backend: Backend, kind: str, key: str, data: bytes) -> None:
        name = entry.object_name(kind, key)
        if name not in self._absent:
            found = backend.open(name, entry.MOST_HEADER_BYTES)
            with suppress(RejectedEntryError):
                if found is not None:
                    entry.read_header(kind, key, next(found.pieces, b""), found.size, self._trusted)
                    return
        backend.put(name, data)
        self._absent.discard(name)
        self._count(writes=1, bytes_written=len(data))

    def _load_key(self) -> SigningKey | None:
        with self._key_lock:
            if not self._has_key and self.writes:
                self._has_key = True
                try:
                    self._key = self._trust.load_signing_key()
                except StoreError as error:
                    self._warn("nothing is written", str(error))
                    self.writes = False
                if self._key is not None and self._trusted is not None and self._key.id not in self._trusted.ids:
                    what = "what is written here is not read here"
                    self._warn(what, "JITLTO_STORE_SIGNERS lacks the key that signs")
            return self._key

    def _enqueue(self, size: int, write: Callable[[Backend], None]) -> None:
        if not self.writes:
            self._count(dropped=int(self.address.writes))
            return
        self.open_soon()
        tries = self._writing.may_retry()
        with self._changed:
            is_full = self._queued and self._queued_bytes + size > _MOST_QUEUED_BYTES
            if is_full or (self._writing.is_open and not tries):
                self._count(dropped=1)
                return
            self._queued += 1
            self._queued_bytes += size
        if not self._writers.submit(partial(self._run, size, write, tries)):
            self._end(size, dropped=1)

    def _run(self, size: int, write: Callable[[Backend], None], tries: bool) -> None:
        dropped = 1
        try:
            self._opened.wait(_TIME_LIMIT)
            if self._backend is None:
                if self.writes:
                    raise StoreError("the store could not be opened", code="store-failed", where=self.address.url)
            elif tries or not self._writing.is_open:
                write(self._backend)
                self._writing.succeeded()
                dropped = 0
        except BaseException as error:  # noqa: BLE001 - as above
            self._count(failures=1)
            if self._writing.failed(at_once=getattr(error, "code", "") == "store-denied"):
                self._warn("nothing is written for a while", str(error), "failed")
        finally:
            self._end(size, dropped=dropped)

    def _end(self, size: int, *, dropped: int) -> None:
        with self._changed:
            self._count(dropped=dropped)
            self._queued -= 1
            self._queued_bytes -= size
            self._changed.notify_all()

    def flush(self, timeout: float | None, stall: float | None = None) -> bool:
        """Wait until nothing waits to be written; return False if something still does.

        Args:
            timeout: Seconds to wait at most.
            stall: Seconds in which nothing was written, after which to give up.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._queued:
                limits = [*([] if end is None else [end - time.monotonic()]), *([] if stall is None else [stall])]
                if not self._changed.wait(max(0.0, min(limits)) if limits else None):
                    return False
        return True

    def finish(self, timeout: float, stall: float | None = None) -> None:
        """Flush at the end, for as long as the store does something within ``stall`` seconds, and say if that fails."""
        if stall is None or self._bound.is_spent:
            stall = max(0.0, self._bound.left(time.monotonic())) / 2
        if not self.flush(timeout, stall):
            self._warn("not everything was written", "it did not do it in time", "failed")

    def _submit(self, task: Callable[[], None]) -> bool:
        done = self._readers.submit(task)
        if not done:  # no thread can be started: as if the store had failed
            self._loaded.set()
            self._opened.set()
        return done

    def _count(self, **amounts: int) -> None:
        with _counting:
            for name, amount in amounts.items():
                setattr(self._counts, name, getattr(self._counts, name) + amount)

    def _warn(self, what: str, why: str, subject: str | None = None) -> None:
        """Warn about something that is not done or not used, once for each such thing, and once that a store fails."""
        _warn((self.address.url, subject or what), "shared store %s: %s: %s", self.address.url, what, why)


def _refresh(backend: Backend, name: str, data: bytes) -> None:
    """Write an object again, so that its date is that of its last use, to a day."""
    with suppress(StoreError):
        backend.put(name, data)
