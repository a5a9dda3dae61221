"""One store as a process uses it: opening, what is said once, when it is tried again, and what a caller waits for."""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.base.log import WarnOnce
from jitlto.stores import entry, patience
from jitlto.stores import store as store_module
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import REFRESH_AFTER, StoredObject
from jitlto.stores.store import Store, StoreStatistics
from jitlto.stores.trust import SigningKey, Trust
from tests.support.stores import KEY, write_key

pytestmark = pytest.mark.timing

OTHERS = 0.5  # seconds that this machine may give to others


class Fake:
    """A backend whose replies a test decides."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.reply: Callable[[str], bytes | None] = lambda name: None
        self.opens: Callable[[], None] = lambda: None
        self.held: dict[str, bytes] = {}
        self.modified = time.time()

    def open(self, name: str, piece: int = 0) -> StoredObject | None:
        self.requests.append(name)
        data = self.reply(name)
        return None if data is None else StoredObject(name, len(data), self.modified, iter([data] if data else []))

    def get(self, name: str) -> bytes | None:
        found = self.open(name)
        return None if found is None else b"".join(found.pieces)

    def check_size(self, found: StoredObject) -> None:
        pass

    def put(self, name: str, data: bytes) -> None:
        self.requests.append(f"put {name}")
        self.reply(name)
        self.held[name] = data


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()

    def open_backend(address: StoreAddress, *, timeout: float) -> Fake:
        made.opens()
        return made

    monkeypatch.setattr(store_module, "open_backend", open_backend)
    monkeypatch.setattr(store_module, "_warn", WarnOnce(store_module.__name__))
    return made


@pytest.fixture
def counters() -> StoreStatistics:
    return StoreStatistics()


@pytest.fixture
def store(backend: Fake, counters: StoreStatistics) -> Store:
    return Store(StoreAddress("s3://bucket", True, True), Trust(False), 0.1, counters)


def opened(store: Store) -> Store:
    store.open_soon()
    assert store._opened.wait(10)
    return store


def failing(code: str = "store-failed") -> Callable[[str], bytes | None]:
    def reply(name: str) -> bytes | None:
        raise StoreError("no", code=code)

    return reply


def test_a_store_is_opened_once_and_with_one_request(store: Store, backend: Fake) -> None:
    assert opened(store).get_many("kernels", [KEY]) == {}
    store.open_soon()
    assert backend.requests == ["v1/probe", entry.object_name("kernels", KEY)]


def test_after_three_failures_no_request_is_sent(store: Store, backend: Fake, counters: StoreStatistics, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip  # noqa: E501
    opened(store)
    backend.reply = failing()
    keys = [f"{number:064x}" for number in range(20)]
    for key in keys:
        assert store.get_many("kernels", [key]) == {}
    assert len(backend.requests) == 1 + 3
    assert counters.failures == 3
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("code", ["store-denied", "store-missing-package", "store-settings"])
def test_what_will_not_pass_is_not_tried_three_times(
    code: str, store: Store, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    backend.reply = failing(code)
    for _ in range(5):
        opened(store).get_many("kernels", [KEY])
    assert backend.requests == ["v1/probe"]
    assert len(warnings(caplog)) == 1


def test_it_is_tried_again_in_the_background(store: Store, backend: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_PAUSE", 0.0)
    store._reading = patience.Breaker()
    backend.reply = failing()
    opened(store)
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None
    begin = time.monotonic()
    assert store.get_many("kernels", [KEY]) == {}
    assert time.monotonic() - begin < 0.1 + OTHERS
    held.set()
    while store._reading.is_open:
        time.sleep(0.001)
    assert backend.requests == ["v1/probe"] * 2


def test_a_late_reply_turns_the_store_off_for_the_process(
    store: Store, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    opened(store)
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None
    begin = time.monotonic()
    assert store.get_many("kernels", [KEY]) == {}
    assert 0.04 < time.monotonic() - begin < 1
    held.set()
    count = len(backend.requests)
    assert store.get_many("kernels", [KEY]) == {}
    assert len(backend.requests) == count
    assert len(warnings(caplog)) == 1


def test_a_reply_that_is_here_is_not_late_where_the_caller_is(store: Store, backend: Fake) -> None:
    opened(store)
    backend.reply = lambda name: entry.encode("kernels", KEY, b"linked", None)
    left = store._bound.left

    def held_up(since: float, *, opening: bool = False) -> float:
        time.sleep(0.12)  # longer than the patience: the processor is busy with others
        return left(since, opening=opening)

    store._bound.left = held_up  # type: ignore[method-assign]
    assert store.get_many("kernels", [KEY])[KEY][0] == b"linked"


def test_all_who_wait_leave_together(store: Store, backend: Fake) -> None:
    opened(store)
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None
    threads = []
    begin = time.monotonic()
    for number in range(4):
        threads.append(threading.Thread(target=store.get_many, args=("kernels", [f"{number:064x}"])))
        threads[-1].start()
        time.sleep(0.015)
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin < 0.25 + OTHERS
    held.set()


def test_a_store_that_takes_long_to_open_is_not_turned_off(store: Store, backend: Fake) -> None:
    held = threading.Event()
    backend.opens = lambda: held.wait(10) and None
    begin = time.monotonic()
    for _ in range(5):
        assert store.get_many("kernels", [KEY]) == {}
    assert time.monotonic() - begin < 0.15 + OTHERS
    held.set()
    opened(store).get_many("kernels", [KEY])
    assert entry.object_name("kernels", KEY) in backend.requests


def test_a_first_reply_that_takes_long_does_not_turn_the_store_off(
    store: Store, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None  # a connection, credentials, names: once in a process
    begin = time.monotonic()
    for _ in range(5):
        assert store.get_many("kernels", [KEY]) == {}
    assert time.monotonic() - begin < 0.09 + OTHERS
    assert store.is_opening
    assert len(backend.requests) <= 3
    held.set()
    while store.is_opening:
        time.sleep(0.001)
    backend.reply = lambda name: entry.encode("kernels", KEY, b"linked", None)
    assert store.get_many("kernels", [KEY])[KEY][0] == b"linked"
    assert warnings(caplog) == []


def test_a_first_reply_that_does_not_come_is_said_once(
    store: Store, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    held = threading.Event()

    def reply(name: str) -> bytes | None:
        held.wait(10)
        raise StoreError("timed out", code="store-unreachable")

    backend.reply = reply
    for _ in range(5):
        assert store.get_many("kernels", [KEY]) == {}
    held.set()
    while store.is_opening:
        time.sleep(0.001)
    assert store.get_many("kernels", [KEY]) == {}
    assert len(warnings(caplog)) == 1


def test_nothing_is_copied_to_a_store_whose_readers_trust_unknown_keys(backend: Fake, tmp_path: Path) -> None:
    trust = Trust(True, tmp_path / "missing", write_key(tmp_path / "key"))
    store = Store(StoreAddress("s3://bucket", True, True), trust, 0.1, StoreStatistics())
    store.put_object("kernels", KEY, entry.encode("kernels", KEY, b"linked", None))
    assert store.flush(10)
    assert backend.requests == ["v1/probe"]


def test_a_panic_of_rust_is_a_failure_like_others(store: Store, backend: Fake, counters: StoreStatistics) -> None:
    class PanicException(BaseException):
        pass

    def reply(name: str) -> bytes | None:
        raise PanicException("index out of bounds")

    opened(store)
    backend.reply = reply
    assert store.get_many("kernels", [KEY]) == {}
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert counters.failures == 2


# --- writing ---

NAME = entry.object_name("kernels", KEY)
GOOD = entry.encode("kernels", KEY, b"linked", None)


def test_what_is_put_is_written_where_no_good_entry_is(store: Store, backend: Fake, counters: StoreStatistics) -> None:
    keys = [f"{number:064x}" for number in range(20)]
    for key in keys:
        store.put("kernels", key, b"linked")
    assert store.flush(10)
    assert set(backend.held) == {entry.object_name("kernels", key) for key in keys}
    assert (counters.writes, counters.dropped) == (20, 0)


@pytest.mark.parametrize(
    ("there", "is_written"),
    [
        (GOOD, False),
        (b"", True),
        (b"<html>", True),
        (GOOD[:-1], True),
        (entry.encode("kernels", KEY[::-1], b"", None), True),
    ],
)
def test_what_readers_would_reject_is_replaced(store: Store, backend: Fake, there: bytes, is_written: bool) -> None:
    opened(store)
    backend.reply = lambda name: there
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert backend.held == ({NAME: GOOD} if is_written else {})


def test_what_was_read_and_rejected_is_replaced_whatever_its_head_says(store: Store, backend: Fake) -> None:
    opened(store)
    backend.reply = lambda name: GOOD[:-1] + b"?"
    assert store.get_many("kernels", [KEY]) == {}
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert backend.held == {NAME: GOOD}


def test_what_was_missing_is_not_asked_for_again(store: Store, backend: Fake) -> None:
    opened(store).get_many("kernels", [KEY])
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert backend.requests == ["v1/probe", NAME, f"put {NAME}"]


@pytest.mark.parametrize(("age", "is_written"), [(0.0, False), (REFRESH_AFTER - 60, False), (REFRESH_AFTER + 60, True)])
def test_the_date_of_last_use_is_right_to_a_day(store: Store, backend: Fake, age: float, is_written: bool) -> None:
    opened(store)
    backend.reply, backend.modified = lambda name: GOOD, time.time() - age
    assert store.get_many("kernels", [KEY])
    end = time.monotonic() + (10 if is_written else 0.1)
    while not backend.held and time.monotonic() < end:
        time.sleep(0.005)
    assert backend.held == ({NAME: GOOD} if is_written else {})


def test_more_than_fits_is_dropped(
    store: Store, backend: Fake, counters: StoreStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_QUEUED_BYTES", 100)
    opened(store)
    go = threading.Event()
    backend.reply = lambda name: go.wait(10) and None
    store.put("kernels", KEY, bytes(1000))  # alone, even what is too large is written
    store.put("kernels", "f" * 64, b"x")
    assert counters.dropped == 1
    go.set()
    assert store.flush(10)
    assert list(backend.held) == [NAME]


def test_after_failures_nothing_is_sent(
    store: Store, backend: Fake, counters: StoreStatistics, caplog: pytest.LogCaptureFixture
) -> None:
    opened(store)
    backend.reply = failing()
    for _ in range(4):
        store.put("kernels", KEY, b"linked")
        assert store.flush(10)
    assert len(backend.requests) == 1 + 3
    assert (counters.failures, counters.dropped) == (3, 4)
    assert len(warnings(caplog)) == 1


def test_where_no_thread_can_be_started_nothing_is_found_or_written(
    store: Store, counters: StoreStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(function: object, arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    assert store.get_many("kernels", [KEY]) == {}
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert counters.dropped == 1


def test_readers_do_not_wait_for_the_private_key(
    backend: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write_key(tmp_path / "key")
    store = Store(StoreAddress("s3://bucket", True, True), Trust(True, tmp_path / "key.pub", key), 5, StoreStatistics())
    load, held = SigningKey.load, threading.Event()
    monkeypatch.setattr(SigningKey, "load", lambda path: held.wait(10) and load(path))
    store.put("kernels", KEY, b"linked")
    backend.reply = lambda name: entry.encode("kernels", KEY, b"linked", load(key))
    assert store.get_many("kernels", [KEY])[KEY][0] == b"linked"
    held.set()
    assert store.flush(10)


def test_a_key_that_readers_here_do_not_trust_is_said(
    backend: Fake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_key(tmp_path / "other")
    trust = Trust(True, tmp_path / "other.pub", write_key(tmp_path / "key"))
    store = Store(StoreAddress("s3://bucket", True, True), trust, 5, StoreStatistics())
    for _ in range(2):
        store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    (said,) = warnings(caplog)
    assert "what is written here is not read here" in said


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]
