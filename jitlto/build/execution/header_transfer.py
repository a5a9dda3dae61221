"""Headers on their way to another executor: a worker is sent each content once, in however many sets it is.

Most sets of a build differ in a few headers. What is sent are the names of a set, with the SHA-256 of each content, and
those contents, compressed, that a worker has said it lacks.
"""

from __future__ import annotations

import pickle
import threading
import zlib
from collections.abc import Mapping
from functools import lru_cache

from jitlto.record.headers import digest_content

Headers = Mapping[str, bytes]


class MissingHeaders(Exception):  # noqa: N818 - a request for them, which never leaves this package
    """A worker lacks a set of headers, or has discarded it.

    Args:
        contents: SHA-256 of the contents that it lacks, none if it does not know the names; None if it has no headers.
        worker: Its address, if the executor's workers have any.
    """

    def __init__(self, contents: frozenset[bytes] | None, worker: str | None = None) -> None:
        super().__init__(contents, worker)
        self.contents = contents
        self.worker = worker


class HeaderStore:
    """The most recently used sets of headers of a process; thread-safe.

    Args:
        limit: The most bytes to store; the newest set may exceed it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sets: dict[str, Headers] = {}  # the least recently used first
        self._lock = threading.Lock()

    def put(self, digest: str, headers: Headers) -> None:
        with self._lock:
            self._sets.pop(digest, None)
            self._sets[digest] = headers
            while len(self._sets) > 1 and sum(map(_size, self._sets.values())) > self._limit:
                del self._sets[next(iter(self._sets))]

    def get(self, digest: str) -> Headers:
        with self._lock:
            if digest not in self._sets:
                raise MissingHeaders(frozenset() if self._sets else None)
            self._sets[digest] = self._sets.pop(digest)
            return self._sets[digest]

    def receive(self, digest: str, packed: bytes) -> Headers:
        """Store a set from :func:`pack`, and return it; contents that were not sent are taken from other sets."""
        names, sent = pickle.loads(packed)  # noqa: S301 - from our own client
        with self._lock:
            contents = {digest_content(each): each for held in self._sets.values() for each in held.values()}
        contents |= {sha256: zlib.decompress(data) for sha256, data in sent.items()}
        if missing := frozenset(names.values()) - contents.keys():
            raise MissingHeaders(missing)
        headers = {name: contents[sha256] for name, sha256 in names.items()}
        self.put(digest, headers)
        return headers


def pack(headers: Headers, wanted: frozenset[bytes] | None) -> bytes:
    """Return the names of a set of headers, and of their contents those that are wanted by SHA-256; None for all."""
    names = {name: digest_content(content) for name, content in headers.items()}
    sent = {
        sha256: _compress(headers[name]) for name, sha256 in names.items() if wanted is None or sha256 in wanted
    }  # fmt: skip
    return pickle.dumps((names, sent))


@lru_cache(maxsize=4096)
def _compress(content: bytes) -> bytes:
    # Once for all workers.
    return zlib.compress(content, 1)


def _size(headers: Headers) -> int:
    return sum(map(len, headers.values()))
