"""Headers: the closure of a source's includes, as names and contents, by the rules of GCC's preprocessor.

The compiler gets every header this way and never an include path: its output then depends on contents alone, and a
header that was not given is a compile error, never a stale one. NVRTC looks a header up by the very text of the
include, so where nvcc's preprocessor would find another header by that text, as beside the includer, it is replaced by
a name that only that header has. What the scan of a text cannot follow is refused.
"""

import hashlib
import json
import os
import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from jitlto.base.diagnostic import Location
from jitlto.base.errors import JitltoError
from jitlto.base.files import normal_path
from jitlto.compile.includes import Include, rewrite, scan, scan_quickly
from jitlto.compile.source_files import walk
from jitlto.record.headers import HeaderSet, Source, digest_content

_GIVEN = -1  # the index of headers that are given by content, which are searched before every directory
_LARGEST_HEADER, _LARGEST_ROOTS = 4 << 20, 256 << 20  # bytes
_EXACT = re.compile(r"(?:\+(-?\d+)/|<(\d+)>)/(.+)", re.S)
_SEARCHED = "<searched>"
_SOURCE = "the source"  # in errors, for it has no name here


class _Place(NamedTuple):
    """A header: the directory in which it was found, by its index, and its path relative to that."""

    root: int
    path: str

    @property
    def exact_name(self) -> str:
        """A name that means this header alone. It has two slashes, which no name that is searched for has."""
        return f"+{self.root}//{self.path}"


class _Text(NamedTuple):
    """A source or header in its place."""

    found: tuple[tuple[Include, _Place | None], ...]  # the headers that it names; None: there is no such header
    is_open: bool  # it may include others, through macros
    rewritten: bytes  # with the names of the headers


