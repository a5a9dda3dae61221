"""Servers for tests of shared stores, each a process: moto's S3, and a bucket in memory with faults.

with faulty_store() as store:
    environment = store.environment  # JITLTO_STORE is s3://<a fresh bucket>/store
    store.set(latency=0.005, fault="status", status=403)
    ...
    assert store.counts()["GET"] == 10
"""

import http.client
import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest

from tests.support.process import environment


@dataclass(frozen=True)
class Server:
    """An S3 server on a port of this machine."""

    port: int
    bucket: str = field(default_factory=lambda: f"bucket-{uuid.uuid4().hex[:12]}")

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The store's address, as in ``JITLTO_STORE``."""
        return f"s3://{self.bucket}/store"

    @property
    def variables(self) -> dict[str, str]:
        """What reaches the server in obstore's standard ways, without ``JITLTO_STORE``."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        """All variables that make this the store of a process."""
        return {"JITLTO_STORE": self.url, **self.variables}

    def create_bucket(self) -> None:
        """Make the bucket on a server that has just been started, as soon as it listens."""
        for attempt in range(300):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            try:
                connection.request("PUT", f"/{self.bucket}")
                status = connection.getresponse().status
            except OSError:
                if attempt == 299:
                    raise
                time.sleep(0.1)
            else:
                assert status == 200, status
                return
            finally:
                connection.close()


class FaultyStore(Server):
    """A bucket in memory; see ``tests.support.faulty_store.Conditions``."""

    _process: subprocess.Popen[str]

    def set(self, **conditions: Any) -> None:
        """Replace all conditions: ``latency``, ``bandwidth``, ``fault``, ``status``, ``method``, ``part`` and so on."""
        self._command(conditions or {"fault": ""})

    def counts(self, *, reset: bool = False) -> Counter[str]:
        """``requests``, ``GET``…, ``connections``, ``faults``, ``status 404``…, ``bytes_in``, ``bytes_out``."""
        return self._command({"reset": True} if reset else {})

    def _command(self, command: dict[str, Any]) -> Counter[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return Counter(json.loads(self._process.stdout.readline()))


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A Python process that prints its port and ends with its input."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def s3_server() -> Iterator[Server]:
    """moto's S3 server with a fresh bucket."""
    pytest.importorskip("moto", reason="moto is not installed; the extra test brings it")
    with _process("-m", "tests.support.store_server") as (_, port):
        server = Server(port)
        server.create_bucket()
        yield server


@contextmanager
def faulty_store() -> Iterator[FaultyStore]:
    """A bucket in memory."""
    with _process("-m", "tests.support.faulty_store") as (process, port):
        store = FaultyStore(port)
        object.__setattr__(store, "_process", process)
        yield store


def _serve_s3() -> None:
    """Run moto in this process, which tells the port before it listens: clients try again."""
    import logging
    import socket

    from moto.server import main
    from werkzeug.serving import WSGIRequestHandler

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request, and a warning that this is no production
    WSGIRequestHandler.disable_nagle_algorithm = True
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(port, flush=True)
    main(["-H", "127.0.0.1", "-p", str(port)])


if __name__ == "__main__":
    Thread(target=_serve_s3, daemon=True).start()
    sys.stdin.read()
