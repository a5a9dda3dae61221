"""Places where no file may be written, and disks that take no more."""

from __future__ import annotations

import os
import resource
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: What may stand at a path and is no regular file.
SPECIAL = ("fifo", "socket", "device", "directory")


def special_file(path: Path, kind: str) -> Path:
    """Create something that is no regular file: one of :data:`SPECIAL`."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir(path.parent)  # the path of a socket has to be short
            try:
                listener.bind(path.name)
            finally:
                os.chdir(here)
    else:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null is
        except PermissionError:
            pytest.skip("this user may not make devices")
    return path


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond some bytes, as on a disk that is full."""
    before, writes_none = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    sys.dont_write_bytecode = True  # of what a command imports, or half of it would be kept
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes_none
