"""The directives of a source that name headers, found in its text as a preprocessor finds them.

Comments, strings, raw strings and continued lines are told apart as GCC does. Toolkit headers are megabytes, so nearly
all texts are searched for the word ``include`` alone; only one in which that could mislead is read from its first byte.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

# Blanks, comments and continued lines may stand between the words of a directive.
_COMMENT = rb"/\*(?:[^*]|\*(?!/))*+\*/"
GAP = rb"(?:[ \t\f\v]|" + _COMMENT + rb"|\\\r?\n)*+"
_QUOTED, _ANGLED = rb'"[^"\r\n]*+"', rb"<[^>\r\n]*+>"
_SPLICE = re.compile(rb"\\[ \t\f\v]*+\r?\n")
_DIRECTIVE = re.compile(GAP + rb"(?:#|%:)" + GAP + rb"(\w+)")
_INCLUDED = re.compile(GAP + rb"(" + _QUOTED + rb"|" + _ANGLED + rb")")
_HAS = re.compile(
    rb"//[^\n]*+|" + _COMMENT + rb"|'(?:[^'\\\n]|\\.)*+'|" + rb'"(?:[^"\\\n]|\\.)*+"'
    rb"|(?P<defined>\bdefined" + GAP + rb"\(?" + GAP + rb"__has_include(?:_next)?\b)"
    rb"|(?P<next>\b__has_include_next\b)"
    rb"|(?P<has>\b__has_include\b)(?:" + GAP + rb"\(" + GAP + rb"(?P<name>" + _QUOTED + rb"|" + _ANGLED + rb"))?"
)  # fmt: skip
# What only a reading from the first byte tells: a raw string, a digraph, a rare directive, a blank after the backslash
# (which GCC alone takes for a continued line), a word that may go on in the next line.
_ODD = re.compile(rb"\\(?:[ \t\f\v]+\r?\n|(?<![ \t]\\)\r?\n(?![ \t\r\n]))")
# NVRTC, unlike GCC, also takes for a directive what follows a comment of several lines that begins after other words.
_RARE = re.compile(rb"(?:#|\*/)[ \t]*+import\b|\*/[ \t\f\v]*+(?:#|%:)")
_LEXEME = re.compile(
    rb"(?P<newline>\n)|(?P<comment>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))|(?P<hash>#|%:)|(?P<blank>[ \t\f\v\r]++)"
    rb"|(?P<raw>(?:u8|[uUL])?R" + rb'")'
    rb"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*+'?|" + rb'(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*+"?'
    rb"|\.?[0-9](?:[eEpP][+-]|'?\w|\.)*+|\w++|[^\n]"
)  # fmt: skip
# Whole lines in which no directive, comment or text can begin or go on, and comments that have lines of their own.
_PLAIN_LINES = re.compile(
    rb"(?:[ \t\f\v\r]*+(?:[^\s#%/\"'][^\n#%/\"']*+|//[^\n]*+|" + _COMMENT + rb"[ \t\f\v\r]*+)?\n)++"
)
# After this the next token is a header's name, in which nothing is a comment or an escape.
_AWAITS_NAME = re.compile(rb"(?:\A#[ \t]*(?:include|include_next|import)|\b__has_include(?:_next)?[ \t]*\()[ \t]*\Z")
_HEADER_NAME = re.compile(_QUOTED + rb"|" + _ANGLED)
# A text without these is read line by line.
_INVOLVED = re.compile(rb'/\*|R"|%:|\\[ \t\f\v]*+\r?\n')
_PLAIN_DIRECTIVE = re.compile(rb"^[ \t\f\v]*+#[ \t\f\v]*+(\w+)([^\n]*+)", re.M)
_DELIMITER = re.compile(rb'([^ ()\\\t\v\f\n"]{0,16})\(')

# Where these are, or where NVRTC refuses a text, its directives are not all that matters.
_UNCLEAR = re.compile(rb'\*/|\?\?[=/]|(?:#|%:)[ \t]*elifn?def|[rR]"')

INCLUDES = frozenset((b"include", b"include_next", b"import"))
CONDITIONS = frozenset((b"if", b"elif"))


class HeaderName(NamedTuple):
    """A header's name where it is written, from ``start`` to ``end``, with its quotes or angle brackets."""

    start: int
    end: int
    quoted: bool
    written: str


class Directive(NamedTuple):
    """An ``#include``, or an ``#if``, ``#elif`` or ``#define`` that asks whether a header exists.

    Args:
        word: ``include``, ``include_next``, ``import``, ``if``, ``elif`` or ``define``.
        start, end: Its place in the text, from its word to the end of its line.
        names: The names that it spells out; of a ``#define`` none, for what it means is decided where it is used.
        through_macros: It may name others, through macros.
        asks_next: It has ``__has_include_next``.
    """

    word: bytes
    start: int
    end: int
    names: tuple[HeaderName, ...] = ()
    through_macros: bool = False
    asks_next: bool = False