class HeaderSearch:
    """Finds headers under a list of roots, the first that has one wins; files are read once.

    Args:
        roots: Directories of the author's headers, in the order of ``-I``. A name may lead out of them.
        given: Headers given by content, which win over every root.
        system: Directories of a toolkit's headers, which come after the others.
        strict: Refuse what NVRTC cannot follow. Otherwise a source that may name any header reaches all of the roots'.
        as_written: Leave all texts as they are, for a preprocessor with real directories: a header of the first root
            (or given) has its path for a name, one of another root its exact name, and the toolkit's are there.
        files: Contents by path, to be shared by searches that are to read each file once among them.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        given: Mapping[str, bytes] | None = None,
        *,
        system: Sequence[Path] = (),
        strict: bool = False,
        as_written: bool = False,
        files: dict[str, bytes] | None = None,
    ) -> None:
        self._roots, self._own, self._given = [*map(str, roots), *map(str, system)], len(roots), dict(given or {})
        self._strict, self._as_written = strict, as_written
        self._files = {} if files is None else files
        self._completed: dict[tuple[object, ...], HeaderSet] = {}
        # The sources of a build share includes.
        self._search, self._text = cache(self._search_all), cache(self._read_text)
        self._collect, self._visible = cache(self._collect_all), cache(self._find_visible)
        self._merge = cache(lambda start, texts: HeaderSet({**self._collect(start), **dict(texts)}))
        self._held, self._beside = cache(self._find_held), cache(self._find_beside)

    def find(self, name: str) -> bytes | None:
        """Return the content of the header ``name``, None if no root has it."""
        return None if (place := self._named(name)) is None else self._read(place)

    @property
    def directories(self) -> list[Path]:
        """The directories of the author's headers."""
        return [*map(Path, self._roots[: self._own])]

    def path(self, name: str) -> Path | None:
        """Return the path of the header ``name``, None if no root has it."""
        place = self._named(name)
        return None if place is None or place.root == _GIVEN else self._path(place)

    def sha256(self, name: str) -> str | None:
        """Return a digest of the header ``name``, and of where what it includes is; None if there is none.

        Of a toolkit's header it is of the content alone: what that searches for is a name of its own,
        :func:`name_searched`, where the compiler finds headers by itself.
        """
        if name.startswith(_SEARCHED):
            return _digest([self._held(each) for each in name.removeprefix(_SEARCHED).split("|")])
        if (place := self._named(name)) is None:
            return None
        content = hashlib.sha256(self._read(place)).hexdigest()
        if not self._is_own(place):
            return f"{content}@"
        names = [found and found.exact_name for _, found in self._text(place).found]
        # What a macro names is found in the first directory that has it.
        earlier = [root for root in range(place.root) if self._look(root, place.path)]
        return _digest([content, place.root, names, earlier])

    def closure(self, text: bytes, given: Mapping[str, bytes] | None = None) -> Source:
        """Return the source with every header that its includes, and theirs, can name in any branch.

        Headers that are given by content may have other contents for this source, ``given``, which are looked up.

        A superset of what the compiler will read. Headers that no root has are left out: the compiler says which of
        them it needed.

        Raises:
            JitltoError: ``jitlto-header-…``, if the headers would not be those that nvcc's preprocessor reads.
        """
        main = self._resolve(None, text)
        start, texts = {*self._reachable(main)}, dict[str, bytes]()
        headers = self._collect(frozenset(start))
        while given is not None and (reached := (self._given.keys() & headers.keys()) - texts.keys()):
            for name in sorted(reached):
                own = self._resolve(_Place(_GIVEN, name), given[name])
                start.update(self._reachable(own))
                texts[name] = own.rewritten
            headers = self._collect(frozenset(start))
        return Source(main.rewritten, self._merge(frozenset(start), tuple(texts.items())) if texts else headers)

    def complete(self, source: Source) -> Source:
        """Return a source of :meth:`closure` with all that a preprocessor may find in the roots, if ``as_written``.

        A header that only this compiler and its own headers know of, or that stands before one of the toolkit's, is
        then found as in the roots themselves.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if the roots have more than 256 MiB.
        """
        if not self._as_written:
            return source
        names = frozenset(source.headers), *map(source.headers.get, self._given)
        if names not in self._completed:
            found: dict[str, bytes] = {}
            for place in self._visible():
                with suppress(JitltoError):  # it is gone, or for the compiler not readable either
                    found[_tree_name(place)] = self._read(place)
            if sum(map(len, found.values())) > _LARGEST_ROOTS:
                what = f"more than {_LARGEST_ROOTS >> 20} MiB of files in the include directories"
                hint = "give directories under include that have headers only"
                raise JitltoError(what, code="jitlto-header-too-many", where=self._roots[0], hint=hint)
            self._completed[names] = HeaderSet(found | dict(source.headers))
        return Source(source.text, self._completed[names])

    def _collect_all(self, start: frozenset[_Place]) -> HeaderSet:
        texts: dict[_Place, _Text] = {}
        pending = list(start)
        while pending:
            place = pending.pop()
            if place not in texts:
                texts[place] = self._text(place)
                pending += self._reachable(texts[place])
        if self._as_written:
            return HeaderSet({_tree_name(place): self._read(place) for place in texts})
        return HeaderSet({self._name_of(place): text.rewritten for place, text in texts.items()})

    def _reachable(self, text: _Text) -> list[_Place]:
        """The headers that a text may include itself."""
        found = [to for _, to in text.found if to is not None and (self._is_own(to) or not self._as_written)]
        return [*found, *(_Place(_GIVEN, name) for name in self._given), *self._visible()] if text.is_open else found

    # --- what an include in a text means ---

    def _read_text(self, place: _Place) -> _Text:
        return self._resolve(place, self._read(place))

    def _resolve(self, place: _Place | None, content: bytes) -> _Text:
        is_own = self._is_own(place)
        includes, unclear = scan(content) if is_own else (scan_quickly(content), ())
        for each in unclear:
            if self._strict or (self._as_written and each.is_asked):
                self._fail(place, each.what, each.code, each.hint, content, each.position)
        for include in includes if is_own else ():
            if include.name.startswith("/"):
                what = f"an absolute path, {include.name}, names a header"
                hint = "give the header's directory under include, and its name relative to it"
                self._fail(place, what, "absolute", hint, content, include.start)
        found = tuple((include, to) for include in includes for to in self._all_meant(place, include))
        is_open = any(each.code == "unknown" and not each.is_asked for each in unclear)
        if self._as_written:
            return _Text(found, is_open, content)
        called = [(each, each.name if to is None else self._name_of(to)) for each, to in found if each.end]
        # Where the text is read again, given by content, others may be beside it: angle brackets never look there.
        is_deep = place is not None and "/" in place.path
        changed = [(each, name) for each, name in called if name != each.name or (each.quoted and is_deep)]
        return _Text(found, is_open, rewrite(content, changed) if changed else content)

    def _all_meant(self, place: _Place | None, include: Include) -> Sequence[_Place | None]:
        """Find a header, or the headers of a toolkit in all directories that a macro may name."""
        if place is None or self._is_own(place) or not include.name.startswith("*/"):
            return [self._meant(place, include)]
        every = self._beside(place.root, place.path.partition("/")[0])
        return [each for each in every if each.path.endswith(include.name[1:])]

    def _find_beside(self, root: int, directory: str) -> list[_Place]:
        """Return all headers below a directory of a root."""
        below = Path(self._roots[root], directory).rglob("*.h")
        return sorted(_Place(root, str(path.relative_to(self._roots[root]))) for path in below)

    def _meant(self, place: _Place | None, include: Include) -> _Place | None:
        """Find a header as GCC does: beside the text that names it if in quotes, then in the roots in order."""
        # Nothing is beside a header that is given by its exact name.
        if place is not None and include.quoted and (place.root != _GIVEN or not _EXACT.fullmatch(place.path)):
            directory = os.path.dirname(place.path)  # noqa: PTH120 - a name, no path
            name = f"{directory}/{include.name}" if directory else include.name
            # Generated headers are files of the first directory.
            roots = (_GIVEN, 0) if self._own and place.root <= 0 else (place.root,)
            found = (self._look(root, name) for root in roots if not include.name.startswith("/"))
            if beside := next(filter(None, found), None):
                return beside
        return self._search(include.name)

    # --- where headers are ---

    def _is_own(self, place: _Place | None) -> bool:
        return place is None or place.root < self._own

    def _search_all(self, name: str) -> _Place | None:
        found = (self._look(root, name) for root in range(_GIVEN, len(self._roots)))
        return next((place for place in found if place is not None), None)

    def _named(self, name: str) -> _Place | None:
        """Return the header of a name of :meth:`_name_of`, or of :func:`name_of_toolkit`, or that is searched for."""
        root, path = split_name(name)
        root += self._own if name.startswith("<") else 0
        found = self._look(root, path) if path != name and _GIVEN <= root < len(self._roots) else None
        return found or self._search(name)

    def _name_of(self, place: _Place) -> str:
        """Return the name of a header: that by which it is searched for, unless another is found by that."""
        return place.path if self._search(place.path) == place else place.exact_name

    def _look(self, root: int, name: str) -> _Place | None:
        """Return a header in one directory, by its normalised path; None if it is not there.

        An absolute path is nowhere: it says nothing on another machine.

        Raises:
            JitltoError: ``jitlto-header-ambiguous``, if the normalised path is that of another file.
        """
        if not name or name.startswith("/") or name.endswith(("/", "/.", "/..")):  # these name directories
            return None
        normal = os.path.normpath(name)
        if root == _GIVEN:
            return next((_Place(root, each) for each in (name, normal) if each in self._given), None)
        written, there = f"{self._roots[root]}/{name}", f"{self._roots[root]}/{normal}"
        if (normal.startswith("../") and root >= self._own) or not os.path.isfile(written):  # noqa: PTH113 - any text
            return None
        if normal != name and not (os.path.isfile(there) and os.path.samefile(written, there)):  # noqa: PTH113, PTH121
            what = f"{name} leads through a symbolic link and back"
            hint = "include the header by its own path"
            raise JitltoError(what, code="jitlto-header-ambiguous", where=self._roots[root], hint=hint)
        return _Place(root, normal)

    def _find_held(self, name: str) -> list[int]:
        """Return which directories have a file of a name."""
        return [n for n, root in enumerate(self._roots) if name[:1] != "/" and os.path.isfile(f"{root}/{name}")]  # noqa: PTH113

    def _find_visible(self) -> list[_Place]:
        """Return the files that a preprocessor may find in the author's directories; large ones are no headers."""
        found = []
        for number, root in enumerate(self._roots[: self._own]):
            for path, is_folder in walk([Path(root)]):
                with suppress(OSError):
                    if not is_folder and os.stat(path).st_size <= _LARGEST_HEADER:  # noqa: PTH116 - a text
                        found.append(_Place(number, os.path.relpath(path, root)))
        return found

    def _path(self, place: _Place) -> Path:
        return normal_path(Path(self._roots[place.root], place.path))

    def _read(self, place: _Place) -> bytes:
        if place.root == _GIVEN:
            return self._given[place.path]
        path = f"{self._roots[place.root]}/{place.path}"  # a text: every compile of a caller's source reads dozens
        if path not in self._files:
            try:
                with open(path, "rb") as file:  # noqa: PTH123
                    content = file.read()
            except OSError as error:
                what = f"cannot be read: {error.strerror}"
                raise JitltoError(what, code="jitlto-header-unreadable", where=path, hint="make it readable") from error
            self._files[path] = _shared(content.removeprefix(b"\xef\xbb\xbf"))  # a BOM, which NVRTC does not take
        return self._files[path]

    # --- what is refused ---

    def _fail(self, place: _Place | None, what: str, code: str, hint: str, content: bytes, position: int) -> NoReturn:
        name, line = _SOURCE if place is None else self._name_of(place), content.count(10, 0, position) + 1
        raise JitltoError(what, code=f"jitlto-header-{code}", where=Location(name, line), hint=hint)


