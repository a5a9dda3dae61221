"""One shared store as a process uses it: opened in the background, waited for within patience, written behind the back.

Requests run in daemon threads. A caller hears of their replies through a queue, and leaves when its patience ends; the
request goes on until its own time limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import entry, leases, writing
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import REFRESH_AFTER, Backend
from jitlto.stores.calls import Call, Calls
from jitlto.stores.messages import Messages
from jitlto.stores.opening import Opening
from jitlto.stores.patience import BackOff, Patience
from jitlto.stores.statistics import Counters
from jitlto.stores.trust import Trust
from jitlto.stores.workers import Workers
from jitlto.stores.write_queue import WriteQueue

_READERS = 8  # threads
_TIME_LIMIT = 60.0  # seconds: of a request that nobody waits for
_PROBE = "v1/probe"  # need not exist
_HOPELESS = {"store-missing-package", "store-settings", "store-forked", "store-address"}
_OFF_AT_ONCE = {*_HOPELESS, "store-denied"}
_GIVEN_UP = "nothing more is read from it by this process"
_LATE = "a reply did not come in time; set JITLTO_STORE_PATIENCE to more seconds if the store is far away"


class StoreClient:
    """A store: requests to it, how long it may still be waited for, and what waits to be written.

    Args:
        address: The store.
        trust: What is trusted, and what signs.
        patience: Seconds that callers may lose by waiting for it.
        counters: Where to count.
    """

    def __init__(self, address: StoreAddress, trust: Trust, patience: float, counters: Counters) -> None:
        self.address = address
        self._counters = counters
        self._messages = Messages(address.url)
        self._patience = Patience(patience)
        self._reading = BackOff()
        self._queue = WriteQueue(counters, lambda error: self._messages.failed("nothing is written for a while", error))
        self._readers = Workers(_READERS)
        self._calls = Calls()
        self._opening = Opening(address, trust, _TIME_LIMIT, self._messages)
        self._lock = threading.Lock()
        self._has_begun = False
        self._is_awaited = False  # by a caller with a request
        self._has_answered = False  # so what follows needs no new connection, credentials or names
        self._is_probed_again = False
        self._is_hopeless = False
        self._rejected = set[str | None]()  # names of objects

    # Opening

    def open_soon(self) -> None:
        """Open the store in the background, unless that has begun already."""
        if not self._has_begun:
            with self._lock:
                if self._has_begun:
                    return
                self._has_begun = True
            self._in_background(self._open)

    def _open(self) -> None:
        """Import, load the keys and send one request, so that a connection with all that it needs is there.

        Not if a caller waits already: its own request is the first, and it waits for no other.
        """
        opening = self._opening
        try:
            if opening.backend is None:
                opening.prepare()
                self._in_background(opening.load_signing_key)  # while the store is asked
            if opening.backend is not None:
                if not (self.address.is_local or self._is_awaited):
                    opening.backend.get(_PROBE)
                self._has_answered |= self.address.is_local or not self._is_awaited
            self._is_awaited = False
            opening.load_signing_key()
            self._reading.succeeded()
        except BaseException as error:  # noqa: BLE001 - Rust's panics too; a thread of ours ends without a traceback
            self._failed(error, at_once=True)
        finally:
            opening.finish()

    def _is_open(self, ready: threading.Event) -> bool:
        """Return whether the store is open so far, after a wait if need be."""
        if not ready.is_set():
            self._is_awaited = True
            self.open_soon()
            start = time.monotonic()
            if not ready.wait(self._patience.left_for_opening):
                self._is_awaited = False
            self._patience.lost(start, opening=True)  # in any case: if it then fails, this was in vain too
            self._counters.add(seconds_waited=time.monotonic() - start)
        return ready.is_set() and self._opening.backend is not None

    # Reading

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Return the entries that come in time, by key: payload and object."""
        if not self._can_be_waited_for() or not self._is_open(self._opening.prepared) or not self._opening.reads:
            return {}
        found: dict[str, tuple[bytes, bytes]] = {}
        requests = {key: partial(self._get, kind, key, found) for key in keys}
        self._wait(requests)
        return dict(found)  # a late reply may still come

    def _get(self, kind: str, key: str, found: dict[str, tuple[bytes, bytes]], call: Call) -> object:
        """Get and check one entry, in a thread of ours."""
        backend, received, dates = self._opening.backend, 0, list[float]()

        def on_piece(piece: bytes, size: int) -> None:
            nonlocal received
            if not received:
                entry.read_header(kind, key, piece, size, self._opening.trusted)
            received += len(piece)
            if call.has_left or self._patience.is_spent:
                raise StoreError("nobody waits any more", code="store-failed")
            call.replies.put((key, ...))

        name = entry.object_name(kind, key)
        data = backend.get(name, on_piece, lambda found: dates.append(found.modified)) if backend else None
        if data is None:
            return None
        payload = entry.decode(kind, key, data, self._opening.trusted)
        if time.time() - min(dates) > REFRESH_AFTER:
            self._enqueue(len(data), lambda backend: writing.refresh(backend, name, data), optional=True)
        if not call.has_left:
            found[key] = payload, data
            self._counters.add(bytes_read=len(data))
        return True

    @property
    def is_opening(self) -> bool:
        """Whether it is being opened: requests may be answered when it is open."""
        is_over = self._opening.finished.is_set() and not self.is_waited_for
        return self._has_begun and not self._has_answered and not is_over

    @property
    def is_waited_for(self) -> bool:
        """Whether callers wait for replies: it has not failed."""
        return not (self._is_hopeless or self._patience.is_spent or self._reading.is_off)

    def _can_be_waited_for(self) -> bool:
        if not self._is_hopeless and not self._patience.is_spent and self._reading.may_retry():
            self._in_background(self._open)
        if not self._has_answered and not self._patience.left_for_opening:
            if self._opening.finished.is_set() and not self._is_probed_again:
                self._is_probed_again = True
                self._in_background(self._open)
            return False
        return self.is_waited_for

    def _wait(self, requests: Mapping[str, Callable[[Call], object]]) -> dict[str, object]:
        """Send requests side by side; return the replies that come in time by name."""
        call, start = Call(), time.monotonic()
        self._calls.add(call)
        try:
            for name, request in requests.items():
                if not self._in_background(partial(self._reply, call, name, request)):
                    return {}
            return self._collect(call, set(requests))
        finally:
            self._calls.leave(call)
            self._counters.add(seconds_waited=time.monotonic() - start)

    def _collect(self, call: Call, pending: set[str]) -> dict[str, object]:
        replies: dict[str, object] = {}
        since = time.monotonic()
        while pending and not self._reading.is_off:
            timeout = self._patience.deadline(since, opening=not self._has_answered) - time.monotonic()
            try:
                reply = call.replies.get(timeout=max(0.0, timeout))  # one that is here is not late: this thread is
            except Empty:
                if timeout <= 0:
                    self._late(since)
                    return replies
                continue
            if reply is None:
                continue
            name, result = reply
            if isinstance(result, BaseException):
                self._patience.lost(since)
                self._failed(result)
            elif result is not ...:
                self._patience.answered()
            if result is not ...:
                pending.discard(name)
                replies[name] = result
            since = time.monotonic()
        if pending:
            self._patience.lost(since)
        return replies

    def _reply(self, call: Call, name: str, request: Callable[[Call], object]) -> None:
        if call.has_left:
            return
        result: object
        try:
            result = request(call)
            self._has_answered = True
            self._reading.succeeded()
        except BaseException as error:  # noqa: BLE001 - as above
            result = error
            if isinstance(error, RejectedEntryError):
                self._has_answered = True
                if error.reason != entry.A_PAGE:  # that is not what the store holds
                    self._rejected.add(error.where)
        call.replies.put((name, result))

    def _late(self, since: float) -> None:
        """Note that no reply came in time: the store is off, unless its first reply is what it takes long to get."""
        opening = not self._has_answered
        self._patience.lost(since, opening=opening)
        self._counters.add(failures=1)
        if not opening:
            self._messages.failed(_GIVEN_UP, _LATE)
        self._calls.wake()

    def _failed(self, error: BaseException, *, at_once: bool = False) -> None:
        """Note a failed reply; one that is only rejected does not turn the store off."""
        if isinstance(error, RejectedEntryError):
            self._counters.add(rejected=1)
            self._messages.rejected(error)
        else:
            self._counters.add(failures=1)
            code = getattr(error, "code", "")
            self._is_hopeless = self._is_hopeless or code in _HOPELESS
            if code == "store-forked":
                self._messages.debug(str(error))
            elif self._reading.failed(at_once=at_once or code in _OFF_AT_ONCE):
                self._messages.failed("it is not used" if self._is_hopeless else "it is not used for a while", error)
        if self._patience.is_spent and not isinstance(error, RejectedEntryError):
            self._messages.failed(_GIVEN_UP, error)
        self._calls.wake()

    # Leases

    def lease(self, name: str) -> tuple[str, ...] | None:
        """Take a lease; return its objects, none if another machine has it, or None if the store cannot say."""
        taken: list[tuple[str, ...]] = []
        replies: dict[str, object] = {}
        if self._can_be_waited_for() and self._is_open(self._opening.can_sign) and self._opening.writes:
            replies = self._wait({name: partial(self._lease, name, taken)})
        is_known = isinstance(replies.get(name), bool)
        if (not is_known and self.writes) or (taken and len(taken[0]) > 1):
            self._counters.add(leases_lost=1)
        if not is_known:
            return None
        return taken[0] if taken else ()

    def _lease(self, name: str, taken: list[tuple[str, ...]], call: Call) -> bool:
        backend = self._opening.backend
        heard = partial(call.replies.put, (name, ...))
        names = backend and leases.take(backend, name, heard, self._opening.key, self._opening.trusted)
        if backend and names and call.has_left:
            leases.release(backend, names)
        elif names:
            taken.append(names)
        return bool(names)

    def release_soon(self, names: tuple[str, ...]) -> None:
        """Release a lease in the background."""
        self._enqueue(0, lambda backend: leases.release(backend, names))

    # Writing

    @property
    def writes(self) -> bool:
        """Whether entries are written to the store, as far as is known yet."""
        return self._opening.writes and not self._is_hopeless

    def put(self, kind: str, key: str, payload: bytes, lease: tuple[str, ...] = (), may_be_there: bool = False) -> None:
        """Write an entry in the background, if there is none, and then release a lease."""

        def work(backend: Backend) -> None:
            try:
                self._write(backend, kind, key, entry.encode(kind, key, payload, self._opening.key), may_be_there)
            finally:
                leases.release(backend, lease)

        self._enqueue(len(payload), work)

    def put_object(self, kind: str, key: str, data: bytes) -> None:
        """Write another store's object in the background, if this store's readers would trust it."""

        def work(backend: Backend) -> None:
            with suppress(RejectedEntryError):
                if self._opening.reads:  # else what is trusted is not known
                    entry.decode(kind, key, data, self._opening.trusted)
                    self._write(backend, kind, key, data)

        self._enqueue(len(data), work)

    def _enqueue(self, size: int, work: Callable[[Backend], None], *, optional: bool = False) -> None:
        def opened() -> None:
            self._opening.finished.wait(_TIME_LIMIT)
            if not self.writes:
                self._counters.add(dropped=int(not optional))
            elif self._opening.backend is None:
                raise StoreError("the store could not be opened", code="store-failed", where=self.address.url)
            else:
                work(self._opening.backend)

        if self.writes:
            self.open_soon()
            self._queue.add(size, opened, optional=optional)
        elif self.address.writes and not optional:
            self._counters.add(dropped=1)

    def _write(self, backend: Backend, kind: str, key: str, data: bytes, may_be_there: bool = False) -> None:
        how = {"replace": entry.object_name(kind, key) in self._rejected, "may_be_there": may_be_there}
        if writing.write(backend, kind, key, data, self._opening.trusted, **how):
            self._counters.add(bytes_written=len(data), writes=1)

    def flush(self, timeout: float | None) -> bool:
        """Wait until nothing waits to be written; return False if something still does after ``timeout`` seconds."""
        return self._queue.flush(timeout)

    def finish(self, until: float, stall: float | None = None) -> None:
        """Flush until a time, while the store does something within ``stall`` seconds."""
        if self._queue.flush(0):
            return
        self._opening.can_sign.wait(until - time.monotonic())
        patience = self._patience.left / 2 if stall is None or self._patience.is_spent else stall
        is_open = self._opening.finished.wait(patience)
        if not is_open or not self._queue.flush(max(0.0, until - time.monotonic()), patience):
            self._messages.failed("not everything was written", "it did not do it in time")

    def _in_background(self, task: Callable[[], None]) -> bool:
        try:
            self._readers.submit(task)
        except RuntimeError:  # no thread can be started: as if the store had failed
            self._opening.finish()
            return False
        return True
