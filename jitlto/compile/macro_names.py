"""The header names that macros can make: what an ``#include`` or ``__has_include`` of a macro may name.

Which definition of a macro holds at a directive only a whole preprocessor knows. Here every definition in any of the
texts may hold, or none, and all results are returned: a superset of what the compiler can ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jitlto.compile.directives import GAP, logical_line, mentions, read_directives, unsplice

_DEFINE = re.compile(rb"(?:#|%:)" + GAP + rb"define" + GAP + rb"(\w+)")
_TOKEN = re.compile(
    rb"(?P<blank>(?:\s|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))++)|(?P<word>[A-Za-z_$\x80-\xff][\w$\x80-\xff]*+)"
    rb"|\.?[0-9](?:[eEpP][+-]|'?\w|\.)*+|(?P<text>" + rb'"(?:[^"\\\n]|\\.)*+")' + rb"|'(?:[^'\\\n]|\\.)*+'|##|."
, re.S)  # fmt: skip
_RESERVED = re.compile(rb"__\w*|_[A-Z]\w*|unix|linux|i386")
_MOST_STEPS = 20_000


class TooManyError(Exception):
    """Macros expand to too many texts, or in a way that is not followed."""


class Token(NamedTuple):
    """A preprocessing token; ``hidden`` are the macros that it may not be expanded by."""

    text: bytes
    blank: bool  # white space before it
    kind: str | None  # word, text (a string) or None
    hidden: frozenset[bytes] = frozenset()


class Macro(NamedTuple):
    """A definition; ``parameters`` is None unless it is function-like."""

    parameters: tuple[bytes, ...] | None
    body: tuple[Token, ...]


class HeaderRequest(NamedTuple):
    """A name that is included or asked for."""

    quoted: bool
    name: str


class Macros:
    """All definitions of some texts, and of compiler options.

    Args:
        texts: Sources and headers.
        options: Of a compiler; ``-D`` counts.
    """

    def __init__(self, texts: Iterable[bytes], options: Sequence[str] = ()) -> None:
        self._texts = tuple(texts)
        self._options = _defined_by(options)
        self._known: dict[bytes, tuple[Macro, ...]] = {}
        self._asking: frozenset[bytes] | None = None
        self._steps = 0

    @property
    def consulted(self) -> frozenset[bytes]:
        """All words that were looked up as macros: only definitions of these, and uses of :meth:`asking`, mattered."""
        return frozenset(self._known) | (self._asking or frozenset())

    def included(self, operand: bytes) -> set[HeaderRequest] | None:
        """Return what ``#include operand`` may name; None if that cannot be told."""
        self._steps = 0
        try:
            return self._names(_tokens(operand))
        except (TooManyError, RecursionError):
            return None

    def asked(self, condition: bytes) -> set[HeaderRequest] | None:
        """Return what ``#if condition`` may ask for with ``__has_include``; None if that cannot be told."""
        self._steps = 0
        found: set[HeaderRequest] = set()
        try:
            for tokens in self._expand(_tokens(condition), self.asking()):
                for number, token in enumerate(tokens):
                    if token.text == b"__has_include_next":
                        return None
                    if token.text == b"__has_include" and (argument := _argument(tokens, number + 1)) is not None:
                        names = self._names(argument)
                        if names is None:
                            return None
                        found |= names
        except (TooManyError, RecursionError):
            return None
        return found

    def asking(self) -> frozenset[bytes]:
        """Return the macros that may expand to ``__has_include``."""
        if self._asking is None:
            found: set[bytes] = set()
            pending = [b"__has_include"]
            while pending:
                wanted = pending.pop()
                names = {name for text in self._texts for name in _names_that_mention(text, wanted)}
                for name, macros in self._options.items():
                    if any(wanted == token.text for macro in macros for token in macro.body):
                        names.add(name)
                pending += sorted(names - found)
                found |= names
            self._asking = frozenset(found)
        return self._asking

    def _names(self, operand: Sequence[Token]) -> set[HeaderRequest] | None:
        found: set[HeaderRequest] = set()
        for tokens in self._expand(operand, None):
            if not tokens:
                continue
            first = tokens[0]
            if first.kind == "text":
                used, quoted, name = tokens[:1], True, first.text[1:-1]
            elif first.text == b"<" and (end := next((n for n, t in enumerate(tokens) if t.text == b">"), None)):
                used, quoted = tokens[1:end], False
                name = b"".join(b" " * t.blank + t.text for t in used)
            elif first.kind == "word" and self._is_unknown(first):
                return None
            else:
                continue  # an error wherever it is compiled
            if b"\\" in name or any(map(self._is_unknown, used)) or (not quoted and any(t.blank for t in used)):
                return None
            found.add(HeaderRequest(quoted, name.decode("utf-8", "surrogateescape")))
        return found

    def _is_unknown(self, token: Token) -> bool:
        """Whether a word may be a macro of the compiler's own."""
        return token.kind == "word" and _RESERVED.fullmatch(token.text) is not None and not self._find(token.text)

    def _find(self, name: bytes) -> tuple[Macro, ...]:
        if name not in self._known:
            found = dict.fromkeys(self._options.get(name, ()))
            for text in self._texts:
                for start, end in _definitions(text).get(name, ()):
                    found[_macro(read_directives(text).text[start:end])] = None
            self._known[name] = tuple(found)
        return self._known[name]

    def _expand(self, tokens: Sequence[Token], only: frozenset[bytes] | None) -> Iterator[tuple[Token, ...]]:
        """Yield everything that tokens may become; macros other than ``only`` stay as they are."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooManyError
        for number, token in enumerate(tokens):
            if token.kind != "word" or token.text in token.hidden or (only is not None and token.text not in only):
                continue
            if not (macros := self._find(token.text)):
                continue
            head, rest = tuple(tokens[:number]), tokens[number + 1 :]
            kept = token._replace(hidden=token.hidden | {token.text})
            for tail in self._expand(rest, only):
                yield (*head, kept, *tail)
            for macro in macros:
                for replaced in self._replace(token, macro, rest, only):
                    for tail in self._expand(replaced, only):
                        yield (*head, *tail)
            return
        yield tuple(tokens)

    def _replace(
        self, token: Token, macro: Macro, rest: Sequence[Token], only: frozenset[bytes] | None
    ) -> Iterator[tuple[Token, ...]]:
        hidden = token.hidden | {token.text}
        if macro.parameters is None:
            yield (*_place(_paste(macro.body), hidden, token.blank), *rest)
            return
        if not rest or rest[0].text != b"(":
            return
        if b"." in macro.parameters:  # variadic
            raise TooManyError
        arguments, end = _arguments(rest)
        if arguments is None:
            return
        if macro.parameters == () and arguments == [()]:
            arguments = []
        if len(arguments) != len(macro.parameters):
            return
        given = dict(zip(macro.parameters, arguments, strict=True))
        for expanded in self._expand_all(list(given.values()), only):
            body = _substitute(macro.body, given, dict(zip(given, expanded, strict=True)))
            yield (*_place(_paste(body), hidden, token.blank), *rest[end:])

    def _expand_all(
        self, arguments: Sequence[Sequence[Token]], only: frozenset[bytes] | None
    ) -> Iterator[tuple[tuple[Token, ...], ...]]:
        if not arguments:
            yield ()
            return
        for first in self._expand(arguments[0], only):
            for others in self._expand_all(arguments[1:], only):
                yield (first, *others)


def _tokens(text: bytes) -> tuple[Token, ...]:
    found: list[Token] = []
    blank = False
    for match in _TOKEN.finditer(unsplice(text)):
        if match.lastgroup == "blank":
            blank = True
        else:
            found.append(Token(match[0], blank, match.lastgroup))
            blank = False
    return tuple(found)


@lru_cache(maxsize=4096)
def _definitions(text: bytes) -> Mapping[bytes, list[tuple[int, int]]]:
    """Where each macro's definitions stand in a text as :func:`read_directives` returns it: name to end of line."""
    text = read_directives(text).text
    found: dict[bytes, list[tuple[int, int]]] = {}
    for match in _DEFINE.finditer(text):
        found.setdefault(match[1], []).append((match.start(1), logical_line(text, match.end())[1]))
    return found


