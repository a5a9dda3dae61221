"""Texts of headers where they stand: what each include in one means there, and the text with the headers' names.

The rules are those of GCC's preprocessor, which nvcc runs. What NVRTC would read otherwise is refused.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn, TypeGuard

from jitlto.base.errors import JitltoError
from jitlto.compile.directives import INCLUDES, Directive, HeaderName, mentions, read_directives
from jitlto.compile.header_places import GIVEN, HeaderPlaces, Place, split_name
from jitlto.compile.macro_names import HeaderRequest

#: Advice on a name that a macro makes.
HINT_LITERAL = 'write its name in the #include, or compile the family with toolchain = "nvcc"'
_SOURCE = "the source"  # in errors, for it has no name here
_ELSE_DEFINED = re.compile(rb"(?:#|%:)[ \t]*elifn?def\b")
_TRIGRAPH = re.compile(rb"\?\?[=/]")


class Found(NamedTuple):
    """A header name in a text, and what it means there."""

    directive: Directive
    name: HeaderName
    place: Place | None  # None: there is no such header


class Text(NamedTuple):
    """The text of a source or header in a place, and the headers that it names."""

    text: bytes
    found: tuple[Found, ...]
    open: tuple[Directive, ...]  # those that may name others, through macros
    looked_up: frozenset[str]
    once: bool  # it has #pragma once
    rewritten: bytes  # with the usual names of the headers


#: An empty source.
NOTHING = Text(b"", (), (), frozenset(), False, b"")


#: Texts of a toolkit's headers, by what they depend on beside the author's own, with the names that none of those has.
SystemTexts = dict[tuple[object, ...], tuple[Text, frozenset[str]]]


class HeaderTexts:
    """Reads texts, each once in each place.

    Args:
        places: Where headers are.
        own: How many of the first roots are the author's.
        shared: Texts of the other roots' headers, for all with these roots.
        strict: Refuse what NVRTC cannot follow.
        as_written: Refuse what nvcc's preprocessor would read outside of the roots.
        options: Of the compiler.
    """

    def __init__(
        self,
        places: HeaderPlaces,
        own: int,
        shared: SystemTexts | None = None,
        *,
        strict: bool,
        as_written: bool,
        options: Sequence[str],
    ) -> None:
        self._places, self._own = places, own
        self._shared = {} if shared is None else shared
        self._kind = (own, places.roots[own:], strict, as_written)
        self._own_names: dict[str, bool] = {}
        self._strict, self._as_written = strict, as_written
        self._elifdef = any("++23" in option or "++2b" in option for option in options)
        self._known: dict[Place, Text] = {}

    def settled(self, place: Place) -> Place:
        """Forget where the search of a header's ``#include_next`` begins, if it has none."""
        if place.after is None:
            return place
        found = read_directives(self._places.read(place)).found
        goes_on = any(d.word == b"include_next" or d.asks_next for d in found)
        return place if goes_on else place._replace(after=None)

    def read(self, place: Place | None, text: bytes | None = None) -> Text:
        """Return the text of a header, or of the source that is given."""
        if place is None:
            return self._read(None, text or b"")
        if place not in self._known:
            key = (*self._kind, place)
            known = None if self.is_own(place) else self._shared.get(key)
            if known is not None and not any(map(self._is_own_name, known[1])):
                self._known[place] = known[0]
            else:
                self._places.asked.clear()
                read = self._known[place] = self._read(place, self._places.read(place))
                asked = frozenset(self._places.asked)
                if not self.is_own(place) and not any(map(self._is_own_name, asked)):
                    self._shared[key] = read, asked
        return self._known[place]

    def _is_own_name(self, name: str) -> bool:
        """Return whether one of the author's headers has a name."""
        if name not in self._own_names:
            self._own_names[name] = any(self._places.look(root, name) for root in range(GIVEN, self._own))
        return self._own_names[name]

    def _read(self, place: Place | None, content: bytes) -> Text:
        directives = read_directives(content)
        looked_up: set[str] = set()
        found = [
            Found(d, name, self.resolve(place, d.word, HeaderRequest(name.quoted, name.written), looked_up))
            for d in directives.found
            for name in d.names
        ]
        opened = tuple(d for d in directives.found if d.through_macros)
        once = any(True for _ in mentions(content, b"once"))
        read = Text(directives.text, tuple(found), opened, frozenset(looked_up), once, b"")
        if self._strict and self.is_own(place):
            self._check_text(place, directives.text, directives.found)
        return read._replace(rewritten=self.rewrite(place, read, None))

    def is_own(self, place: Place | None) -> bool:
        """Return whether a text is the author's, not the toolkit's."""
        return place is None or place.root < self._own

    def resolve(self, place: Place | None, word: bytes, request: HeaderRequest, looked_up: set[str]) -> Place | None:
        """Find a header as GCC does: beside the text that names it if in quotes, then in the roots in order."""
        name = request.name
        goes_on = word == b"include_next" and place is not None
        first = GIVEN if place is None or place.after is None or not goes_on else place.after
        if request.quoted and _has_neighbours(place) and not goes_on and not name.startswith("/"):
            directory = os.path.dirname(place.path)  # noqa: PTH120 - a name, no path
            path = f"{directory}/{name}" if directory else name
            beside = self._places.look(place.root, path)
            if beside is not None:
                found = Place(place.root, beside, GIVEN)
                looked_up.add(self._places.name_of(found))
                return self.settled(found)
            absent = os.path.normpath(path)
            looked_up.add(absent if self._places.search(absent) is None else Place(place.root, absent).exact_name)
        result = self._places.search(name, first)
        if result is not None:
            looked_up.add(self._places.name_of(result))
            between = range(max(first, 0), result.root if goes_on else 0)
            looked_up.update(Place(root, result.path).exact_name for root in between)
            return self.settled(result)
        if not name.startswith("/"):
            absent = os.path.normpath(name)
            anywhere = self._places.search(absent) is None
            roots = range(max(first, 0), self._places.count)
            looked_up.update([absent] if anywhere else (Place(root, absent).exact_name for root in roots))
        return None

    def rewrite(self, place: Place | None, read: Text, names: Mapping[Place, tuple[str, ...]] | None) -> bytes:
        """Return a text in which each header is called by the first of its names."""
        text: list[bytes] = []
        done = 0
        taken = {name for its in names.values() for name in its} if names else set()
        for directive, name, found in read.found:
            start, spelled = name.start, None
            is_include = directive.word in INCLUDES
            if found is not None:
                called = names[found][0] if names and found in names else self._places.name_of(found)
                spelled = self._spell(place, name, called, found)
            elif name.written.startswith("/"):
                if not is_include:
                    self.refuse_absolute(place, read.text, directive, name.written)
                # NVRTC would read the file itself, which says nothing on another machine.
                named = name.written.replace("/*", "/ *").encode("utf-8", "surrogateescape")
                text += [read.text[done : directive.start], b"error jitlto does not include absolute paths: " + named]
                done = name.end
            elif directive.word == b"include_next" or name.written.startswith("+") or _meant(place, name) & taken:
                spelled = self._quote(name.quoted, f"{name.written} (not found)")
            if spelled is not None and directive.word == b"include_next":
                start, spelled = directive.start, b"include " + spelled
            if spelled is not None and spelled != read.text[start : name.end]:
                text += [read.text[done:start], spelled]
                done = name.end
        return b"".join([*text, read.text[done:]])

    def _spell(self, place: Place | None, name: HeaderName, called: str, found: Place) -> bytes:
        quoted = name.quoted
        if quoted and place is not None and "/" in place.path:
            # Whoever reads the result as a source again must not find another header beside this one.
            beside = self._places.look(place.root, f"{os.path.dirname(place.path)}/{called}")  # noqa: PTH120
            quoted = beside is None or (place.root, beside) == found[:2]
        return self._quote(quoted, called)

    def _quote(self, quoted: bool, name: str) -> bytes:
        first, last = ('"', '"') if (quoted and '"' not in name) or ">" in name else ("<", ">")
        return f"{first}{name}{last}".encode("utf-8", "surrogateescape")

    # --- what is refused ---

    def _check_text(self, place: Place | None, text: bytes, found: Sequence[Directive]) -> None:
        code = "jitlto-header-unsupported"
        for directive in found:
            if directive.asks_next:
                hint = 'remove it, or compile the family with toolchain = "nvcc"'
                self._fail_at(place, text, directive.start, "NVRTC has no __has_include_next", code, hint)
        if not self._elifdef and (match := _ELSE_DEFINED.search(text)):
            what = f"NVRTC ignores {match[0].decode()} before C++23"
            self._fail_at(place, text, match.start(), what, code, "write #elif defined(NAME)")
        if match := _TRIGRAPH.search(text):
            what = f"{match[0].decode()} is a trigraph or not, by the language standard"
            self._fail_at(place, text, match.start(), what, code, "write the character itself")

    def refuse_unknown(self, place: Place | None, text: bytes, directive: Directive) -> None:
        """Refuse a directive whose names cannot be told, where that matters."""
        if self._strict or (self._as_written and directive.word not in INCLUDES):
            what = "a macro whose value only the compiler knows names a header"
            self._fail_at(place, text, directive.start, what, "jitlto-header-unknown", HINT_LITERAL)

    def refuse_absolute(self, place: Place | None, text: bytes, directive: Directive, name: str) -> None:
        """Refuse a directive that names an absolute path."""
        if self._strict or self._as_written:
            what = f"an absolute path, {name}, names a header"
            hint = "give the header's directory under include, and its name relative to it"
            self._fail_at(place, text, directive.start, what, "jitlto-header-absolute", hint)

    def _fail_at(self, place: Place | None, text: bytes, position: int, what: str, code: str, hint: str) -> NoReturn:
        self.fail(place, what, code, hint, text.count(b"\n", 0, position) + 1)

    def fail(self, place: Place | None, what: str, code: str, hint: str, line: int | None = None) -> NoReturn:
        """Raise the error for a text."""
        where = _SOURCE if place is None else self._places.name_of(place)
        raise JitltoError(what, code=code, where=where if line is None else f"{where}:{line}", hint=hint)


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


def _has_neighbours(place: Place | None) -> TypeGuard[Place]:
    """Return whether headers may be beside a text: not beside the source, nor one that is given by its exact name."""
    return place is not None and not (place.root == GIVEN and split_name(place.path)[1] != place.path)


def _meant(place: Place | None, name: HeaderName) -> set[str]:
    """Return the names by which whoever reads a text again would look for a header."""
    beside = os.path.join(os.path.dirname(place.path), name.written) if place else name.written  # noqa: PTH118, PTH120
    return {name.written, os.path.normpath(name.written), os.path.normpath(beside)}
