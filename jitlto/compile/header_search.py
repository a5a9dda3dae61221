"""Virtual headers: the closure of a source's includes, as names and contents.

The compiler gets every header this way and never an include path: its output then depends on contents alone, and a
header that was not given is a compile error, never a stale one. NVRTC looks a header up by the very text of the
include, so where nvcc's preprocessor would find another header by that text, as beside the includer, it is replaced by
a name that only that header has. What the scan of a text cannot follow is refused.
"""

from __future__ import annotations

import hashlib
import json
import os.path
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from jitlto.base.errors import JitltoError
from jitlto.compile.header_places import GIVEN, HeaderPlaces, Place, split_name
from jitlto.compile.includes import Include, rewrite, scan, scan_quickly
from jitlto.record.headers import HeaderSet, Source

_SEARCHED = "<searched>"
_SOURCE = "the source"  # in errors, for it has no name here


class _Text(NamedTuple):
    """A source or header in its place."""

    found: tuple[tuple[Include, Place | None], ...]  # the headers that it names; None: there is no such header
    is_open: bool  # it may include others, through macros
    rewritten: bytes  # with the names of the headers


class HeaderSearch:
    """Finds headers under a list of roots, the first that has one wins; files are read once.

    Args:
        roots: Directories of the author's headers, in the order of ``-I``.
        given: Headers given by content, which win over every root.
        system: Directories of a toolkit's headers, which come after the others.
        options: Of the compiler.
        strict: Refuse what NVRTC cannot follow. Otherwise a source that may name any header reaches all of the roots'.
        as_written: Leave all texts as they are, for a preprocessor with real directories: a header of the first root
            (or given) has its path for a name, one of another root its exact name, and the toolkit's are there.
        beyond: Whether a name may lead out of a directory.
        files: Contents by path, to be shared by searches that are to read each file once among them.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        given: Mapping[str, bytes] | None = None,
        *,
        system: Sequence[Path] = (),
        options: Sequence[str] = (),
        strict: bool = False,
        as_written: bool = False,
        beyond: bool = True,
        files: dict[str, bytes] | None = None,
    ) -> None:
        files = {} if files is None else files
        self._places = HeaderPlaces([*roots, *system], len(roots), given or {}, beyond=beyond, files=files)
        self._strict, self._as_written = strict, as_written
        if strict and (asking := next((option for option in options if "has_include" in option), None)):
            hint = "write __has_include with the header's name in an #if"
            raise JitltoError("a macro asks for a header", code="jitlto-header-unknown", where=asking, hint=hint)
        self._texts: dict[Place, _Text] = {}
        self._closures: dict[frozenset[Place], HeaderSet] = {}  # the sources of a build share includes
        self._completed: dict[frozenset[str], HeaderSet] = {}

    def find(self, name: str) -> bytes | None:
        """Return the content of the header ``name``, None if no root has it."""
        return None if (place := self._places.named(name)) is None else self._places.read(place)

    def path(self, name: str) -> Path | None:
        """Return the path of the header ``name``, None if no root has it."""
        place = self._places.named(name)
        return None if place is None or place.root == GIVEN else Path(self._places.path(place))

    def sha256(self, name: str) -> str | None:
        """Return a digest of the header ``name``, and of where what it includes is; None if there is none.

        Of a toolkit's header it is of the content alone: what that searches for is a name of its own,
        :func:`name_searched`, where the compiler finds headers by itself.
        """
        places = self._places
        if name.startswith(_SEARCHED):
            return _digest([places.held(each) for each in name.removeprefix(_SEARCHED).split("|")])
        if (place := places.named(name)) is None:
            return None
        content = hashlib.sha256(places.read(place)).hexdigest()
        if self._is_own(place):
            names = [found and found.exact_name for _, found in self._text(place).found]
            # What a macro names is found in the first directory that has it.
            earlier = [root for root in range(place.root) if places.look(root, place.path)]
            return _digest([content, place.root, names, earlier])
        return f"{content}@"

    def closure(self, text: bytes) -> Source:
        """Return the source with every header that its includes, and theirs, can name in any branch.

        A superset of what the compiler will read. Headers that no root has are left out: the compiler says which of
        them it needed.

        Raises:
            JitltoError: ``jitlto-header-…``, if the headers would not be those that nvcc's preprocessor reads.
        """
        main = self._read(None, text)
        start = frozenset(self._reachable(main))
        if start not in self._closures:
            self._closures[start] = self._collect(start)
        return Source(main.rewritten, self._closures[start])

    def complete(self, source: Source) -> Source:
        """Return a source of :meth:`closure` with all that a preprocessor may find in the roots, if ``as_written``.

        A header that only this compiler and its own headers know of, or that stands before one of the toolkit's, is
        then found as in the roots themselves.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if the roots have more than 256 MiB.
        """
        if not self._as_written:
            return source
        names = frozenset(source.headers)
        if names not in self._completed:
            self._completed[names] = HeaderSet(self._places.read_visible() | dict(source.headers))
        return Source(source.text, self._completed[names])

    def _collect(self, start: Iterable[Place]) -> HeaderSet:
        texts: dict[Place, _Text] = {}
        pending = list(start)
        while pending:
            place = pending.pop()
            if place not in texts:
                texts[place] = self._text(place)
                pending += self._reachable(texts[place])
        if self._as_written:
            return HeaderSet({place.tree_name: self._places.read(place) for place in texts})
        if self._strict:
            self._check_once(texts)
        return HeaderSet({self._places.name_of(place): text.rewritten for place, text in texts.items()})

    def _reachable(self, text: _Text) -> list[Place]:
        """The headers that a text may include itself."""
        found = [to for _, to in text.found if to is not None and (self._is_own(to) or not self._as_written)]
        return [*found, *self._places.visible] if text.is_open else found

    # --- what an include in a text means ---

    def _is_own(self, place: Place | None) -> bool:
        return place is None or place.root < self._places.own

    def _text(self, place: Place) -> _Text:
        if place not in self._texts:
            self._texts[place] = self._read(place, self._places.read(place))
        return self._texts[place]

    def _read(self, place: Place | None, content: bytes) -> _Text:
        is_own = self._is_own(place)
        scanned = scan(content) if is_own else scan_quickly(content)
        for unclear in scanned.unclear:
            if self._strict or (self._as_written and unclear.is_asked):
                self._fail(place, unclear.what, unclear.code, unclear.hint, content, unclear.position)
        found = tuple((include, self._resolve(place, include)) for include in scanned.includes)
        if is_own:
            for include, _ in found:
                if include.name.startswith("/"):
                    what = f"an absolute path, {include.name}, names a header"
                    hint = "give the header's directory under include, and its name relative to it"
                    self._fail(place, what, "absolute", hint, content, include.start)
        is_open = any(each.code == "unknown" and not each.is_asked for each in scanned.unclear)
        if self._as_written:
            return _Text(found, is_open, content)
        called = [(each, each.name if to is None else self._places.name_of(to)) for each, to in found if each.end]
        # Where the text is read again, given by content, others may be beside it: angle brackets never look there.
        is_deep = place is not None and "/" in place.path
        changed = [(each, name) for each, name in called if name != each.name or (each.quoted and is_deep)]
        return _Text(found, is_open, rewrite(content, changed) if changed else content)

    def _resolve(self, place: Place | None, include: Include) -> Place | None:
        """Find a header as GCC does: beside the text that names it if in quotes, then in the roots in order."""
        if place is not None and include.quoted and _has_neighbours(place) and not include.name.startswith("/"):
            directory = os.path.dirname(place.path)  # noqa: PTH120 - a name, no path
            beside = self._places.look(place.root, f"{directory}/{include.name}" if directory else include.name)
            if beside is not None:
                return beside
        return self._places.search(include.name)

    # --- what is refused ---

    def _check_once(self, texts: Iterable[Place]) -> None:
        """Refuse a file with ``#pragma once`` in two places, since NVRTC knows it by its name."""
        seen: dict[tuple[int, int], Place] = {}
        for place in sorted(texts):
            if place.root != GIVEN and self._is_own(place) and b"once" in self._places.read(place):
                status = Path(self._places.path(place)).stat()
                other = seen.setdefault((status.st_dev, status.st_ino), place)
                if other != place:
                    what = f"#pragma once holds for one file, and this one is included as {other.path} too"
                    self._fail(place, what, "once", "include it by one name, or use an include guard")

    def _fail(
        self, place: Place | None, what: str, code: str, hint: str, content: bytes = b"", position: int = -1
    ) -> NoReturn:
        where = _SOURCE if place is None else self._places.name_of(place)
        if position >= 0:
            where += f":{content.count(10, 0, position) + 1}"
        raise JitltoError(what, code=f"jitlto-header-{code}", where=where, hint=hint)


def name_searched(names: Iterable[str]) -> str:
    """Return the name, among those of headers that a compiler has read, for its search for some names."""
    return _SEARCHED + "|".join(sorted(name for name in names if not set(name) & set("|\n")))


def name_source(error: JitltoError, name: str, lines_before: int) -> None:
    """Give the source its name in an error about headers.

    Args:
        error: As a search for headers raised it; an error in a header stays as it is.
        name: The source's name.
        lines_before: The lines that were put before the author's own.
    """
    source, _, line = (error.where or "").rpartition(":")
    if source == _SOURCE:
        error.where = f"{name}:{int(line) - lines_before}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _has_neighbours(place: Place) -> bool:
    """Return whether headers may be beside a header: not beside one that is given by its exact name."""
    return place.root != GIVEN or split_name(place.path)[1] == place.path