@lru_cache(maxsize=16384)
def _shared(content: bytes) -> bytes:
    """Return one object for equal contents, which the scans keep anyway: sources wait for their link with theirs."""
    return content


def locate(error: JitltoError, name: str, lines_before: int, place: Callable[[str, int], Location]) -> None:
    """Give an error about headers its place.

    Args:
        error: As a search for headers raised it.
        name: The source's name.
        lines_before: The lines that were put before the author's own.
        place: Returns the place of a line of the source or of a header.
    """
    if isinstance(where := error.place, Location) and where.line:
        error.place = place(name, where.line - lines_before) if where.path == _SOURCE else place(where.path, where.line)


# --- names of headers ---


def split_name(name: str) -> tuple[int, str]:
    """Return the root and the path of a header that is named by its path in the first root, or exactly.

    The root of a toolkit's header is its number among the toolkit's.
    """
    match = _EXACT.fullmatch(name)
    return (int(match[1] or match[2]), match[3]) if match else (0, name)


def name_of_toolkit(number: int, path: str) -> str:
    """Return the name of a header in a directory of a toolkit's."""
    return f"<{number}>/{path}"


def name_searched(names: Iterable[str]) -> str:
    """Return the name, among those of headers that a compiler has read, for its search for some names."""
    return _SEARCHED + "|".join(sorted(name for name in names if not set(name) & set("|\n")))


