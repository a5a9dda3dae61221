"""Where headers are: the directories that they are searched in, by the rules of GCC's preprocessor, which nvcc runs."""

from __future__ import annotations

import os
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jitlto.base.errors import JitltoError

#: The index of headers that are given by content, which are searched before every directory.
GIVEN = -1
_LARGEST_HEADER, _LARGEST_ROOTS = 4 << 20, 256 << 20  # bytes
_EXACT = re.compile(r"\+(-?\d+)//(.+)", re.S)


class Place(NamedTuple):
    """A header: the directory in which it was found, by its index or :data:`GIVEN`, and its path relative to that."""

    root: int
    path: str

    @property
    def exact_name(self) -> str:
        """A name that means this header alone. It has two slashes, which no name that is searched for has."""
        return f"+{self.root}//{self.path}"

    @property
    def tree_name(self) -> str:
        """Its path in the first root, or its exact name: see :func:`split_name`."""
        return self.path if self.root < 1 else self.exact_name


def split_name(name: str) -> tuple[int, str]:
    """Return the root and the path of a header that is named by its path in the first root, or exactly."""
    match = _EXACT.fullmatch(name)
    return (int(match[1]), match[2]) if match else (0, name)


def is_outside(name: str) -> bool:
    """Return whether a header is outside of the root in which it was found, as ``../common.cuh``."""
    return split_name(name)[1].startswith("../")


class Listings:
    """Tells which files there are; most are looked for in vain, which the listing of a directory tells of many."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def have(self, path: str) -> bool:
        """Return whether a path is a file's."""
        directory, _, name = path.rpartition("/")
        if directory not in self._known:
            try:
                self._known[directory] = frozenset(os.listdir(directory))  # noqa: PTH208 - names
            except (OSError, ValueError):
                self._known[directory] = frozenset()
        return name in self._known[directory] and os.path.isfile(path)  # noqa: PTH113 - takes any text


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
        self._given = dict(given)
        self._beyond = beyond
        self._paths: dict[tuple[int, str], str | None] = {}
        self._searched: dict[str, Place | None] = {}
        self._listings = Listings()
        self._files = {} if files is None else files

    def search(self, name: str) -> Place | None:
        """Return the header that ``#include <name>`` finds."""
        if name not in self._searched:
            looks = ((root, self.look(root, name)) for root in range(GIVEN, len(self.roots)))
            self._searched[name] = next((Place(root, path) for root, path in looks if path is not None), None)
        return self._searched[name]

    def named(self, name: str) -> Place | None:
        """Return the header of a name that :meth:`name_of` gave, or that is searched for."""
        if match := _EXACT.fullmatch(name):
            root = int(match[1])
            if GIVEN <= root < len(self.roots) and (path := self.look(root, match[2])) is not None:
                return Place(root, path)
        return self.search(name) if name else None

    def name_of(self, place: Place) -> str:
        """Return the name of a header: that by which it is searched for, unless another is found by that."""
        return place.path if self.search(place.path) == place else place.exact_name

    def look(self, root: int, name: str) -> str | None:
        """Return the path of a header in one directory, normalised; None if it is not there.

        An absolute path is nowhere: it says nothing on another machine.

        Raises:
            JitltoError: ``jitlto-header-ambiguous``, if the normalised path is that of another file.
        """
        key = (root, name)
        if key not in self._paths:
            self._paths[key] = self._look(root, name)
        return self._paths[key]

    def path(self, place: Place) -> Path:
        """Return where a header is that is not given by content."""
        return Path(self.roots[place.root], place.path)

    def read(self, place: Place) -> bytes:
        """Return the content of a header."""
        if place.root == GIVEN:
            return self._given[place.path]
        path = f"{self.roots[place.root]}/{place.path}"
        if path not in self._files:
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                what = f"cannot be read: {error.strerror}"
                hint = "make it readable"
                raise JitltoError(what, code="jitlto-header-unreadable", where=path, hint=hint) from error
            self._files[path] = content.removeprefix(b"\xef\xbb\xbf")  # a BOM, which NVRTC does not take
        return self._files[path]

    def visible(self, roots: int) -> Iterator[Place]:
        """Yield the files that a preprocessor may find in the first directories.

        Left out are hidden directories, such as ``.git``, and files of more than 4 MiB, which are no headers.
        """
        for number, root in enumerate(self.roots[:roots]):
            for path in _visible(root):
                yield Place(number, path)

    def read_visible(self, roots: int) -> dict[str, bytes]:
        """Return what :meth:`visible` yields, by the names of :attr:`Place.tree_name`.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if they are too many for one source.
        """
        found: dict[str, bytes] = {}
        total = 0
        for place in self.visible(roots):
            with suppress(JitltoError):  # it is gone, or for the compiler not readable either
                content = found[place.tree_name] = self.read(place)
                total += len(content)
            if total > _LARGEST_ROOTS:
                what = f"more than {_LARGEST_ROOTS >> 20} MiB of files in the include directories"
                hint = "give directories under include that have headers only"
                raise JitltoError(what, code="jitlto-header-too-many", where=self.roots[place.root], hint=hint)
        return found

    def _look(self, root: int, name: str) -> str | None:
        if not name or name.startswith("/") or name.endswith(("/", "/.", "/..")):  # these name directories
            return None
        normal = os.path.normpath(name)
        if root == GIVEN:
            return name if name in self._given else normal if normal in self._given else None
        if (normal.startswith("../") and not self._beyond) or not self._listings.have(f"{self.roots[root]}/{name}"):
            return None
        there = f"{self.roots[root]}/{normal}"
        if normal != name and not (
            self._listings.have(there) and os.path.samefile(f"{self.roots[root]}/{name}", there)  # noqa: PTH121 - texts
        ):
            what = f"{name} leads through a symbolic link and back"
            hint = "include the header by its own path"
            raise JitltoError(what, code="jitlto-header-ambiguous", where=self.roots[root], hint=hint)
        return normal


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