class Directives(NamedTuple):
    """A text with its directives.

    The text is the file's own, unless it is odd: then each directive stands in one line, without comments, and nothing
    else has moved.
    """

    text: bytes
    found: tuple[Directive, ...]


@lru_cache(maxsize=16384)
def read_directives(text: bytes) -> Directives:
    """Return the directives of a text that name headers or ask for them, in order."""
    odd = b'R"' in text or b"%:" in text or _ODD.search(text) or _RARE.search(text)
    found = None if odd else _search(text)
    if found is None:
        text, lines = _normalize(text)
        found = [read for start, end in lines if (read := _read_line(text, start, end))]
    return Directives(text, tuple(found))


def all_directives(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return the word and the rest of every directive of a text, without comments and continued lines."""
    if not _INVOLVED.search(text):
        found = _PLAIN_DIRECTIVE.findall(text)
        if not any(b"//" in rest for _, rest in found):
            yield from ((word, rest.strip()) for word, rest in found)
            return
    normal, lines = _normalize(text)
    for start, end in lines:
        if match := _DIRECTIVE.match(normal, start, end):
            yield match[1], normal[match.end() : end].strip()


def outline(text: bytes) -> bytes | None:
    """Return the lines of a text that have directives: two texts with equal ones include and ask for the same headers.

    None for a text of which that may not be true, for its lines or comments go on or the compiler may refuse it.
    """
    if _INVOLVED.search(text) or _UNCLEAR.search(text):
        return None
    return b"\n".join(match[0] for match in _PLAIN_DIRECTIVE.finditer(text))


def logical_line(text: bytes, position: int) -> tuple[int, int]:
    """Return where the line around ``position`` begins and ends, with the lines that it continues."""
    start = text.rfind(b"\n", 0, position) + 1
    while start and text.endswith((b"\\\n", b"\\\r\n"), max(0, start - 3), start):
        start = text.rfind(b"\n", 0, start - 1) + 1
    end = text.find(b"\n", position)
    while end >= 0 and text.endswith((b"\\", b"\\\r"), max(position, end - 2), end):
        end = text.find(b"\n", end + 1)
    return start, len(text) if end < 0 else end


def mentions(text: bytes, word: bytes) -> Iterator[int]:
    """Yield where a word stands in a text."""
    position = text.find(word)  # an expression that begins with a word's edge takes a hundred times as long
    while position >= 0:
        end = position + len(word)
        if not (_is_word(text[position - 1 : position]) or _is_word(text[end : end + 1])):
            yield position
        position = text.find(word, end)


def _is_word(character: bytes) -> bool:
    return character.isalnum() or character == b"_"


@lru_cache(maxsize=16384)
def conditions_with(text: bytes, words: frozenset[bytes]) -> tuple[Directive, ...]:
    """Return the conditions of a text that have one of some words."""
    found: dict[int, Directive] = {}
    for word in words:
        for position in mentions(text, word):
            start, end = logical_line(text, position)
            if match := re.match(rb"\s*(?:#|%:)\s*(if|elif)\b", text[start:end]):
                found[start] = Directive(match[1], start + match.start(1), end)
    return tuple(found.values())


def unsplice(text: bytes) -> bytes:
    """Return a text with continued lines joined."""
    return _SPLICE.sub(b"", text)


def _search(text: bytes) -> list[Directive] | None:
    """Find the directives by the word ``include``; None if only a whole reading can tell what is commented out."""
    found: list[Directive] = []
    position = text.find(b"include")
    while position >= 0:
        start, end = logical_line(text, position)
        match = _DIRECTIVE.match(text, start)
        if match is None or match.start(1) > position:
            if b"*/" in text[start:position]:  # a comment of several lines may stand before or in a directive
                return None
            end = position + 7
        elif match[1] in INCLUDES or match[1] in CONDITIONS or match[1] == b"define":
            opened = text.rfind(b"/*", 0, start)
            if opened >= 0 and text.find(b"*/", opened + 2, start) < 0:
                return None
            if read := _read_line(text, start, end):
                found.append(read)
        position = text.find(b"include", end)
    return found


def _read_line(text: bytes, start: int, end: int) -> Directive | None:
    match = _DIRECTIVE.match(text, start)
    if match is None:
        return None
    word, begin = match[1], match.start(1)
    if word in INCLUDES:
        if name := _INCLUDED.match(text, match.end(), end):
            return Directive(word, begin, end, (_header_name(name, 1),))
        return Directive(word, begin, end, through_macros=True)
    asks = [m for m in _HAS.finditer(text, match.end(), end) if m["has"] or m["next"]]
    if not asks or (word not in CONDITIONS and word != b"define"):
        return None
    asks_next = any(m["next"] for m in asks)
    if word == b"define":
        return Directive(word, begin, end, (), True, asks_next)
    names = tuple(_header_name(m, "name") for m in asks if m["name"])
    return Directive(word, begin, end, names, any(m["has"] and not m["name"] for m in asks), asks_next)


def _header_name(match: re.Match[bytes], group: int | str) -> HeaderName:
    text = match[group]
    written = text[1:-1].decode("utf-8", "surrogateescape")
    return HeaderName(match.start(group), match.end(group), text.startswith(b'"'), written)


def _normalize(text: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Read a text from its first byte; return it with each directive in one line, and where those lines are."""
    cuts = [(match.start(), match.end()) for match in _SPLICE.finditer(text)]
    logical, removed = unsplice(text), [0]
    for start, end in cuts:
        removed.append(removed[-1] + end - start)
    # Where each cut is in the logical text: a place there lies in the original after all cuts before it.
    places = [start - gone for (start, _), gone in zip(cuts, removed, strict=False)]

    def original(place: int) -> int:
        return place + removed[bisect_right(places, place)]

    out = _Writer(text)
    position, begin, is_first = 0, -1, True
    pieces: list[bytes] = []
    comments: list[tuple[int, int]] = []  # of several lines, after which only blanks have come
    while position < len(logical):
        if is_first and begin < 0 and not comments and (plain := _PLAIN_LINES.match(logical, position)):
            position = plain.end()
            continue
        match = _LEXEME.match(logical, position)
        if begin >= 0 and logical[position] in b'<"' and _AWAITS_NAME.search(b"".join(pieces)):
            match = _HEADER_NAME.match(logical, position) or match
        if match is None:  # impossible: the last alternative takes any byte
            break
        kind, position = match.lastgroup, match.end()
        if kind == "newline":
            if begin >= 0:
                out.directive(begin, original(match.start()), b"".join(pieces))
            out.end_line(original(match.start()))
            begin, is_first, pieces, comments = -1, True, [], []
            continue
        if kind == "comment" and b"\n" in match[0]:
            comments.append((original(match.start()), original(match.end() - 1) + 1))
        elif kind == "hash" and comments and begin < 0 and not is_first:
            for start, end in comments:
                out.flatten(start, end)
        elif kind not in ("comment", "blank"):
            comments = []
        piece = b" " if kind == "comment" else match[0]
        if kind == "raw" and (delimiter := _DELIMITER.match(text, at := original(position - 1) + 1)):
            closing = b")" + delimiter[1] + b'"'
            close = text.find(closing, delimiter.end())
            end = len(text) if close < 0 else close + len(closing)
            piece += text[at:end]
            if begin < 0:
                out.verbatim(at, end)
            position = end - removed[bisect_right([start for start, _ in cuts], end - 1)]
        if kind == "hash" and is_first:
            begin, piece = original(match.start()), b"#"
        is_first = is_first and kind in ("comment", "blank")
        if begin >= 0:
            pieces.append(piece)
    if begin >= 0:
        out.directive(begin, len(text), b"".join(pieces))
    return out.finish()


class _Writer:
    """Writes a text anew, from its first byte to its last."""

    def __init__(self, text: bytes) -> None:
        self._text, self._done, self._size = text, 0, 0
        self._parts: list[bytes] = []
        self._lines: list[tuple[int, int]] = []
        self._owed = 0  # line ends that have been left out

    def _write(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _copy(self, end: int) -> None:
        self._write(_SPLICE.sub(b"\\\\\n", self._text[self._done : end]))

    def verbatim(self, start: int, end: int) -> None:
        """Copy what is before ``start``, and from there to ``end`` every byte."""
        self._copy(start)
        self._write(self._text[start:end])
        self._done = end

    def flatten(self, start: int, end: int) -> None:
        """Copy what is before ``start``, and from there to ``end`` in one line, whose end gets the others' ends."""
        self._copy(start)
        self._write(b" ".join(self._text[start:end].splitlines()))
        self._owed += self._text.count(b"\n", start, end)
        self._done = end

    def end_line(self, end: int) -> None:
        """Add the line ends that are owed."""
        if self._owed:
            self._copy(end)
            self._write(b"\n" * self._owed)
            self._done, self._owed = end, 0

    def directive(self, start: int, end: int, line: bytes) -> None:
        """Copy what is before ``start``, and write ``line`` for what is from there to ``end``."""
        self._copy(start)
        line = line.rstrip()
        self._lines.append((self._size, self._size + len(line)))
        self._write(line + b"\n" * (self._text.count(b"\n", start, end) - line.count(b"\n")))
        self._done = end

    def finish(self) -> tuple[bytes, list[tuple[int, int]]]:
        """Copy the rest; return the text and where its directives are."""
        self._copy(len(self._text))
        return b"".join(self._parts), self._lines
