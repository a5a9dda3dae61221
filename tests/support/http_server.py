"""The little of HTTP/1.1 that the servers of the tests share: messages with their bodies, over asyncio's streams."""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass
class Message:
    """A request or a reply: its first line, headers by lower-case name, and the whole body."""

    first: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.first.split(" ", 1)[0]

    @property
    def target(self) -> str:
        """The path and query of a request."""
        return self.first.split(" ")[1]

    @property
    def status(self) -> int:
        """The status of a reply."""
        return int(self.first.split(" ")[1])

    def encode(self) -> bytes:
        """The bytes that are sent; the length is that of the body, unless the headers give another."""
        headers = {name: value for name, value in self.headers.items() if name != "transfer-encoding"}
        headers.setdefault("content-length", str(len(self.body)))
        lines = [self.first, *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def reply(status: int, body: bytes = b"", **headers: str) -> Message:
    """A reply; underscores in names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Message(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", named, body)


async def read_message(reader: asyncio.StreamReader, *, answers: str = "") -> Message | None:
    """The next message, None at the end of the connection. ``answers`` is the method that a reply answers."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    pairs = (line.partition(":") for line in lines)
    message = Message(first, {name.lower(): value.strip() for name, _, value in pairs})
    if answers == "HEAD" or (answers and message.status in {204, 304}):
        return message
    if message.headers.get("transfer-encoding", "").lower() == "chunked":
        message.body = await _chunks(reader)
    elif "content-length" in message.headers:
        message.body = await reader.readexactly(int(message.headers["content-length"]))
    elif answers:
        message.body = await reader.read()
    return message


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body that is sent in chunks."""
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)
