"""A broken store costs a process a bounded time and one message, and nothing else."""

import json
import logging
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.process import environment
from tests.support.shared_stores import KeyPair, opened, signed, trust
from tests.support.store_server import Server, faulty_store

pytestmark = pytest.mark.timing

BOUND = 0.050  # seconds a process
NOISE = 0.050  # of the clock while others use this machine
OTHERS = 0.200  # what they make of the processor time for loading obstore
RUNS = 8
Store = Callable[[], AbstractContextManager[dict[str, str]]]
#: What a process does with stores that links nothing itself: look for ten entries, write them, work, end. It prints the
#: seconds that its main thread spent in calls of the stores, and, when it ends, in writing what was left.
PROCESS = """
import atexit, hashlib, json, logging, os, sys, time
logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
from jitlto.base.config import Config
from jitlto.link.sources import open_shared
seconds = {"calls": 0.0, "end": 0.0}
atexit.register(lambda: print(json.dumps(seconds | {"end": time.perf_counter() - seconds["end"]})))  # last
config = Config.read(os.environ)
stores = open_shared(config)
if stores is not None:
    stores.open_soon()
for number in range(10):
    time.sleep(0.005)  # other work
    begin = time.perf_counter()
    if stores is not None:
        stores.get("kernels", hashlib.sha256(b"%d" % number).hexdigest())
        stores.put("kernels", hashlib.sha256(b"%d" % number).hexdigest(), b"payload" * 1000)
    seconds["calls"] += time.perf_counter() - begin
atexit.register(lambda: seconds.update(end=time.perf_counter()))  # first
"""


def run(variables: dict[str, str]) -> tuple[float, float, int]:
    """Run a process with the stores of these variables, or with none.

    Returns:
        Seconds in calls of the stores and at the end, seconds from start to end, and the number of warnings and errors.
    """
    begin = time.perf_counter()
    command, own = [sys.executable, "-c", PROCESS], environment(**variables)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=own, check=False)
    whole = time.perf_counter() - begin
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    told = json.loads(done.stdout)
    messages = re.findall(r"^(?:WARNING|ERROR|CRITICAL) ", done.stderr, re.M)
    return told["calls"] + told["end"], whole, len(messages)


def faulty(**conditions: object) -> Store:
    """A bucket in these conditions."""

    @contextmanager
    def store() -> Iterator[dict[str, str]]:
        with faulty_store() as made:
            made.set(**conditions)
            yield made.environment

    return store


@contextmanager
def unknown_host() -> Iterator[dict[str, str]]:
    """The name of the server does not resolve."""
    yield Server(1).environment | {"AWS_ENDPOINT_URL": "http://store.invalid"}


@contextmanager
def nobody_accepts() -> Iterator[dict[str, str]]:
    """Connections are not even accepted: the queue of those that wait is full, as behind a firewall that drops."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for other in waiting:
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
        yield Server(port).environment
        for other in waiting:
            other.close()


#: Each fault by its name.
FAULTS: dict[str, Store] = {
    "nobody listens": faulty(fault="refuse"),
    "never answers": faulty(fault="silent"),
    "dies after two requests": faulty(fault="silent", after=2),
    "connections not accepted": nobody_accepts,
    "30 s slow": faulty(latency=30.0),
    "1 kB/s": faulty(bandwidth=1000.0, fault="status", status=503, after=20),
    "cut in the middle": faulty(fault="drop"),
    "403": faulty(fault="status", status=403),
    "503": faulty(fault="status", status=503),
    "HTML": faulty(fault="html"),
    "empty": faulty(fault="empty"),
    "no HTTP": faulty(fault="garbage"),
    "unknown host": unknown_host,
}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Of a process that reads and writes signed entries."""
    key = KeyPair.create(tmp_path / "key")
    return signed(trust(tmp_path / "signers", key), key)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_store_costs_50_milliseconds_and_one_message(fault: str, settings: dict[str, str]) -> None:
    alone, beside = [], []
    for _ in range(RUNS):  # until one was not held up by something else on this machine
        with FAULTS[fault]() as store:
            alone.append(run({}))
            beside.append(run(store | settings))
        assert 1 <= beside[-1][2] <= 2
        # The second message is of a loaded machine, which also made it late.
        waited, whole, messages = (min(column) for column in zip(*beside, strict=True))
        more = whole - min(each[1] for each in alone)
        if waited < BOUND + NOISE and more < BOUND + OTHERS and messages == 1:
            return
    pytest.fail(f"{waited:.3f} s waited for the store, {more:.3f} s more than without one")


def test_pages_in_place_of_entries_are_failures(settings: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with faulty_store() as faulty, opened(faulty.environment | settings | {"JITLTO_STORE_PATIENCE": "5"}) as stores:
        faulty.set(fault="html")
        assert stores.get("kernels", "ab" * 32) is None
        assert stores.get("kernels", "ac" * 32) is None
        assert stores.get("kernels", "ad" * 32) is None
        assert stores.counts["failures"] == 3
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_a_page_in_place_of_an_entry_does_not_lead_to_the_entry_being_replaced(settings: dict[str, str]) -> None:
    key = "ab" * 32
    with faulty_store() as faulty:
        patient = faulty.environment | settings | {"JITLTO_STORE_PATIENCE": "5"}
        with opened(patient) as stores:
            stores.put("kernels", key, b"first")
            assert stores.flush(10)
        with opened(patient) as stores:
            assert stores.get("kernels", "ac" * 32) is None
            faulty.set(fault="html")
            assert stores.get("kernels", key) is None
            faulty.set()
            stores.put("kernels", key, b"second")
            assert stores.flush(10)
            assert stores.get("kernels", key) == b"first"
