"""Places where no file may be written, and disks that take no more."""

import os
import socket
import stat
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
