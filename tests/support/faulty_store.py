"""A bucket of S3 in memory, as a process that adds latency, bandwidth and faults, and counts requests.

``python -m tests.support.faulty_store`` prints its port and then reads commands from standard input, a JSON object a
line (see :class:`Conditions`), each of which it answers with its counters, and ends with its input. It speaks as much
of S3 as stores need; what they mean to S3 is tested against moto.
"""

import base64
import hashlib
import json
import os
import socket
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Welcome to the guest network</body></html>"


@dataclass
class Conditions:
    """How the store behaves, from the next request on.

    The faults: ``refuse`` (nobody listens, and open connections are cut), ``silent`` (accept, read and never answer),
    ``drop`` (cut the connection in the middle of the body), ``status`` (answer with ``status``), ``html`` (a page that
    says 200, as captive portals send), ``empty`` (200 and no body), ``tampered`` (a byte in the middle is another),
    ``garbage`` (no HTTP), ``bodies`` (200 with the next of ``bodies`` in base64, again from the first after the last).
    """

    latency: float = 0.0  # seconds a round trip; the first request of a connection waits for two
    bandwidth: float = 0.0  # bytes a second for all clients together, each way; 0: no limit
    fault: str = ""
    status: int = 500
    bodies: list[str] = field(default_factory=list)
    part: str = ""  # only requests whose target contains this have the fault
    after: int = 0  # requests of that kind that pass before the fault begins


@dataclass
class Reply:
    """The reply to a request."""

    status: int
    body: bytes = b""
    modified: float = 1_704_067_200.0
    kind: str = "application/octet-stream"

    def encode(self, method: str) -> bytes:
        """The bytes that are sent."""
        etag = hashlib.md5(self.body, usedforsecurity=False).hexdigest()
        head = (
            f"HTTP/1.1 {self.status} .\r\nContent-Length: {len(self.body)}\r\nContent-Type: {self.kind}\r\n"
            f'ETag: "{etag}"\r\nLast-Modified: {formatdate(self.modified, usegmt=True)}\r\n\r\n'
        )
        return head.encode() + (b"" if method == "HEAD" else self.body)


