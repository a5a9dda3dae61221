"""The shared store of a process: what is found, what is trusted, what is said once, and what it costs when it fails."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jitlto.base import log
from jitlto.base.errors import StoreError
from jitlto.link.sources import open_shared
from jitlto.stores import entry, shared
from jitlto.stores.address import StoreAddress
from jitlto.stores.shared import SharedStore
from tests.support.errors import raises
from tests.support.process import python
from tests.support.stores import KEY, config, directory_store

pytestmark = pytest.mark.timing

pytest.importorskip("obstore")

OTHERS = 0.5  # seconds that this machine may give to others
NAME = entry.object_name("kernels", KEY)
GOOD = entry.encode("kernels", KEY, b"linked", None)


class Fake:
    """A backend whose replies a test decides."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.reply: Callable[[str], bytes | None] = lambda name: None
        self.opens: Callable[[], None] = lambda: None
        self.held: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        self.requests.append(name)
        return self.reply(name)

    def put(self, name: str, data: bytes) -> None:
        self.requests.append(f"put {name}")
        self.reply(name)
        self.held[name] = data


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()

    def open_backend(address: StoreAddress, *, retries: int, makes: bool) -> Fake:
        made.opens()
        return made

    monkeypatch.setattr(shared, "open_backend", open_backend)
    monkeypatch.setattr(log, "_warned", {})
    return made


@pytest.fixture
def store(backend: Fake) -> SharedStore:
    return SharedStore(config(**{"": "s3://bucket", "trust": "checksum"}), 0.1)


def opened(store: SharedStore) -> SharedStore:
    store.open_soon()
    assert store._opened.wait(10)
    return store


def failing(code: str = "store-failed") -> Callable[[str], bytes | None]:
    def reply(name: str) -> bytes | None:
        raise StoreError("no", code=code)

    return reply


def hanging(held: threading.Event) -> Callable[[str], bytes | None]:
    return lambda name: held.wait(10) and None


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


# --- settings ---


def test_the_settings_name_one_store_or_none(tmp_path: Path) -> None:
    assert open_shared(config()) is None
    with raises(StoreError, "store-address", where="JITLTO_STORE"):
        open_shared(config(**{"": "ftp://host"}))
    settings = config(**{"": f"file://{tmp_path}"})
    assert open_shared(settings) is open_shared(settings)


# --- reading ---


def test_what_one_process_writes_another_reads(tmp_path: Path) -> None:
    writer, reader = directory_store(tmp_path), directory_store(tmp_path)
    assert writer.get("kernels", KEY) is None
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert reader.get("kernels", KEY) == b"linked"
    assert reader.get("compiled", KEY) is None
    assert (reader.counts["hits"], writer.counts["writes"]) == (1, 1)


def test_without_patience_nothing_is_read(tmp_path: Path) -> None:
    writer = directory_store(tmp_path)
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert opened(directory_store(tmp_path, patience=0.0)).get("kernels", KEY) is None


def test_a_store_is_opened_once_and_with_one_request(backend: Fake) -> None:
    store = SharedStore(config(**{"": "s3://bucket", "trust": "checksum"}), 10)
    assert opened(store).get("kernels", KEY) is None
    store.open_soon()
    assert backend.requests == ["v1/probe", NAME]


# --- failures ---


