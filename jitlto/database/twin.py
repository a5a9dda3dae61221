"""The twin of a database with line information: a directory beside it, ``STEM.lineinfo``.

It holds a database of the same name, whose fragments are the same and compiled with line information; their sources
and headers, under ``sources/``; and a manifest that says of which database it is the twin, and which file belongs to a
name in a line table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from jitlto.base.files import TWIN_SUFFIX
from jitlto.database._records import InvalidRecordError, decode, encode

#: Directory of the sources in it.
SOURCES = "sources"
_MANIFEST = "files.json"


class TwinManifest(Struct, frozen=True):
    """What a twin says of itself.

    Args:
        original: The digest of the database whose twin it is.
        files: By family: name in a line table → path under ``sources/``.
        schema: The number of this form.
    """

    original: str
    files: dict[str, dict[str, str]]
    schema: Literal[1] = 1

    def find(self, family: str, name: str) -> str | None:
        """Return the path of the file that a line table of a family's kernel names; None if it is not of the twin.

        A compiler puts its working directory before the names that it is given, so the longest known end counts.
        """
        known, parts = self.files.get(family, {}), name.split("/")
        ends = ("/".join(parts[number:]) for number in range(len(parts)))
        return next((known[end] for end in ends if end in known), None)

    def write(self, directory: Path) -> None:
        """Write the manifest into a twin's directory."""
        (directory / _MANIFEST).write_bytes(encode(self))

    @classmethod
    def read(cls, directory: Path) -> TwinManifest | None:
        """Read the manifest of a twin; None if the directory is no twin, or one that this version cannot read."""
        try:
            return decode(cls, (directory / _MANIFEST).read_bytes())
        except (OSError, InvalidRecordError):
            return None


def twin_directory(database: Path) -> Path:
    """Return the directory of a database's twin, which need not exist."""
    return database.with_suffix(TWIN_SUFFIX)
