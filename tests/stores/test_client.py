"""One store as a process uses it: opening, what is said once, when it is tried again, and what a caller waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jitlto.base.cache_dir import WarnOnce
from jitlto.base.errors import StoreError
from jitlto.stores import entry, messages, opening, patience
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import StoredObject
from jitlto.stores.client import StoreClient
from jitlto.stores.statistics import Counters
from jitlto.stores.trust import Trust
from tests.support.stores import KEY, write_key

pytestmark = pytest.mark.timing

OTHERS = 0.5  # seconds that this machine may give to others


class Fake:
    """A backend whose replies a test decides."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.reply: Callable[[str], bytes | None] = lambda name: None
        self.opens: Callable[[], None] = lambda: None

    def get(
        self, name: str, on_piece: object = None, on_found: Callable[[StoredObject], None] | None = None
    ) -> bytes | None:
        self.requests.append(name)
        if on_found is not None:
            on_found(StoredObject(name, 0, time.time()))
        return self.reply(name)

    def put(self, name: str, data: bytes, *, if_absent: bool = False) -> bool:
        self.requests.append(name)
        self.reply(name)
        return True


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()

    def open_backend(address: StoreAddress, *, timeout: float) -> Fake:
        made.opens()
        return made

    monkeypatch.setattr(opening, "open_backend", open_backend)
    monkeypatch.setattr(messages, "_warn", WarnOnce(messages.__name__))
    return made


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def store(backend: Fake, counters: Counters) -> StoreClient:
    return StoreClient(StoreAddress("s3://bucket", True, True), Trust(False), 0.1, counters)


def opened(store: StoreClient) -> StoreClient:
    store.open_soon()
    assert store._opening.finished.wait(10)
    return store


def failing(code: str = "store-failed") -> Callable[[str], bytes | None]:
    def reply(name: str) -> bytes | None:
        raise StoreError("no", code=code)

    return reply


def test_a_store_is_opened_once_and_with_one_request(store: StoreClient, backend: Fake) -> None:
    assert opened(store).get_many("kernels", [KEY]) == {}
    store.open_soon()
    assert backend.requests == ["v1/probe", entry.object_name("kernels", KEY)]


def test_after_three_failures_no_request_is_sent(store: StoreClient, backend: Fake, counters: Counters, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip  # noqa: E501
    opened(store)
    backend.reply = failing()
    keys = [f"{number:064x}" for number in range(20)]
    for key in keys:
        assert store.get_many("kernels", [key]) == {}
    assert len(backend.requests) == 1 + 3
    assert counters.snapshot().failures == 3
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("code", ["store-denied", "store-missing-package", "store-settings"])
def test_what_will_not_pass_is_not_tried_three_times(
    code: str, store: StoreClient, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    backend.reply = failing(code)
    for _ in range(5):
        opened(store).get_many("kernels", [KEY])
    assert backend.requests == ["v1/probe"]
    assert len(warnings(caplog)) == 1


def test_it_is_tried_again_in_the_background(
    store: StoreClient, backend: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_FIRST_BACK_OFF", 0.0)
    store._reading = patience.BackOff()
    backend.reply = failing()
    opened(store)
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None
    begin = time.monotonic()
    assert store.get_many("kernels", [KEY]) == {}
    assert time.monotonic() - begin < 0.1 + OTHERS
    held.set()
    while store._reading.is_off:
        time.sleep(0.001)
    assert backend.requests == ["v1/probe"] * 2


def test_a_late_reply_turns_the_store_off_for_the_process(
    store: StoreClient, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    opened(store)
    held = threading.Event()
    backend.reply = lambda name: held.wait(10) and None
    begin = time.monotonic()
    assert store.get_many("kernels", [KEY]) == {}
    assert 0.07 < time.monotonic() - begin < 1
    held.set()
    count = len(backend.requests)
    assert store.get_many("kernels", [KEY]) == {}
    assert len(backend.requests) == count
    assert len(warnings(caplog)) == 1


def test_a_reply_that_is_here_is_not_late_where_the_caller_is(store: StoreClient, backend: Fake) -> None:
    opened(store)
    backend.reply = lambda name: entry.encode("kernels", KEY, b"linked", None)
    deadline = store._patience.deadline

    def held_up(since: float, *, opening: bool) -> float:
        time.sleep(0.12)  # longer than the patience: the processor is busy with others
        return deadline(since, opening=opening)

    store._patience.deadline = held_up  # type: ignore[method-assign]
    assert store.get_many("kernels", [KEY])[KEY][0] == b"linked"


def test_all_who_wait_leave_together(store: StoreClient, backend: Fake) -> None:
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


def test_a_store_that_takes_long_to_open_is_not_turned_off(store: StoreClient, backend: Fake) -> None:
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
    store: StoreClient, backend: Fake, caplog: pytest.LogCaptureFixture
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
    store: StoreClient, backend: Fake, caplog: pytest.LogCaptureFixture
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
    store = StoreClient(StoreAddress("s3://bucket", True, True), trust, 0.1, Counters())
    store.put_object("kernels", KEY, entry.encode("kernels", KEY, b"linked", None))
    assert store.flush(10)
    assert backend.requests == ["v1/probe"]


def test_a_lease_that_the_store_cannot_give_is_lost(store: StoreClient, backend: Fake, counters: Counters) -> None:
    opened(store)
    assert store.lease("v1/leases/ab/c") == ("v1/leases/ab/c",)
    assert counters.snapshot().leases_lost == 0
    backend.reply = failing()
    assert store.lease("v1/leases/ab/c") is None
    assert counters.snapshot().leases_lost == 1


def test_a_panic_of_rust_is_a_failure_like_others(store: StoreClient, backend: Fake, counters: Counters) -> None:
    class PanicException(BaseException):
        pass

    def reply(name: str) -> bytes | None:
        raise PanicException("index out of bounds")

    opened(store)
    backend.reply = reply
    assert store.get_many("kernels", [KEY]) == {}
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert counters.snapshot().failures == 2


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]