@lru_cache(maxsize=16384)
def _names_that_mention(text: bytes, word: bytes) -> frozenset[bytes]:
    text = read_directives(text).text
    found: set[bytes] = set()
    for position in mentions(text, word):
        start, end = logical_line(text, position)
        define = _DEFINE.search(text, start, end)
        if define and define.start(1) < position:
            found.add(define[1])
    return frozenset(found)


def _macro(definition: bytes) -> Macro:
    """Read a definition from its name on."""
    _, *rest = _tokens(definition)
    if not rest or rest[0].text != b"(" or rest[0].blank:
        return Macro(None, tuple(rest))
    end = next((n for n, t in enumerate(rest) if t.text == b")"), len(rest) - 1)
    parameters = tuple(t.text for t in rest[1:end] if t.text != b",")
    return Macro(parameters, tuple(rest[end + 1 :]))


def _defined_by(options: Sequence[str]) -> dict[bytes, tuple[Macro, ...]]:
    found: dict[bytes, tuple[Macro, ...]] = {}
    for option in options:
        if match := re.match(r"(?:-D|--define-macro)[=\s]*(\w+)(?:(\([^)]*\))?=(.*))?\Z", option, re.S):
            value = match[3] if match[3] is not None else "1"
            text = f"{match[1]}{match[2] or ''} {value}".encode("utf-8", "surrogateescape")
            found[match[1].encode()] = (*found.get(match[1].encode(), ()), _macro(text))
    return found


