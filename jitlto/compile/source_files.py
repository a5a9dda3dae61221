"""The files below a family's directories: whatever may be one of its sources."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# What version control, tools and editors leave between sources. Other names that begin with a dot may be sources.
_NO_FOLDERS = frozenset({".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"})
_EDITORS_FILE = re.compile(r"\..*\.sw[a-z]|\.#.*|.*~|\.DS_Store")


def walk(folders: Iterable[Path], *, thorough: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield directories, and the directories and regular files below them: the path, and whether it is a directory.

    Left out are virtual environments, and what version control, Python, tools and editors leave.

    Args:
        folders: The directories; one that is not there is left out.
        thorough: Whether names count that begin with a dot, and directories behind symbolic links, by every path that
            leads to them. Much more than sources may be found this way.
    """
    return (found for folder in folders for found in _walk(str(folder), thorough))


def _walk(folder: str, thorough: bool, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[str, bool]]:
    try:
        status = os.stat(folder)  # noqa: PTH116 - texts, for thousands of files
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:  # nothing that a build could read either
        return
    identity = (status.st_dev, status.st_ino)
    if identity in above or any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    yield folder, True
    for entry in entries:
        try:
            is_folder = entry.is_dir()
        except OSError:  # a link to itself
            continue
        if not thorough and (entry.name.startswith(".") or (entry.is_symlink() and is_folder)):
            continue
        if is_folder:
            if entry.name not in _NO_FOLDERS:
                yield from _walk(entry.path, thorough, (*above, identity))
        elif entry.is_file() and not _EDITORS_FILE.fullmatch(entry.name):  # reading a FIFO would block
            yield entry.path, False
