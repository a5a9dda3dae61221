"""Where nvcc's host compiler looks for headers, and what it would find there now.

A build is stale not only when a header that it read has changed, but also when one appears where it was looked for
before, or where ``__has_include`` asked for it. So the names in all texts that were read are recorded, with the
directories that have a header of that name.
"""

from __future__ import annotations

import hashlib
import json
import os
import os.path
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jitlto.compile.includes import scan_quickly

#: Begins the names, among those of headers that were read, that stand for a search.
SEARCHED = "<searched"
_RECORD = re.compile(re.escape(SEARCHED) + r" ?([^>]*)>(.*)", re.S)
_LIST = re.compile(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", re.M | re.S)


class _Found(NamedTuple):
    """A header that was read: its names from each directory that it is in, and the names that it asks for."""

    names: frozenset[str]
    asked: frozenset[str]
    asked_beside: frozenset[str]


class SearchPath:
    """The directories that are searched after the family's own, in order.

    Args:
        toolkit, host: The toolkit's and the host compiler's.
    """

    def __init__(self, toolkit: Sequence[Path], host: Sequence[Path]) -> None:
        self.directories = (*toolkit, *host)
        self._toolkit = tuple(toolkit)
        self._states: dict[str, str] = {}
        self._headers: dict[str, _Found] = {}
        self._searches: dict[frozenset[str], tuple[set[str], tuple[str, ...]]] = {}  # many sources read the same
        self._listings: dict[str, frozenset[str]] = {}  # of this build: the next one looks again

    def covers(self, path: str) -> bool:
        """Return whether a header is in one of the directories, or below."""
        return any(path.startswith(directory) for directory in map(_prefix, self.directories))

    def records(self, external: frozenset[str], own: Iterable[bytes]) -> Iterator[str]:
        """Return the searches that a compile did which read some headers: names that :meth:`state` answers.

        Args:
            external: Headers in these directories.
            own: Texts that are not.
        """
        anywhere, fixed = self._searched(external)
        yield from fixed
        yield f"{SEARCHED}>{_join({name for text in own for _, name in _names(text)} - anywhere)}"

    def _searched(self, external: frozenset[str]) -> tuple[set[str], tuple[str, ...]]:
        """The names that these headers look for anywhere, and the records of their searches."""
        if external not in self._searches:
            self._searches[external] = self._search_for(external)
        return self._searches[external]

    def _search_for(self, external: frozenset[str]) -> tuple[set[str], tuple[str, ...]]:
        anywhere: set[str] = set()
        beside: dict[str, set[str]] = defaultdict(set)
        for path in external:
            found = self._found(path)
            # What a macro named is known from what was found.
            anywhere |= found.names | found.asked
            beside[os.path.dirname(path)] |= found.asked_beside  # noqa: PTH120 - as below
        there = (f"{SEARCHED} {directory}>{_join(names)}" for directory, names in beside.items() if names)
        return anywhere, (f"{SEARCHED}>{_join(anywhere)}", *there)

    def _found(self, path: str) -> _Found:
        if path not in self._headers:
            # Paths are texts here: there are hundreds in each compile.
            names = frozenset(path[len(d) :] for d in map(_prefix, self.directories) if path.startswith(d))
            asked = _names_in(path) if names else ()
            # The toolkit may be elsewhere on another machine; nobody adds headers to it.
            in_toolkit = any(path.startswith(d) for d in map(_prefix, self._toolkit))
            beside = frozenset(name for quoted, name in asked if quoted and not in_toolkit)
            self._headers[path] = _Found(names, frozenset(name for _, name in asked), beside)
        return self._headers[path]

    def state(self, record: str) -> str | None:
        """Return a digest of what a search finds now; None for a name that is no search."""
        if record not in self._states and (match := _RECORD.fullmatch(record)):
            directories = [match[1]] if match[1] else list(map(str, self.directories))
            names = match[2].split("|")
            found = [[n for n, d in enumerate(directories) if self._exists(f"{d}/{name}")] for name in names]
            self._states[record] = hashlib.sha256(json.dumps(found).encode()).hexdigest()
        return self._states.get(record)

    def _exists(self, path: str) -> bool:
        """Return whether there is a header; nearly all are not, which the listing of a directory tells of many."""
        directory, _, name = os.path.normpath(path).rpartition("/")
        if directory not in self._listings:
            self._listings[directory] = _listing(directory)
        return name in self._listings[directory] and os.path.isfile(path)  # noqa: PTH113 - paths are texts here


def searched_names(record: str) -> Sequence[str]:
    """Return the names that a search in all directories looks for, the family's own among them."""
    match = _RECORD.fullmatch(record)
    return match[2].split("|") if match and not match[1] else ()


def host_directories(verbose: str) -> list[Path]:
    """Return the directories in the output of ``gcc -E -v``."""
    match = _LIST.search(verbose)
    lines = match[1].splitlines() if match else []
    return [Path(os.path.normpath(line.strip())) for line in lines]


def _join(names: Iterable[str]) -> str:
    return "|".join(sorted(name for name in names if not re.search(r"[|\n]", name)))


def _listing(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208 - names alone
    except OSError:
        return frozenset()


def _prefix(directory: Path) -> str:
    return f"{directory}/"


def _names_in(path: str) -> tuple[tuple[bool, str], ...]:
    try:
        return _names(Path(path).read_bytes())
    except OSError:  # gone since it was read
        return ()


def _names(text: bytes) -> tuple[tuple[bool, str], ...]:
    return tuple((include.quoted, include.name) for include in scan_quickly(text).includes)
