"""Stores that are broken in one way each, and what they cost a process that uses them."""

import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.process import environment
from tests.support.store_server import Server, faulty_store

Store = Callable[[Path], AbstractContextManager[dict[str, str]]]

#: What a process does with stores that links nothing itself: look for ten entries, write them, work, end. It prints the
#: seconds that its main thread spent in calls of the stores, and, when it ends, in writing what was left.
PROCESS = """
import atexit, hashlib, json, logging, os, sys, time
logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
from jitlto.base.config import Config
from jitlto.stores.shared import SharedStore
seconds = {"calls": 0.0, "end": 0.0, "found": 0}
atexit.register(lambda: print(json.dumps(seconds | {"end": time.perf_counter() - seconds["end"]})))  # last
stores = SharedStore.from_config(Config.read(os.environ))
if stores is not None:
    stores.open_soon()
for number in range(10):
    time.sleep(0.005)  # other work
    begin = time.perf_counter()
    if stores is not None:
        seconds["found"] += stores.get("kernels", hashlib.sha256(b"%d" % number).hexdigest()) is not None
        stores.put("kernels", hashlib.sha256(b"%d" % number).hexdigest(), b"payload" * 1000)
    seconds["calls"] += time.perf_counter() - begin
atexit.register(lambda: seconds.update(end=time.perf_counter()))  # first
"""


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    waited: float  # seconds in calls of the stores, and at the end until they have finished
    whole: float  # seconds from its start to its end
    processor: float  # seconds of processor time, its threads' included
    found: int  # entries
    messages: tuple[str, ...]  # warnings and errors, by line


def run(variables: dict[str, str], seconds: float = 60) -> Cost:
    """Run a process with the stores of these variables, or with none."""
    begin, before = time.perf_counter(), _processor_time()
    done = subprocess.run(
        [sys.executable, "-c", PROCESS],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment(**variables),
        check=False,
    )
    whole, processor = time.perf_counter() - begin, _processor_time() - before
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    messages = tuple(line for line in done.stderr.splitlines() if re.match(r"(WARNING|ERROR|CRITICAL) ", line))
    assert "Traceback" not in done.stderr, done.stderr
    return Cost(told["calls"] + told["end"], whole, processor, told["found"], messages)


def _processor_time() -> float:
    """Of all processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def proxied(**conditions: object) -> Store:
    """A bucket behind a faulty in these conditions."""

    @contextmanager
    def store(_: Path) -> Iterator[dict[str, str]]:
        with faulty_store() as faulty:
            faulty.set(**conditions)
            yield faulty.environment

    return store


@contextmanager
def unknown_host(_: Path) -> Iterator[dict[str, str]]:
    """The name of the server does not resolve."""
    yield Server(1).environment | {"AWS_ENDPOINT_URL": "http://store.invalid"}


@contextmanager
def nobody_accepts(_: Path) -> Iterator[dict[str, str]]:
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
    "nobody listens": proxied(fault="refuse"),
    "never answers": proxied(fault="silent"),
    "dies after two requests": proxied(fault="silent", after=2),
    "connections not accepted": nobody_accepts,
    "30 s slow": proxied(latency=30.0),
    "1 kB/s": proxied(bandwidth=1000.0, fault="status", status=503, after=20),
    "cut in the middle": proxied(fault="drop"),
    "403": proxied(fault="status", status=403),
    "429": proxied(fault="status", status=429),
    "503": proxied(fault="status", status=503),
    "HTML": proxied(fault="html"),
    "empty": proxied(fault="empty"),
    "no HTTP": proxied(fault="garbage"),
    "unknown host": unknown_host,
}
