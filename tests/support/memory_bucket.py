"""A bucket in memory that speaks as much of S3 as stores need, for measurements in which moto would be too slow.

It answers in microseconds where moto takes milliseconds. What stores mean to S3 is tested against moto.
"""

import hashlib
import time
import xml.etree.ElementTree as ET
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.http_server import Message, reply


class MemoryBucket:
    """Objects by path, the bucket's name included."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, float]] = {}

    async def answer(self, request: Message) -> Message:
        """The reply to a request; nothing waits, so each is atomic."""
        parts = urlsplit(request.target)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        if request.method == "PUT" and "/" in path:
            return self._put(path, request)
        if request.method == "POST" and "delete" in query:
            return self._delete_all(path.rstrip("/"), request.body)
        if request.method == "GET" and "list-type" in query:
            return self._list(path.rstrip("/"), query)
        if request.method == "DELETE":
            self._objects.pop(path, None)
            return reply(204)
        if request.method in {"GET", "HEAD"}:
            return self._get(path, request.method)
        return reply(200 if request.method == "PUT" else 501)

    def _put(self, path: str, request: Message) -> Message:
        if path in self._objects and request.headers.get("if-none-match") == "*":
            return reply(412, _error("PreconditionFailed"))
        self._objects[path] = (request.body, time.time())
        return reply(200, etag=_etag(request.body))

    def _get(self, path: str, method: str) -> Message:
        if path not in self._objects:
            return reply(404, _error("NoSuchKey"))
        body, modified = self._objects[path]
        times = formatdate(modified, usegmt=True)
        sent = reply(200, body, last_modified=times, etag=_etag(body), content_type="application/octet-stream")
        if method == "HEAD":
            sent.headers["content-length"], sent.body = str(len(body)), b""
        return sent

    def _list(self, bucket: str, query: dict[str, list[str]]) -> Message:
        prefix = query.get("prefix", [""])[0]
        rows = []
        for path, (body, modified) in sorted(self._objects.items()):
            name = path.removeprefix(bucket + "/")
            if path.startswith(bucket + "/") and name.startswith(prefix):
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified))
                rows.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp}</LastModified>"
                    f"<ETag>{escape(_etag(body))}</ETag><Size>{len(body)}</Size></Contents>"
                )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        return reply(200, text.encode(), content_type="application/xml")

    def _delete_all(self, bucket: str, body: bytes) -> Message:
        keys = [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")]  # noqa: S314
        for key in keys:
            self._objects.pop(f"{bucket}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return reply(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), content_type="application/xml")


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
