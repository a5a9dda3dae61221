"""The digest that a fragment database bears, read in microseconds and without SQLite.

A database is written with pages of 4096 bytes and its table ``meta`` first, so that the row ``digest`` stands on the
second page: the name and, right behind it, the value (SQLite file format, 1.6 and 2; ``docs/database.md``). Of a file
that is made in another way nothing is said.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_PAGE = 4096
_APPLICATION_ID = b"jlto"  # at offset 68 of the header
_ROW = b"digest"
_HEXADECIMAL = frozenset(b"0123456789abcdef")


def digest_of(path: Path) -> str | None:
    """The logical digest of the database in a file; None if it cannot be told in this way.

    The digest says what was written, not that it is still whole: that is seen when the database is opened.
    """
    try:
        # Without waiting for a writer, should a FIFO be there.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            data = file.read(2 * _PAGE)
    except OSError:
        return None
    if data[:18] != b"SQLite format 3\0" + _PAGE.to_bytes(2, "big") or data[68:72] != _APPLICATION_ID:
        return None
    if status.st_size != _PAGE * int.from_bytes(data[28:32], "big"):
        return None  # cut off
    # Twice: whoever edited the file has left the old row there too.
    _, _, rest = data[_PAGE:].partition(_ROW)
    digest = rest[:64]
    if _ROW in rest or len(digest) < 64 or not _HEXADECIMAL.issuperset(digest):
        return None
    return digest.decode()
