"""Where headers are: the directories that they are searched in, by the rules of GCC's preprocessor, which nvcc runs."""

from __future__ import annotations

import os
import os.path
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jitlto.base.errors import JitltoError

#: The index of headers that are given by content, which are searched before every directory.
GIVEN = -1
_LARGEST_HEADER, _LARGEST_ROOTS = 4 << 20, 256 << 20  # bytes
_EXACT = re.compile(r"\+(-?\d+)(?:\.(-?\d+))?//(.+)", re.S)


class Place(NamedTuple):
    """A header.

    Args:
        root: The directory in which it was found, by its index, or :data:`GIVEN`.
        path: Relative to that.
        after: The first directory in which its ``#include_next`` looks: the next one, or all if it was found beside its
            includer. None if it has none.
    """

    root: int
    path: str
    after: int | None = None

    @property
    def exact_name(self) -> str:
        """A name that means this header alone. It has two slashes, which no name that is searched for has."""
        return f"+{self.root}{f'.{GIVEN}' if self.after == GIVEN else ''}//{self.path}"


def split_name(name: str) -> tuple[int, str]:
    """Return the root and the path of a header that is named by its path in the first root, or exactly."""
    match = _EXACT.fullmatch(name)
    return (int(match[1]), match[3]) if match else (0, name)


def tree_name(place: Place) -> str:
    """Return the name of a header by its path in the first root, or its exact name: see :func:`split_name`."""
    return place.path if place.root < 1 else place._replace(after=None).exact_name


def is_outside(name: str) -> bool:
    """Return whether a header is outside of the root in which it was found, as ``../common.cuh``."""
    return split_name(name)[1].startswith("../")


