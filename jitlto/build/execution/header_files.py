"""Headers on their way to workers: in a directory, each content once, in a file called by its SHA-256.

Most sets of a build differ in a few headers: through sockets each set would go to each worker, megabytes at a time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
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


class HeaderFiles:
    """The headers in a directory; thread-safe.

    Args:
        directory: A private one, of this writer alone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def find(self, digest: str) -> SentHeaders | None:
        """Return what is pickled in the place of a set that was sent before; None if it was not."""
        return SentHeaders(str(self.directory), digest) if f"{digest}.set" in self._written else None

    def send(self, headers: Mapping[str, bytes]) -> SentHeaders:
        """Write a set unless it was written before; return what is pickled in its place.

        Raises:
            JitltoError: If there is no space.
        """
        digest = digest_headers(headers)
        if (known := self.find(digest)) is not None:
            return known
        names = {name: digest_content(content).hex() for name, content in headers.items()}
        with self._lock:
            for name, sha256 in names.items():
                self._write(sha256, headers[name])
            self._write(f"{digest}.set", json.dumps(names).encode())
        return SentHeaders(str(self.directory), digest)

    def _write(self, name: str, data: bytes) -> None:
        if name in self._written:
            return
        try:
            (self.directory / name).write_bytes(data)
        except OSError as error:  # what is left behind is written over by the next attempt
            raise no_temporary_directory(error) from error
        self._written.add(name)


@lru_cache(maxsize=1024)
def read_headers(directory: str, digest: str) -> HeaderSet:
    """Return a set of headers that was written into a directory."""
    names: dict[str, str] = json.loads(Path(directory, f"{digest}.set").read_bytes())
    return HeaderSet({name: _read_content(directory, sha256) for name, sha256 in names.items()})


@lru_cache(maxsize=4096)  # sets share most of them
def _read_content(directory: str, sha256: str) -> bytes:
    return Path(os.path.join(directory, sha256)).read_bytes()  # noqa: PTH118 - thousands
