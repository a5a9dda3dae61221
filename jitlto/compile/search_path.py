"""What nvcc has read, and what its host compiler would find now where it looked for headers.

A build is stale not only when a header that it read has changed, but also when one appears where it was looked for
before, or where ``__has_include`` asked for it. So the names in all texts that were read are recorded, with the
directories that have a header of that name.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jitlto.compile.header_places import Listings
from jitlto.compile.includes import scan_quickly

# Begins the names, among those of headers that were read, that stand for a search.
_SEARCHED = "<searched>"
_LIST = re.compile(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", re.M | re.S)
# Flag 1: a file is entered. A #line directive leaves a marker without flags, so it can neither fake nor hide one.
_ENTERED = re.compile(rb'^# \d+ "((?:[^"\\\n]|\\.)*)" 1(?: [234])*$', re.M)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")


def entered_files(preprocessed: bytes) -> tuple[str, ...]:
    """Return the files that a preprocessed text was made from, with the preprocessor's paths, sorted.

    Line markers are exact; a dependency file is not, because nvcc writes ``-MD`` from one of several runs of the
    preprocessor, and a header under ``#if __CUDA_ARCH__`` may be read in a different one.
    """

    def plain(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code

    entered = set(_ENTERED.findall(preprocessed))
    return tuple(sorted({_ESCAPE.sub(plain, path).decode("utf-8", "surrogateescape") for path in entered}))


class SearchPath:
    """The directories that are searched after the family's own, in order."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = [f"{directory}/" for directory in directories]  # paths are texts: there are hundreds
        self._states: dict[str, str] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._records: dict[frozenset[str], str] = {}  # many sources read the same
        self._listings = Listings()  # of this build: the next one looks again

    def covers(self, path: str) -> bool:
        """Return whether a header is in one of the directories, or below."""
        return path.startswith(tuple(self._directories))

    def records(self, external: frozenset[str], own: Iterable[bytes]) -> Iterator[str]:
        """Return the searches that a compile did which read some headers: names that :meth:`state` answers.

        Args:
            external: Headers in these directories.
            own: Texts that are not.
        """
        if external not in self._records:
            self._records[external] = _record({name for path in external for name in self._searched(path)})
        yield self._records[external]
        yield _record({include.name for text in own for include in scan_quickly(text).includes})

    def _searched(self, path: str) -> frozenset[str]:
        """The names that a header asks for, also beside itself, and its own: a macro may have made that."""
        if path not in self._names:
            names = [path.removeprefix(each) for each in self._directories if path.startswith(each)]
            try:
                includes = scan_quickly(Path(path).read_bytes()).includes if names else ()
            except OSError:  # gone since it was read
                includes = ()
            beside = {f"{os.path.dirname(n)}/{i.name}" for n in names for i in includes if i.quoted}  # noqa: PTH120
            every = {*names, *(include.name for include in includes), *map(os.path.normpath, beside)}
            self._names[path] = frozenset(name.lstrip("/") for name in every)
        return self._names[path]

    def state(self, record: str) -> str | None:
        """Return a digest of what a search finds now; None for a name that is no search."""
        if record not in self._states and record.startswith(_SEARCHED):
            names = searched_names(record)
            found = [
                [n for n, each in enumerate(self._directories) if self._listings.have(os.path.normpath(each + name))]
                for name in names
            ]
            self._states[record] = hashlib.sha256(json.dumps(found).encode()).hexdigest()
        return self._states.get(record)


def searched_names(record: str) -> Sequence[str]:
    """Return the names that a search looks for, in the family's directories too."""
    return record.removeprefix(_SEARCHED).split("|") if record.startswith(_SEARCHED) else ()


def host_directories(verbose: str) -> list[Path]:
    """Return the directories in the output of ``gcc -E -v``."""
    match = _LIST.search(verbose)
    lines = match[1].splitlines() if match else []
    return [Path(os.path.normpath(line.strip())) for line in lines]


def _record(names: Iterable[str]) -> str:
    return _SEARCHED + "|".join(sorted(name for name in names if not re.search(r"[|\n]", name)))
