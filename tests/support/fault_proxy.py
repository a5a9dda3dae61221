"""A process between clients and an S3 or HTTP server that adds latency, bandwidth and faults, and counts requests.

``python -m tests.support.fault_proxy [--to PORT]`` prints its port and then reads commands from
standard input, one JSON object a line (see :class:`Conditions`), each of which it answers with its counters, and ends
with its input. Without ``--to`` it holds a bucket in memory.
"""

import argparse
import asyncio
import base64
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Message, read_message, reply
from tests.support.memory_bucket import MemoryBucket

PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Welcome to the guest network</body></html>"
FAULTS = (
    "refuse",  # nobody listens, and open connections are cut
    "silent",  # accept, read and never answer
    "drop",  # cut the connection in the middle of the body
    "status",  # answer with `status`
    "html",  # a page that says 200, as captive portals send
    "empty",  # 200 and no body
    "truncated",  # half of the body, as if it were all
    "tampered",  # a byte in the middle is another
    "swapped",  # the body of another object that was read before
    "garbage",  # no HTTP
    "bodies",  # 200 with the next of `bodies` (base64), again from the first after the last
)


@dataclass
class Conditions:
    """How the proxy behaves, from the next request on."""

    latency: float = 0.0  # seconds a round trip; the first request of a connection waits for two
    bandwidth: float = 0.0  # bytes a second for all clients together, each way; 0: no limit
    fault: str = ""  # one of FAULTS
    status: int = 500  # of the fault "status"
    bodies: list[str] = field(default_factory=list)
    method: str = ""  # only requests of this method have the fault
    part: str = ""  # only requests whose target contains this
    after: int = 0  # requests of that kind that pass before the fault begins
    times: int = 0  # how many then have it; 0: all


Answer = Callable[[Message], Awaitable[Message]]


