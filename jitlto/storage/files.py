"""Files: identity, safe reading, atomic replacement; recognises a database without SQLite."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

# A database is written with pages of 4096 bytes and its table ``meta`` first, so that the row ``digest`` stands on the
# second page: the name and, right behind it, the value (SQLite file format, 1.6 and 2; docs/database.md).
_PAGE = 4096
_APPLICATION_ID = b"jlto"  # at offset 68 of the header
_ROW = b"digest"
_HEXADECIMAL = frozenset(b"0123456789abcdef")

#: Suffix of a database's file name, which an entry point's value leaves out.
SUFFIX = ".fragdb"
#: Group of the entry points by which installed packages declare their families and databases.
GROUP = "jitlto.fragments"

#: Distinguishes a file from any other that has or had its name.
Identity: TypeAlias = "tuple[int, ...]"


def identity(status: os.stat_result) -> Identity:
    """Return device, inode, size in bytes, and times of the last write and the last change in nanoseconds."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open a regular file for reading, and yield it with its status, without blocking on a FIFO.

    Raises:
        OSError: If it cannot be opened, or is not a regular file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "not a regular file", str(path))
        yield file, status


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file, or the output of a process (``<(command)``), without blocking on a FIFO that has no writer.

    Raises:
        OSError: If it cannot be read, is neither a regular file nor a FIFO, or is a FIFO without a writer.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a descriptor
        mode = os.fstat(file.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):  # some devices never end
            raise OSError(None, "not a file", str(path))
        os.set_blocking(file.fileno(), True)
        data = file.read()
    if stat.S_ISFIFO(mode) and not data:
        raise OSError(None, "a FIFO without a writer", str(path))
    return data


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path`` to write to, which replaces ``path`` at the end or leaves nothing.

    The file's mode follows the umask, unlike that of mkstemp.
    """
    temporary = path.parent / f".jitlto-{os.urandom(8).hex()}"
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def beside(path: Path, suffix: str) -> list[Path]:
    """Return the files ``STEM.suffix`` and ``STEM.*.suffix`` beside ``path``, whose stem is ``STEM``; sorted."""
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - names are what is asked for
    except OSError:
        return []
    begin = f"{path.stem}."
    return [path.with_name(n) for n in sorted(names) if n.startswith(begin) and n.endswith(suffix)]


def is_database(path: Path) -> bool:
    """Return whether a file, even a damaged one, has our application id (SQLite file format, 1.3: offset 68).

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:] == _APPLICATION_ID


def digest_of(path: Path) -> str | None:
    """Return a fragment database's digest without SQLite; None if the file is not as jitlto writes it.

    The digest identifies the content that was written. Damage is detected only when the database is opened.
    """
    try:
        with open_regular(path) as (file, status):
            data = file.read(2 * _PAGE)
    except OSError:
        return None
    if data[:18] != b"SQLite format 3\0" + _PAGE.to_bytes(2, "big") or data[68:72] != _APPLICATION_ID:
        return None
    if status.st_size != _PAGE * int.from_bytes(data[28:32], "big"):
        return None  # truncated
    # `digest` occurs twice if the file was edited in place and still contains the old row.
    _, _, rest = data[_PAGE:].partition(_ROW)
    digest = rest[:64]
    if _ROW in rest or len(digest) < 64 or not _HEXADECIMAL.issuperset(digest):
        return None
    return digest.decode()