def _argument(tokens: Sequence[Token], start: int) -> Sequence[Token] | None:
    """Return what stands in parentheses at ``start``."""
    if start >= len(tokens) or tokens[start].text != b"(":
        return None
    arguments, end = _arguments(tokens[start:])
    return None if arguments is None else tokens[start + 1 : start + end - 1]


def _arguments(tokens: Sequence[Token]) -> tuple[list[tuple[Token, ...]] | None, int]:
    """Return the arguments in parentheses, and how many tokens they take; None if they do not end."""
    depth, arguments = 0, [[]]  # type: tuple[int, list[list[Token]]]
    for number, token in enumerate(tokens):
        depth += (token.text == b"(") - (token.text == b")")
        if depth == 0:
            return [tuple(argument) for argument in arguments], number + 1
        if token.text == b"," and depth == 1:
            arguments.append([])
        elif number:
            arguments[-1].append(token)
    return None, 0


def _substitute(
    body: Sequence[Token], given: Mapping[bytes, Sequence[Token]], expanded: Mapping[bytes, Sequence[Token]]
) -> list[Token]:
    out: list[Token] = []
    number = 0
    while number < len(body):
        token = body[number]
        after = body[number + 1].text if number + 1 < len(body) else b""
        if token.text == b"#" and after in given:
            out.append(Token(_stringize(given[after]), token.blank, "text"))
            number += 1
        elif token.text in given and token.kind == "word":
            pasted = after == b"##" or (out and out[-1].text == b"##")
            replaced = (given if pasted else expanded)[token.text]
            if replaced:
                out += [replaced[0]._replace(blank=token.blank), *replaced[1:]]
            elif pasted:
                out.append(Token(b"", token.blank, None))
        else:
            out.append(token)
        number += 1
    return out


def _stringize(tokens: Sequence[Token]) -> bytes:
    text = b"".join(b" " * (t.blank and n > 0) + _escape(t) for n, t in enumerate(tokens))
    return b'"' + text + b'"'


def _escape(token: Token) -> bytes:
    quotes = token.text[:1] in (b'"', b"'")
    return re.sub(rb'(["\\])', rb"\\\1", token.text) if quotes else token.text


def _paste(body: Sequence[Token]) -> list[Token]:
    out: list[Token] = []
    number = 0
    while number < len(body):
        if body[number].text == b"##" and out and number + 1 < len(body):
            left = out.pop()
            joined = _tokens(left.text + body[number + 1].text)
            out += [token._replace(blank=left.blank if n == 0 else token.blank) for n, token in enumerate(joined)]
            number += 1
        else:
            out.append(body[number])
        number += 1
    return [token for token in out if token.text]


def _place(body: Sequence[Token], hidden: frozenset[bytes], blank: bool) -> list[Token]:
    return [
        token._replace(hidden=token.hidden | hidden, blank=blank if n == 0 else token.blank)
        for n, token in enumerate(body)
    ]