class Proxy:
    """The server; one a process."""

    def __init__(self, answer: Answer) -> None:
        self.conditions = Conditions()
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._counts: Counter[str] = Counter()
        self._matching = 0  # requests that the present fault is meant for
        self._read: dict[str, bytes] = {}  # bodies of earlier replies, for "swapped"
        self._idle_at = {"in": 0.0, "out": 0.0}  # when the line is free again, by direction

    async def listen(self) -> int:
        """Listen, on the port of the last time if there was one."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, limit=1 << 20, backlog=1024, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def change(self, command: dict[str, Any]) -> dict[str, int]:
        """Replace the conditions if any are given; return the counters, from zero on if ``reset`` is given."""
        reset = command.pop("reset", False)
        counts = dict(self._counts)
        if reset:
            self._counts.clear()
        if command:
            self.conditions = Conditions(**command)
            self._matching = 0
            refuse = self.conditions.fault == "refuse"
            if refuse and self._server is not None:
                self._server.close()
                self._server = None
                for writer in list(self._open):
                    writer.transport.abort()
            elif not refuse and self._server is None:
                await self.listen()
        return counts

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self._open.add(writer)
        self._counts["connections"] += 1
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = 2
        try:
            while (request := await read_message(reader)) is not None:
                self._count(request)
                await self._wait(trips * self.conditions.latency)
                trips = 1
                if not await self._reply(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort() if writer.is_closing() else writer.close()

    def _count(self, request: Message) -> None:
        self._counts["requests"] += 1
        self._counts[request.method] += 1
        self._counts["bytes_in"] += len(request.body)

    async def _reply(self, request: Message, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False if the connection is then to be closed."""
        fault = self._fault_of(request)
        if fault == "silent":
            self._counts["faults"] += 1
            await asyncio.Event().wait()
        if fault == "garbage":
            writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n" * 8)
            await writer.drain()
            return False
        await self._transfer("in", len(request.body))
        sent = self._spoilt(fault, request) if fault else None
        if sent is None:
            sent = await self._answer(request)
            sent = self._altered(fault, request, sent)
        self._counts[f"status {sent.status}"] += 1
        self._counts["bytes_out"] += len(sent.body)
        await self._transfer("out", len(sent.body))
        data = sent.encode()
        if fault == "drop":
            writer.write(data[: len(data) - len(sent.body) // 2 - 1])
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.transport.abort()
            return False
        writer.write(data)
        await writer.drain()
        return True

    def _fault_of(self, request: Message) -> str:
        """The fault that this request has."""
        now = self.conditions
        if not now.fault or now.method not in ("", request.method) or now.part not in request.target:
            return ""
        self._matching += 1
        if self._matching <= now.after or (now.times and self._matching > now.after + now.times):
            return ""
        self._counts["faults"] += 1
        return now.fault

    def _spoilt(self, fault: str, request: Message) -> Message | None:
        """The reply of a fault that does not ask the server behind."""
        now = self.conditions
        if fault == "status":
            return reply(now.status, b"<Error><Code>Fault</Code><Message>as the test wants it</Message></Error>")
        bodies = {"html": PAGE, "empty": b""}
        if fault == "bodies":
            bodies["bodies"] = base64.b64decode(now.bodies[(self._matching - now.after - 1) % len(now.bodies)])
        if fault not in bodies:
            return None
        kind = "text/html" if fault == "html" else "application/octet-stream"
        last = "Mon, 01 Jan 2024 00:00:00 GMT"
        sent = reply(200, bodies[fault], content_type=kind, last_modified=last, etag='"fault"')
        if request.method == "HEAD":
            sent.headers["content-length"], sent.body = str(len(sent.body)), b""
        return sent

    def _altered(self, fault: str, request: Message, sent: Message) -> Message:
        """The server's reply with the fault."""
        if request.method != "GET" or sent.status != 200 or not sent.body:
            return sent
        body, path = sent.body, request.target
        if fault == "truncated":
            sent.body = body[: len(body) // 2]
        elif fault == "tampered":
            middle = len(body) // 2
            sent.body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        elif fault == "swapped":
            sent.body = next((other for name, other in self._read.items() if name != path), body)
        if fault:
            sent.headers.pop("content-length", None)
        else:
            self._read[path] = body
            if len(self._read) > 1000:
                del self._read[next(iter(self._read))]
        return sent

    async def _transfer(self, direction: str, size: int) -> None:
        """Wait as long as these bytes take on a line that all clients share."""
        if self.conditions.bandwidth:
            now = asyncio.get_running_loop().time()
            self._idle_at[direction] = max(now, self._idle_at[direction]) + size / self.conditions.bandwidth
            await self._wait(self._idle_at[direction] - now)

    @staticmethod
    async def _wait(seconds: float) -> None:
        """Sleep; the loop rounds up to milliseconds, which is made up for on average."""
        if seconds > 0.0005:
            await asyncio.sleep(seconds - 0.0005)


def forward_to(port: int) -> Answer:
    """Pass requests on to a server of this machine, over connections that are kept while it keeps them."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def answer(request: Message) -> Message:
        sent = None
        while sent is None:
            kept = bool(idle)
            reader, writer = idle.pop() if kept else await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            try:
                writer.write(request.encode())
                sent = await read_message(reader, answers=request.method)
            except (ConnectionError, asyncio.IncompleteReadError):
                sent = None
            if sent is None:
                writer.close()
                if not kept:
                    return reply(502, b"the server behind the proxy closed the connection")
        closes = sent.headers.pop("connection", "").lower() == "close" or sent.first.startswith("HTTP/1.0")
        if closes or "content-length" not in sent.headers | {"transfer-encoding": ""}:
            writer.close()
        else:
            idle.append((reader, writer))
        sent.first = sent.first.replace("HTTP/1.0", "HTTP/1.1")
        return sent

    return answer


async def _main(to: int) -> None:
    proxy = Proxy(forward_to(to) if to else MemoryBucket().answer)
    print(await proxy.listen(), flush=True)
    commands = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(await proxy.change(json.loads(line))), flush=True)
    os._exit(0)  # connections that wait for an answer are not waited for


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=int, default=0, help="port of the server behind")
    asyncio.run(_main(parser.parse_args().to))
