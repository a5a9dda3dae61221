"""Headers on their way to worker processes of this machine: in one file, each content once.

Most sets of a build differ in a few headers, and most workers compile sources with most sets: through their sockets
each set would go to each worker, megabytes at a time.
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

_CONTENTS = "headers"


class HeaderFiles:
    """Writes sets of headers for :func:`read_headers`; thread-safe.

    Args:
        directory: A private one, of this writer alone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._places: dict[bytes, tuple[int, int]] = {}  # SHA-256 of a content → where it begins, its size
        self._end = 0
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def write(self, headers: Mapping[str, bytes]) -> str:
        """Write a set unless it was written before; return its digest.

        Raises:
            JitltoError: If there is no space.
        """
        hashed = headers if isinstance(headers, HeaderSet) else HeaderSet(headers)
        digest = digest_headers(hashed)
        with self._lock:
            if digest not in self._written:
                try:
                    self._write(digest, hashed)
                except OSError as error:
                    raise no_temporary_directory(error) from error
                self._written.add(digest)
        return digest

    def _write(self, digest: str, headers: HeaderSet) -> None:
        places, end = dict(self._places), self._end
        with (self.directory / _CONTENTS).open("ab") as file:
            file.truncate(end)  # what an attempt without success left behind
            for content in headers.values():
                if (sha256 := digest_content(content)) not in places:
                    places[sha256] = end, len(content)
                    end += file.write(content)
        listed = [(name, *places[digest_content(content)]) for name, content in headers.items()]
        (self.directory / f"{digest}.json").write_text(json.dumps([headers.hashes.hex(), listed]), "ascii")
        self._places, self._end = places, end


@lru_cache(maxsize=1024)
def read_headers(directory: str, digest: str) -> HeaderSet:
    """Return a set of headers that was written into a directory."""
    hashes, listed = json.loads(Path(directory, f"{digest}.json").read_text("ascii"))
    headers = HeaderSet({name: _read_content(directory, begin, size) for name, begin, size in listed})
    headers.hashes = bytes.fromhex(hashes)
    return headers


@lru_cache(maxsize=4096)  # sets share most of them
def _read_content(directory: str, begin: int, size: int) -> bytes:
    with Path(directory, _CONTENTS).open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, begin)
