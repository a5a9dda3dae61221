"""Headers on their way to workers: in a directory, each content once, in a file called by its SHA-256.

Most sets of a build differ in a few headers: through sockets each set would go to each worker, megabytes at a time.
"""

import json
import os
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


def write_headers(directory: Path, headers: Mapping[str, bytes], written: set[str]) -> SentHeaders:
    """Write what was not ``written`` before into a private directory; return what is pickled in the place of the set.

    Raises:
        JitltoError: If there is no space.
    """
    digest = f"{digest_headers(headers)}.set"
    if digest not in written:
        names = {name: digest_content(content).hex() for name, content in headers.items()}
        files = {sha256: headers[name] for name, sha256 in names.items()} | {digest: json.dumps(names).encode()}
        try:
            for file in files.keys() - written:
                (directory / file).write_bytes(files[file])
        except OSError as error:  # what is left behind is written over by the next attempt
            raise no_temporary_directory(error) from error
        written.update(files)
    return SentHeaders(str(directory), digest)


@lru_cache(maxsize=1024)
def read_headers(directory: str, digest: str) -> HeaderSet:
    """Return a set of headers that was written into a directory."""
    names: dict[str, str] = json.loads(Path(directory, digest).read_bytes())
    return HeaderSet({name: _read_content(directory, sha256) for name, sha256 in names.items()})


@lru_cache(maxsize=4096)  # sets share most of them
def _read_content(directory: str, sha256: str) -> bytes:
    return Path(os.path.join(directory, sha256)).read_bytes()  # noqa: PTH118 - thousands