def test_after_three_failures_no_request_is_sent(
    store: SharedStore, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    opened(store)
    backend.reply = failing()
    for number in range(20):
        assert store.get("kernels", f"{number:064x}") is None
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert len(backend.requests) == 1 + 3
    assert (store.counts["failures"], store.counts["dropped"]) == (3, 1)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("code", ["store-denied", "store-missing-package", "store-settings"])
def test_what_will_not_pass_is_not_tried_three_times(
    code: str, store: SharedStore, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    backend.reply = failing(code)
    for _ in range(5):
        opened(store).get("kernels", KEY)
    assert backend.requests == ["v1/probe"]
    assert len(warnings(caplog)) == 1


def test_a_late_reply_turns_the_store_off_for_the_process(
    store: SharedStore, backend: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    opened(store)
    backend.reply = hanging(held := threading.Event())
    begin = time.monotonic()
    assert store.get("kernels", KEY) is None
    assert 0.04 < time.monotonic() - begin < 1
    held.set()
    count = len(backend.requests)
    assert store.get("kernels", KEY) is None
    assert len(backend.requests) == count
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("what", ["opens", "reply"])
def test_a_store_that_takes_long_to_open_is_used_when_it_has_answered(
    store: SharedStore, backend: Fake, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection, credentials, names: once in a process."""
    held = threading.Event()
    setattr(backend, what, lambda *_: held.wait(10) and None)
    begin = time.monotonic()
    for _ in range(5):
        assert store.get("kernels", KEY) is None
    assert time.monotonic() - begin < 0.09 + OTHERS
    assert not store._opened.is_set()
    assert len(backend.requests) <= 1
    held.set()
    opened(store)
    backend.reply = lambda name: GOOD
    assert store.get("kernels", KEY) == b"linked"
    assert warnings(caplog) == []


ENDING = """
import os, socket, sys, threading, time
from jitlto.stores.shared import SharedStore
from jitlto.base.config import Config

delay = float(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0), backlog=50)
if os.fork() == 0:  # answers the first request, which opens the store, and the others late
    import signal
    signal.alarm(10)
    os.close(1), os.close(2)
    def answer(client, seconds):
        while client.recv(10000):
            time.sleep(seconds)
            client.sendall(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\n\\r\\n")
            seconds = delay
    seconds = 0
    while True:
        client, _ = server.accept()
        threading.Thread(target=answer, args=(client, seconds), daemon=True).start()
        seconds = delay
url = f"http://127.0.0.1:{server.getsockname()[1]}"
stores = SharedStore(Config.read({"JITLTO_STORE": url, "JITLTO_STORE_TRUST": "checksum"}), 0.05)
stores.open_soon()
assert stores._opened.wait(10)
assert stores.get_many("kernels", [f"{number:064x}" for number in range(20)]) == {}

class Slow:
    def __del__(self, sleep=time.sleep, os=os):
        sleep(0.1)  # while the interpreter ends, which is when the replies come
        os.write(1, b"ended")

import types
sys.modules["slow"] = types.ModuleType("slow")
sys.modules["slow"].slow = Slow()
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.05, 0.08, 0.12, 5])
def test_a_process_ends_well_while_requests_are_under_way(delay: float) -> None:
    begin = time.monotonic()
    done = python("-c", ENDING, str(delay))
    assert (done.returncode, done.stdout) == (0, "ended")
    assert "FATAL" not in done.stderr
    assert "panicked" not in done.stderr
    assert time.monotonic() - begin < 5


# --- writing ---


@pytest.mark.parametrize(
    ("there", "is_written"),
    [
        (GOOD, False),
        (b"", True),
        (GOOD[:-1], True),
        (entry.encode("kernels", KEY[::-1], b"", None), True),
    ],
)
def test_what_readers_would_reject_is_replaced(
    store: SharedStore, backend: Fake, there: bytes, is_written: bool
) -> None:
    opened(store)
    backend.reply = lambda name: there
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert backend.held == ({NAME: GOOD} if is_written else {})


def test_what_was_read_and_rejected_is_replaced_whatever_its_head_says(store: SharedStore, backend: Fake) -> None:
    opened(store)
    backend.reply = lambda name: GOOD[:-1] + b"?"
    assert store.get("kernels", KEY) is None
    store.put("kernels", KEY, b"linked")
    assert store.flush(10)
    assert backend.held == {NAME: GOOD}


def test_more_than_fits_is_dropped(store: SharedStore, backend: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_MOST_QUEUED", 100)
    opened(store)
    go = threading.Event()
    backend.reply = lambda name: go.wait(10) and None
    store.put("kernels", KEY, bytes(1000))  # alone, even what is too large is written
    store.put("kernels", "f" * 64, b"x")
    assert store.counts["dropped"] == 1
    go.set()
    assert store.flush(10)
    assert list(backend.held) == [NAME]


def test_who_may_not_write_reads_on(store: SharedStore, backend: Fake, caplog: pytest.LogCaptureFixture) -> None:
    opened(store).get("kernels", KEY)
    backend.reply = failing("store-denied")
    for _ in range(3):
        store.put("kernels", KEY, b"linked")
        assert store.flush(10)
    assert (len(backend.requests), store.counts["dropped"]) == (3, 3)
    assert len(warnings(caplog)) == 1
    backend.reply = lambda name: GOOD
    assert store.get("kernels", KEY) == b"linked"
