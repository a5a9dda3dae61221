"""Headers on their way to workers: in a directory, each content once, in a file called by its SHA-256.

Most sets of a build differ in a few headers, and most workers compile sources with most sets: through their sockets
each set would go to each worker, megabytes at a time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from jitlto.base.files import no_temporary_directory
from jitlto.record.headers import HeaderSet, digest_content, digest_headers


class SentHeaders(dict[str, bytes]):
    """Headers of a job on its way: pickled as the place where they are read when it arrives."""

    def __init__(self, directory: str, digest: str) -> None:
        super().__init__()
        self.place = directory, digest

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return read_headers, self.place


def names_of(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the SHA-256 of each content, by name."""
    return {name: digest_content(content) for name, content in headers.items()}


class HeaderFiles:
    """The headers in a directory; thread-safe.

    Args:
        directory: A private one, of this writer alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._contents: set[bytes] = set()
        self._sets: set[str] = set()
        self._lock = threading.Lock()

    def lacking(self, hashes: Iterable[bytes]) -> frozenset[bytes]:
        """Return which contents are not there, of those with some SHA-256."""
        return frozenset(hashes) - self._contents

    def send(self, headers: Mapping[str, bytes]) -> SentHeaders:
        """Write a set unless it was written before; return what is pickled in its place.

        Raises:
            JitltoError: If there is no space.
        """
        digest = digest_headers(headers)
        if digest not in self._sets:
            names = names_of(headers)
            self.add({names[name]: content for name, content in headers.items()})
            self.join(digest, names)
        return SentHeaders(str(self._directory), digest)

    def add(self, contents: Mapping[bytes, bytes]) -> None:
        """Write contents, by their SHA-256.

        Raises:
            JitltoError: If there is no space.
        """
        with self._lock:
            for sha256 in contents.keys() - self._contents:
                self._write(sha256.hex(), contents[sha256])
                self._contents.add(sha256)

    def join(self, digest: str, names: Mapping[str, bytes]) -> SentHeaders:
        """Make a set of contents that are there; return what is pickled in its place.

        Raises:
            JitltoError: If there is no space.
        """
        with self._lock:
            if digest not in self._sets:
                listed = json.dumps({name: sha256.hex() for name, sha256 in names.items()})
                self._write(f"{digest}.set", listed.encode())
                self._sets.add(digest)
        return SentHeaders(str(self._directory), digest)

    def _write(self, name: str, data: bytes) -> None:
        try:
            (self._directory / name).write_bytes(data)
        except OSError as error:  # what is left behind is written over by the next attempt
            raise no_temporary_directory(error) from error


@lru_cache(maxsize=1024)
def read_headers(directory: str, digest: str) -> HeaderSet:
    """Return a set of headers that was written into a directory."""
    names: dict[str, str] = json.loads(Path(directory, f"{digest}.set").read_bytes())
    return HeaderSet({name: _read_content(directory, sha256) for name, sha256 in names.items()})


@lru_cache(maxsize=4096)  # sets share most of them
def _read_content(directory: str, sha256: str) -> bytes:
    return Path(os.path.join(directory, sha256)).read_bytes()  # noqa: PTH118 - thousands