class HeaderPlaces:
    """Finds and reads headers, each once.

    Args:
        roots: Directories, in the order of ``-I``.
        given: Headers by name, given by content.
        beyond: Whether a name may lead out of a directory, as ``../common.cuh`` does.
        files: Contents by path, to be shared by those that are to read each file once among them.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        given: Mapping[str, bytes],
        *,
        beyond: bool = True,
        files: dict[str, bytes] | None = None,
    ) -> None:
        self.roots = tuple(map(str, roots))  #: the directories
        self.count = len(roots)
        self._given = dict(given)
        self._beyond = beyond
        self.asked: set[str] = set()  #: names that were searched for in all directories, for whoever clears it
        self._paths: dict[tuple[int, str], str | None] = {}
        self._searched: dict[tuple[str, int], Place | None] = {}
        self._names: dict[Place, str] = {}
        self._identities: dict[Place, object] = {}
        self._entries: dict[int, frozenset[str] | None] = {}
        self._files = {} if files is None else files

    def search(self, name: str, first: int = GIVEN) -> Place | None:
        """Return the header that ``#include <name>`` finds, from the directory ``first`` on."""
        self.asked.add(name)
        key = (name, first)
        if key not in self._searched:
            looks = ((root, self.look(root, name)) for root in range(first, len(self.roots)))
            self._searched[key] = next((Place(root, path, root + 1) for root, path in looks if path is not None), None)
        return self._searched[key]

    def named(self, name: str) -> Place | None:
        """Return the header of a name that :meth:`name_of` gave, or that is searched for."""
        if match := _EXACT.fullmatch(name):
            root = int(match[1])
            if GIVEN <= root < len(self.roots) and (path := self.look(root, match[3])) is not None:
                return Place(root, path, int(match[2]) if match[2] else root + 1)
        return self.search(name) if name else None

    def name_of(self, place: Place) -> str:
        """Return the name of a header: that by which it is searched for, unless another is found by that."""
        self.asked.add(place.path)
        if (name := self._names.get(place)) is None:
            found = self.search(place.path)
            is_usual = found is not None and found[:2] == place[:2] and place.after != GIVEN
            name = self._names[place] = place.path if is_usual else place.exact_name
        return name

    def look(self, root: int, name: str) -> str | None:
        """Return the path of a header in one directory, normalised where that means the same file; None if not there.

        An absolute path is nowhere: it says nothing on another machine.
        """
        key = (root, name)
        if key not in self._paths:
            self._paths[key] = self._look(root, name)
        return self._paths[key]

    def path(self, place: Place) -> Path:
        """Return where a header is that is not given by content."""
        return Path(self._path(place.root, place.path))

    def read(self, place: Place) -> bytes:
        """Return the content of a header."""
        if place.root == GIVEN:
            return self._given[place.path]
        path = self._path(place.root, place.path)
        if path not in self._files:
            self._files[path] = _read(path)
        return self._files[path]

    def identity(self, place: Place) -> object:
        """Return what is equal for two places of one file."""
        if place.root == GIVEN:
            return place.path
        if place not in self._identities:
            status = self.path(place).stat()
            self._identities[place] = status.st_dev, status.st_ino
        return self._identities[place]

    def all_in(self, roots: int) -> Iterator[Place]:
        """Return every header that is given, and every file in the first directories."""
        yield from (Place(GIVEN, path) for path in sorted(self._given))
        for number, root in enumerate(self.roots[:roots]):
            for directory, inner, names in os.walk(root):
                inner.sort()
                for name in sorted(names):
                    path = os.path.relpath(os.path.join(directory, name), root)  # noqa: PTH118 - as below
                    if self.look(number, path) is not None:
                        yield Place(number, path)

    def read_visible(self, roots: int) -> dict[str, bytes]:
        """Return the files that a preprocessor may find in the first directories, by :func:`tree_name`.

        Left out are hidden directories, such as ``.git``, and files that are no headers by their size.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if they are too many for one source.
        """
        found: dict[str, bytes] = {}
        total = 0
        for number, root in enumerate(self.roots[:roots]):
            for path in _visible(root):
                with suppress(JitltoError):  # it is gone, or for the compiler not readable either
                    content = self.read(place := Place(number, path))
                    found[tree_name(place)] = content
                    total += len(content)
                if total > _LARGEST_ROOTS:
                    what = f"more than {_LARGEST_ROOTS >> 20} MiB of files in the include directories"
                    hint = "give directories under include that have headers only"
                    raise JitltoError(what, code="jitlto-header-too-many", where=root, hint=hint)
        return found

    def holders(self, name: str, roots: int) -> list[int]:
        """Return which of the first directories have a file of this name."""
        return [root for root in range(roots) if self.look(root, name) is not None]

    def _look(self, root: int, name: str) -> str | None:
        if not name or name.startswith("/") or name.endswith(("/", "/.", "/..")):  # these name directories
            return None
        normal = os.path.normpath(name)
        if root == GIVEN:
            if name in self._given:
                return name
            return normal if normal in self._given and self._leads_through_directories(name) else None
        if normal.startswith("../") and not self._beyond:
            return None
        if not self._may_have(root, name):
            return None
        path = self._path(root, name)
        # Unlike Path.is_file, os.path.isfile takes any text for an answer.
        if not os.path.isfile(path):  # noqa: PTH113
            return None
        if normal == name:
            return name
        # Behind a symbolic link, .. is another directory than that before it in the path.
        there = self._path(root, normal)
        return normal if os.path.isfile(there) and os.path.samefile(path, there) else name  # noqa: PTH113, PTH121

    def _may_have(self, root: int, name: str) -> bool:
        """Return whether a directory has an entry that a name begins with: most names are looked for in vain."""
        if root not in self._entries:
            self._entries[root] = None
            if sys.platform == "linux":  # elsewhere a file may be found by other names than those that are listed
                with suppress(OSError, ValueError):
                    self._entries[root] = frozenset(os.listdir(self.roots[root]))  # noqa: PTH208 - names
        entries, first = self._entries[root], name.partition("/")[0]
        return entries is None or first in (".", "..") or first in entries

    def _leads_through_directories(self, name: str) -> bool:
        """Whether every directory that a name leaves by ``..`` has one of the given headers."""
        parts = name.split("/")
        left = {os.path.normpath("/".join(parts[:n])) for n, part in enumerate(parts) if part == ".." and n}
        left = {directory for directory in left if not directory.endswith("..") and directory != "."}
        return all(any(header.startswith(f"{directory}/") for header in self._given) for directory in left)

    def _path(self, root: int, name: str) -> str:
        return os.path.join(self.roots[root], name)  # noqa: PTH118 - a text that may be no path


def _visible(root: str) -> Iterator[str]:
    """Yield the paths of files, relative to a directory; links are followed, but to no directory that they are in."""
    pending = [("", frozenset[str]())]
    while pending:
        path, above = pending.pop()
        try:
            with os.scandir(f"{root}/{path}") as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        above |= {os.path.realpath(f"{root}/{path}")}
        for entry in ordered:
            with suppress(OSError):  # a link to itself
                if entry.is_dir():
                    if not entry.name.startswith(".") and os.path.realpath(entry.path) not in above:
                        pending.append((f"{path}{entry.name}/", above))
                elif entry.is_file() and entry.stat().st_size <= _LARGEST_HEADER:
                    yield f"{path}{entry.name}"


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")  # a BOM, which NVRTC does not take
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise JitltoError(what, code="jitlto-header-unreadable", where=path, hint="make it readable") from error
