"""Where headers are: the directories that they are searched in, by the rules of GCC's preprocessor, which nvcc runs."""

from __future__ import annotations

import os
import os.path
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jitlto.base.cached import cached_property
from jitlto.base.errors import JitltoError
from jitlto.compile.source_files import walk_sources

#: The index of headers that are given by content, which are searched before every directory.
GIVEN = -1
_LARGEST_HEADER, _LARGEST_ROOTS = 4 << 20, 256 << 20  # bytes
_EXACT = re.compile(r"(?:\+(-?\d+)/|<(\d+)>)/(.+)", re.S)


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
    """Return the root and the path of a header that is named by its path in the first root, or exactly.

    The root of a toolkit's header is its number among the toolkit's.
    """
    match = _EXACT.fullmatch(name)
    return (int(match[1] or match[2]), match[3]) if match else (0, name)


def name_of_toolkit(number: int, path: str) -> str:
    """Return the name of a header in a directory of a toolkit's."""
    return f"<{number}>/{path}"


def is_outside(name: str) -> bool:
    """Return whether a header is outside of the root in which it was found, as ``../common.cuh``."""
    return split_name(name)[1].startswith("../")


class HeaderPlaces:
    """Finds and reads headers, each once.

    Args:
        roots: Directories, in the order of ``-I``.
        own: How many of them are the author's; the others are a toolkit's.
        given: Headers by name, given by content.
        beyond: Whether a name may lead out of a directory, as ``../common.cuh`` does.
        files: Contents by path, to be shared by those that are to read each file once among them.
    """

    def __init__(
        self, roots: Sequence[Path], own: int, given: Mapping[str, bytes], *, beyond: bool, files: dict[str, bytes]
    ) -> None:
        self.roots, self.own = tuple(map(str, roots)), own
        self._given, self._beyond, self._files = dict(given), beyond, files
        self._looks: dict[tuple[int, str], Place | None] = {}
        self._searches: dict[str, Place | None] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._listings: dict[str, frozenset[str]] = {}

    def search(self, name: str) -> Place | None:
        """Return the header that ``#include <name>`` finds."""
        if name not in self._searches:
            found = (self.look(root, name) for root in range(GIVEN, len(self.roots)))
            self._searches[name] = next((place for place in found if place is not None), None)
        return self._searches[name]

    def named(self, name: str) -> Place | None:
        """Return the header of a name that :meth:`name_of` gave, or a compiler by :func:`name_of_toolkit`, or that is
        searched for."""
        root, path = split_name(name)
        root += self.own if name.startswith("<") else 0
        found = self.look(root, path) if path != name and GIVEN <= root < len(self.roots) else None
        return found or self.search(name)

    def held(self, name: str) -> tuple[int, ...]:
        """Return which directories have a file of a name."""
        if name not in self._held:
            has = (bool(name) and name[0] != "/" and self._has(f"{root}/{name}") for root in self.roots)
            self._held[name] = tuple(number for number, each in enumerate(has) if each)
        return self._held[name]

    def name_of(self, place: Place) -> str:
        """Return the name of a header: that by which it is searched for, unless another is found by that."""
        return place.path if self.search(place.path) == place else place.exact_name

    def look(self, root: int, name: str) -> Place | None:
        """Return a header in one directory, by its normalised path; None if it is not there.

        An absolute path is nowhere: it says nothing on another machine.

        Raises:
            JitltoError: ``jitlto-header-ambiguous``, if the normalised path is that of another file.
        """
        key = (root, name)
        if key not in self._looks:
            self._looks[key] = self._look(root, name)
        return self._looks[key]

    def path(self, place: Place) -> str:
        """Return the path of a header that is not given by content."""
        return f"{self.roots[place.root]}/{place.path}"

    def read(self, place: Place) -> bytes:
        """Return the content of a header."""
        if place.root == GIVEN:
            return self._given[place.path]
        path = self.path(place)
        if path not in self._files:
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                what = f"cannot be read: {error.strerror}"
                hint = "make it readable"
                raise JitltoError(what, code="jitlto-header-unreadable", where=path, hint=hint) from error
            self._files[path] = content.removeprefix(b"\xef\xbb\xbf")  # a BOM, which NVRTC does not take
        return self._files[path]

    @cached_property
    def visible(self) -> tuple[Place, ...]:
        """The files that a preprocessor may find in the author's directories; of more than 4 MiB, none is a header."""
        found = []
        for number, root in enumerate(self.roots[: self.own]):
            for path in walk_sources([Path(root)], thorough=True):
                with suppress(OSError):
                    if path.stat().st_size <= _LARGEST_HEADER:
                        found.append(Place(number, str(path.relative_to(root))))
        return tuple(found)

    def read_visible(self) -> dict[str, bytes]:
        """Return :attr:`visible` with their contents, by the names of :attr:`Place.tree_name`.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if they are too many for one source.
        """
        found: dict[str, bytes] = {}
        for place in self.visible:
            with suppress(JitltoError):  # it is gone, or for the compiler not readable either
                found[place.tree_name] = self.read(place)
        if sum(map(len, found.values())) > _LARGEST_ROOTS:
            what = f"more than {_LARGEST_ROOTS >> 20} MiB of files in the include directories"
            hint = "give directories under include that have headers only"
            raise JitltoError(what, code="jitlto-header-too-many", where=self.roots[0], hint=hint)
        return found

    def _has(self, path: str) -> bool:
        """Return whether a path is a file's. Most are not, which the listing of a directory tells of many."""
        directory, _, name = path.rpartition("/")
        if directory not in self._listings:
            try:
                self._listings[directory] = frozenset(os.listdir(directory))  # noqa: PTH208 - names
            except (OSError, ValueError):
                self._listings[directory] = frozenset()
        return name in self._listings[directory] and os.path.isfile(path)  # noqa: PTH113 - takes any text

    def _look(self, root: int, name: str) -> Place | None:
        if not name or name.startswith("/") or name.endswith(("/", "/.", "/..")):  # these name directories
            return None
        normal = os.path.normpath(name)
        if root == GIVEN:
            return next((Place(root, each) for each in (name, normal) if each in self._given), None)
        written, there = f"{self.roots[root]}/{name}", f"{self.roots[root]}/{normal}"
        if (normal.startswith("../") and not self._beyond) or not self._has(written):
            return None
        if normal != name and not (self._has(there) and os.path.samefile(written, there)):  # noqa: PTH121
            what = f"{name} leads through a symbolic link and back"
            hint = "include the header by its own path"
            raise JitltoError(what, code="jitlto-header-ambiguous", where=self.roots[root], hint=hint)
        return Place(root, normal)