def _tree_name(place: _Place) -> str:
    """Return the path of a header in the first root, or its exact name: see :func:`split_name`."""
    return place.path if place.root < 1 else place.exact_name


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


# --- real directories, for nvcc, which reads a header under a path relative to its working directory ---


def include_directories(headers: Mapping[str, bytes]) -> list[str]:
    """The family's include directories in order, each so deep that a header above it has a place of its own."""
    places = [split_name(name) for name in headers]
    above = max((path.count("../") for _, path in places if path.startswith("../")), default=0)
    count = 1 + max((root for root, _ in places), default=0)
    return [f"include{number or ''}{'/^' * above}" for number in range(count)]


def header_paths(headers: Mapping[str, bytes]) -> dict[str, str]:
    """The name of each header by its path."""
    directories = include_directories(headers)
    places = {name: split_name(name) for name in headers}
    return {os.path.normpath(f"{directories[root]}/{path}"): name for name, (root, path) in places.items()}


def lay_out(work: Path, headers: Mapping[str, bytes], shared: Path | None = None) -> None:
    """Put headers and their :func:`include_directories` into a directory.

    Those that lie in the directory ``shared``, each in a file called by its SHA-256, are linked and not written again.
    """
    paths = header_paths(headers)
    for directory in {*include_directories(headers), *map(os.path.dirname, paths)}:
        (work / directory).mkdir(parents=True, exist_ok=True)
    for path, name in paths.items():
        with suppress(OSError):  # which a file system without links raises
            if shared is not None:
                os.link(shared / digest_content(headers[name]).hex(), f"{work}/{path}")
                continue
        with open(f"{work}/{path}", "wb") as file:  # noqa: PTH123 - there may be thousands
            file.write(headers[name])
        # By content and time GCC knows a header with `#pragma once` that is in two places.
        os.utime(f"{work}/{path}", (0, 0))
