"""Virtual headers: the closure of a source's includes, as names and contents.

The compiler gets every header this way and never an include path: its output then depends on contents alone, and a
header that was not given is a compile error, never a stale one. NVRTC looks a header up by the very text of the
include, so that text is replaced by a name that only the header has which nvcc's preprocessor would read there. Where a
macro makes the text, the header gets that name; where one name would have to be two headers, the source is refused.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jitlto.compile.directives import INCLUDES, Directive, all_directives, conditions_with
from jitlto.compile.header_places import GIVEN, HeaderPlaces, Place, tree_name
from jitlto.compile.header_texts import HINT_LITERAL, NOTHING, HeaderTexts, SystemTexts, Text
from jitlto.compile.macro_names import Macros
from jitlto.record.headers import HeaderSet, Source

_WORD = re.compile(rb"\w+")
_NO_MACROS = frozenset((b"pragma", b"line", b"error", b"warning", b"else", b"endif", *INCLUDES))


class _Request(NamedTuple):
    """A name that a macro makes: who asks for it, and what it means there."""

    place: Place | None
    name: str
    found: Place | None


class _Requests(NamedTuple):
    """All requests of some texts, where they were looked for, and the words that mattered."""

    requests: frozenset[_Request]
    looked_up: frozenset[str]
    consulted: frozenset[bytes]


class _Walk(NamedTuple):
    """All headers that a source can reach."""

    texts: dict[Place, Text]
    requests: frozenset[_Request]
    looked_up: frozenset[str]


_Names = dict[Place, tuple[str, ...]]


class HeaderSearch:
    """Finds headers under a list of roots, the first that has one wins; files are read once.

    Args:
        roots: Directories of the author's headers, in the order of ``-I``.
        given: Headers given by content, which win over every root.
        system: Directories of a toolkit's headers, which come after the others.
        options: Of the compiler; the macros that they define may name headers.
        strict: Refuse what NVRTC cannot follow. Otherwise a source that may name any header reaches all of the roots'.
        as_written: Leave all texts as they are, for a preprocessor with real directories: a header of the first root
            (or given) has its path for a name, one of another root its exact name.
        beyond: Whether a name may lead out of a directory.
        files: Contents by path, to be shared by searches that are to read each file once among them.
        texts: Texts of the headers under ``system``, to be shared likewise.
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
        texts: SystemTexts | None = None,
    ) -> None:
        self._places = HeaderPlaces([*roots, *system], given or {}, beyond=beyond, files=files)
        self._own, self._options, self._strict, self._as_written = len(roots), tuple(options), strict, as_written
        self._texts = HeaderTexts(self._places, self._own, texts, strict=strict, as_written=as_written, options=options)
        self._states: dict[str, str | None] = {}
        self._made: dict[frozenset[Place], _Requests] = {}
        self._reached: dict[tuple[Place, ...], dict[Place, Text]] = {}  # the sources of a build share includes
        self._visible: dict[str, bytes] | None = None
        self._completed: dict[frozenset[str], HeaderSet] = {}
        self._closures: dict[tuple[frozenset[Place], frozenset[_Request]], tuple[_Names | None, dict[str, bytes]]] = {}

    def find(self, name: str) -> bytes | None:
        """Return the content of the header ``name``, None if no root has it."""
        return None if (place := self._places.named(name)) is None else self._places.read(place)

    def path(self, name: str) -> Path | None:
        """Return the path of the header ``name``, None if no root has it."""
        return None if (place := self._places.named(name)) is None or place.root == GIVEN else self._places.path(place)

    def sha256(self, name: str) -> str | None:
        """Return the SHA-256 of the header ``name``, with its root unless that is the first; None if there is none.

        Of two equal headers in two roots, each includes what is beside itself.
        """
        if name not in self._states:
            place = self._places.named(name)
            self._states[name] = None if place is None else self._state(place)
        return self._states[name]

    def _state(self, place: Place) -> str:
        digest = hashlib.sha256(self._places.read(place)).hexdigest()
        return f"{digest}@{place.root}" if place.root > 0 else digest

    def closure(self, text: bytes, extra: Iterable[str] = ()) -> Source:
        """Return the source with every header that its includes, and theirs, can name in any branch.

        A superset of what the compiler will read. Headers that no root has are left out: the compiler says which of
        them it needed.

        Args:
            extra: Names that the compiler asked for, through macros that only it knows.

        Raises:
            JitltoError: ``jitlto-header-…``, if the headers would not be those that nvcc's preprocessor reads.
        """
        main = self._texts.read(None, text)
        walk = self._walk(main, extra)
        if self._as_written:
            return Source(text, self._tree(main, walk))
        key = (frozenset(walk.texts), walk.requests)
        if key not in self._closures:
            self._closures[key] = self._make_closure(walk)
        names, headers = self._closures[key]
        return Source(main.rewritten if names is None else self._texts.rewrite(None, main, names), headers)

    def _make_closure(self, walk: _Walk) -> tuple[_Names | None, dict[str, bytes]]:
        names = self._name(walk)
        if names is None:
            return None, {self._places.name_of(place): read.rewritten for place, read in walk.texts.items()}
        headers: dict[str, bytes] = {}
        for place, its in names.items():
            headers |= dict.fromkeys(its, self._texts.rewrite(place, walk.texts[place], names))
        return names, headers

    def _tree(self, main: Text, walk: _Walk) -> dict[str, bytes]:
        """Return the headers by their paths, and an empty file in each directory that a name leaves by ``..``."""
        headers: dict[str, bytes] = {}
        for place in walk.texts:
            if os.path.normpath(place.path) != place.path:
                what = f"{place.path} leads through a symbolic link and back"
                self._texts.fail(place, what, "jitlto-header-ambiguous", "include the header by its own path")
            headers[tree_name(place)] = self._places.read(place)
        for includer, read in [(None, main), *walk.texts.items()]:
            for found in read.found:
                if found.place is not None and "/../" in found.name.written:
                    base = os.path.dirname(includer.path) if includer and found.place.after == GIVEN else ""  # noqa: PTH120
                    parts = f"{base}/{found.name.written}".strip("/").split("/")
                    for number, part in enumerate(parts):
                        if part == ".." and number and parts[number - 1] != "..":
                            directory = os.path.normpath("/".join(parts[:number]))
                            headers.setdefault(tree_name(Place(found.place.root, f"{directory}/.directory")), b"")
        return headers

    def complete(self, source: Source) -> Source:
        """Return a source of :meth:`closure` with all that a preprocessor may find in the roots, if ``as_written``.

        A header that only this compiler and its own headers know of, or that stands before one of the toolkit's, is
        then found as in the roots themselves. Left out are hidden directories and files of more than 4 MiB, unless the
        closure has them.

        Raises:
            JitltoError: ``jitlto-header-too-many``, if the roots have more than 256 MiB.
        """
        if not self._as_written:
            return source
        names = frozenset(source.headers)
        if names not in self._completed:
            if self._visible is None:
                self._visible = self._places.read_visible(self._own)
            made = HeaderSet(self._visible | dict(source.headers))
            self._completed[names] = self._completed.setdefault(frozenset(made), made)
        return Source(source.text, self._completed[names])

    def held(self, names: Iterable[str]) -> str:
        """Return a digest of which of the roots have a file of each name."""
        found = [self._places.holders(name, self._own) for name in names]
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()

    def reachable(self, text: bytes) -> frozenset[str]:
        """Return the names of the headers in :meth:`closure` of ``text``."""
        return frozenset(self.closure(text).headers)

    def looked_up(self, text: bytes, reads: Iterable[str]) -> frozenset[str]:
        """Return every name that decided how ``text`` and the headers ``reads`` are spelled in :meth:`closure`.

        Where a file of such a name comes or goes, an include may mean another file.
        """
        main = self._texts.read(None, text)
        places = [place for name in reads if (place := self._places.named(name)) is not None]
        texts = {self._texts.settled(place): self._texts.read(self._texts.settled(place)) for place in places}
        walk = self._follow(main, texts)
        found = walk.looked_up.union(*(read.looked_up for read in (main, *texts.values())))
        if self._as_written:  # what a macro names is known from what is read
            found |= {Place(root, place.path).exact_name for place in texts for root in range(place.root)}
        return found

    # --- names that macros make ---

    def _walk(self, main: Text, extra: Iterable[str]) -> _Walk:
        given = {name: self._texts.settled(place) for name in extra if (place := self._places.search(name)) is not None}
        requests = {_Request(None, name, place) for name, place in given.items()}
        start = tuple(dict.fromkeys(place for place in (*(f.place for f in main.found), *given.values()) if place))
        while True:
            walk = self._follow(main, self._reach(start))
            more = {r.found for r in walk.requests if r.found is not None and r.found not in walk.texts}
            if not more:
                return walk._replace(requests=walk.requests | requests)
            start += tuple(more)

    def _reach(self, start: tuple[Place, ...]) -> dict[Place, Text]:
        """Return some headers, and all that they and theirs include, other than by macros."""
        if start not in self._reached:
            texts: dict[Place, Text] = {}
            pending = list(start)
            while pending:
                place = pending.pop()
                if place not in texts:
                    texts[place] = self._texts.read(place)
                    pending.extend(found.place for found in texts[place].found if found.place is not None)
            self._reached[start] = texts
        return self._reached[start]

    def _follow(self, main: Text, texts: dict[Place, Text]) -> _Walk:
        """Add what macros may name in these texts."""
        if not main.open and not any(read.open for read in texts.values()):
            return _Walk(texts, frozenset(), frozenset())
        places = frozenset(texts)
        if places not in self._made:
            self._made[places] = self._find_requests({None: NOTHING} | dict(texts.items()))
        made = self._made[places]
        words = {
            word for name, rest in all_directives(main.text) if name not in _NO_MACROS for word in _WORD.findall(rest)
        }
        if main.open or not made.consulted.isdisjoint(words):
            made = self._find_requests({None: main} | dict(texts.items()))
        return _Walk(texts, made.requests, made.looked_up)

    def _find_requests(self, every: Mapping[Place | None, Text]) -> _Requests:
        macros = Macros([read.text for read in every.values()], self._options)
        requests: set[_Request] = set()
        looked_up: set[str] = set()
        asked: list[tuple[Place | None, Directive]] = []
        for place, read in every.items():
            asked += [(place, d) for d in read.open if d.word != b"define"]
        if any(d.word == b"define" for read in every.values() for d in read.open):
            for place, read in every.items():
                asked += [(place, directive) for directive in conditions_with(read.text, macros.asking())]
        for place, directive in asked:
            operand = every[place].text[directive.start + len(directive.word) : directive.end]
            names = macros.included(operand) if directive.word in INCLUDES else macros.asked(operand)
            if names is None:
                if self._texts.is_own(place):
                    self._texts.refuse_unknown(place, every[place].text, directive)
                    found = map(self._texts.settled, self._places.all_in(self._own))
                    requests.update(_Request(None, self._places.name_of(p), p) for p in found)
                continue
            for request in names:
                if request.name.startswith("/"):
                    self._texts.refuse_absolute(place, every[place].text, directive, request.name)
                requests.add(
                    _Request(place, request.name, self._texts.resolve(place, directive.word, request, looked_up))
                )
        return _Requests(frozenset(requests), frozenset(looked_up), macros.consulted)

    # --- names of headers ---

    def _name(self, walk: _Walk) -> dict[Place, tuple[str, ...]] | None:
        """Return the names of each header, several if macros spell it differently; None if all have the usual one."""
        wanted: dict[str, set[Place | None]] = defaultdict(set)
        for request in walk.requests:
            wanted[request.name].add(request.found)
        usual = {place: self._places.name_of(place) for place in walk.texts}
        made = {name: place for name, places in wanted.items() for place in places if place is not None}
        if self._strict:
            self._check_requests(walk, wanted, set(usual.values()))
        shared = self._shared(walk)
        if not shared and all(usual.get(place) == name for name, place in made.items()):
            return None
        names: dict[Place, tuple[str, ...]] = {}
        for place, name in usual.items():
            others = (n for n, p in made.items() if p == place and n != name)
            names[place] = (name if made.get(name, place) == place else place.exact_name, *sorted(others))
        for places in shared:
            names |= dict.fromkeys(places, (self._unite(walk, names, places),))
        return names

    def _check_requests(self, walk: _Walk, wanted: Mapping[str, set[Place | None]], usual: set[str]) -> None:
        for request in sorted(walk.requests, key=lambda request: (request.name, request.place or ())):
            places = wanted[request.name]
            if len(places) > 1 or (places == {None} and request.name in usual):
                what = f"a macro names {request.name!r}, which are different headers, or none, where it is used"
                self._texts.fail(request.place, what, "jitlto-header-ambiguous", HINT_LITERAL)

    def _shared(self, walk: _Walk) -> list[list[Place]]:
        """Return the places of each file that is in several, and has ``#pragma once`` or is named by macros too."""
        named = {r.found for r in walk.requests if r.found and self._places.name_of(r.found) != r.name}
        files: dict[object, list[Place]] = defaultdict(list)
        for place, read in walk.texts.items():
            if read.once:
                files[self._places.identity(place)].append(place)
        return [places for places in files.values() if len(places) > 1 or places[0] in named]

    def _unite(self, walk: _Walk, names: Mapping[Place, tuple[str, ...]], places: Sequence[Place]) -> str:
        """Return one name for a header with ``#pragma once``, which NVRTC knows by its name, in all its places."""
        spelled = {request.name for request in walk.requests if request.found in places}
        texts = {self._texts.rewrite(place, walk.texts[place], names) for place in places}
        if self._strict and (len(spelled) > 1 or len(texts) > 1):
            what = "#pragma once holds for one file, and this one is included as different ones"
            self._texts.fail(min(places), what, "jitlto-header-once", "include it by one name, or use an include guard")
        return min(spelled) if spelled else min(names[place][0] for place in places)