class Store(ThreadingTCPServer):
    """The server; one a process. Objects lie under their paths, the bucket's name included."""

    daemon_threads, block_on_close, allow_reuse_address, request_queue_size = True, False, True, 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.conditions = Conditions()
        self.counts: Counter[str] = Counter()
        self.connections: set[socket.socket] = set()
        self.lock = Lock()
        self._matching = 0  # requests that the present fault is meant for
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._idle_at = {"in": 0.0, "out": 0.0}  # when the line is free again, by direction

    def listen(self) -> None:
        """Accept connections."""
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def change(self, command: dict[str, Any]) -> dict[str, int]:
        """Replace the conditions if any are given; return the counters, from zero on if ``reset`` is given."""
        with self.lock:
            counts = dict(self.counts)
            if command.pop("reset", False):
                self.counts.clear()
        refused = self.conditions.fault == "refuse"
        if command:
            self.conditions, self._matching = Conditions(**command), 0
        refuses = self.conditions.fault == "refuse"
        if refuses and not refused:
            self.shutdown()
            self.server_close()
            for connection in [*self.connections]:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        elif refused and not refuses:
            self.socket = socket.socket()
            self.server_bind()
            self.server_activate()
            self.listen()
        return counts

    def fault_of(self, method: str, target: str, size: int) -> tuple[str, int]:
        """Count a request; return the fault that it has, and how many have had it before."""
        now = self.conditions
        with self.lock:
            self.counts.update({"requests": 1, method: 1, "bytes_in": size})
            if not now.fault or now.part not in target:
                return "", 0
            self._matching += 1
            if self._matching <= now.after:
                return "", 0
            self.counts["faults"] += 1
            return now.fault, self._matching - now.after - 1

    def transfer(self, direction: str, size: int) -> None:
        """Wait as long as these bytes take on a line that all clients share."""
        if self.conditions.bandwidth:
            with self.lock:
                now = time.monotonic()
                until = max(now, self._idle_at[direction]) + size / self.conditions.bandwidth
                self._idle_at[direction] = until
            time.sleep(until - now)

    def answer(self, method: str, target: str, body: bytes, *, once: bool) -> Reply:
        """Answer a request as S3 does; ``once`` if an object is not to be replaced."""
        parts = urlsplit(target)
        path, query = unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True)
        with self.lock:
            if method == "PUT" and "/" in path:
                if once and path in self._objects:
                    return _error(412, "PreconditionFailed")
                self._objects[path] = (body, time.time())
            elif method == "POST":
                keys = [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")]  # noqa: S314
                for key in keys:
                    self._objects.pop(f"{path}/{key}", None)
                deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
                return Reply(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), kind="application/xml")
            elif method == "DELETE":
                self._objects.pop(path, None)
                return Reply(204)
            elif "list-type" in query:
                return self._list(f"{path}/", query.get("prefix", [""])[0])
            elif method in ("GET", "HEAD"):
                found = self._objects.get(path)
                return Reply(200, *found) if found else _error(404, "NoSuchKey")
        return Reply(200)

    def _list(self, bucket: str, prefix: str) -> Reply:
        rows = []
        for path, (body, modified) in sorted(self._objects.items()):
            if path.startswith(bucket + prefix):
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified))
                name = escape(path.removeprefix(bucket))
                rows.append(
                    f"<Contents><Key>{name}</Key><LastModified>{stamp}</LastModified><Size>{len(body)}</Size></Contents>"
                )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        return Reply(200, text.encode(), kind="application/xml")


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Store

    def handle(self) -> None:
        """Answer its requests; the first waits for two round trips."""
        self.trips = 2
        self.server.connections.add(self.connection)
        self.server.counts["connections"] += 1
        with suppress(ConnectionError, ValueError):  # of an end that has gone
            super().handle()
        self.server.connections.discard(self.connection)

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        store, method = self.server, self.command
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault, number = store.fault_of(method, self.path, len(body))
        time.sleep(self.trips * store.conditions.latency)
        self.trips = 1
        if fault == "silent":
            Event().wait()
        if fault == "garbage":
            self.wfile.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n" * 8)
            self.close_connection = True
            return
        store.transfer("in", len(body))
        sent = self._faulty(fault, number)
        if sent is None:
            once = self.headers.get("If-None-Match") == "*"
            sent = store.answer(method, self.path, body, once=once)
        if fault == "tampered" and method == "GET" and sent.body:
            middle = len(sent.body) // 2
            sent.body = sent.body[:middle] + bytes([sent.body[middle] ^ 1]) + sent.body[middle + 1 :]
        with store.lock:
            store.counts.update({f"status {sent.status}": 1, "bytes_out": len(sent.body)})
        store.transfer("out", len(sent.body))
        data = sent.encode(method)
        if fault == "drop":
            data = data[: len(data) - len(sent.body) // 2 - 1]
            self.close_connection = True
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - as the base class calls them

    def _faulty(self, fault: str, number: int) -> Reply | None:
        """The reply of a fault that does not look at the objects."""
        now = self.server.conditions
        if fault == "status":
            return Reply(now.status, b"<Error><Code>Fault</Code><Message>as the test wants it</Message></Error>")
        if fault == "html":
            return Reply(200, PAGE, kind="text/html")
        if fault == "bodies":
            return Reply(200, base64.b64decode(now.bodies[number % len(now.bodies)]))
        return Reply(200) if fault == "empty" else None


def _error(status: int, code: str) -> Reply:
    return Reply(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


if __name__ == "__main__":
    served = Store()
    served.listen()
    print(served.server_address[1], flush=True)
    for line in sys.stdin:
        print(json.dumps(served.change(json.loads(line))), flush=True)
    os._exit(0)  # connections that wait for an answer are not waited for
