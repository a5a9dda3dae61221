"""On which macros the declarations of headers depend.

A word in the body of a function changes no declaration, unless the function is ``constexpr`` or its result is deduced.
Neither does a condition that only an ``#error`` follows. A macro matters where it is used, with its conditions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from jitlto.model.directives import all_directives
from jitlto.model.kernel_text import CLASS_KEYS, KEYWORDS, TOKEN, WORD, follow_condition, plain_text, skip

_DIRECTIVE = re.compile(r"[ \t]*(?:#|%:)[ \t]*(\w*)[ \t]*(.*)", re.S)
_DEFINE = re.compile(r"([A-Za-z_$][\w$]*)(?:\(([^)]*)\))?(.*)", re.S)
_DEFINED = re.compile(r"\bdefined\b\s*(?:\(\s*)?([A-Za-z_$][\w$]*)")
_WORD = re.compile(r"(?<![\w$.'])[A-Za-z_$][\w$]*")
_HAS = re.compile(rb"\b__has_\w+\s*\(\s*(?:\"[^\"]*\"|<[^>]*>|[\w:]+)\s*\)")
_NO_FUNCTIONS = frozenset(("alignas", "__align__", "__attribute__", "__declspec", "decltype", "noexcept", "explicit"))
_NO_BODIES = CLASS_KEYS | {"constexpr", "consteval", "namespace"}


class Question(NamedTuple):
    """What a header asks the preprocessor: the ``value`` of a macro, if it is ``defined``, or ``has``: a condition."""

    kind: str
    word: str
    is_condition: bool = True  # and not the text of a declaration


class _Meaning(NamedTuple):
    asks: frozenset[Question]
    macros: Mapping[str, frozenset[Question]]  # what each depends on; a header in <> likewise


@dataclass
class _Chain:
    """What lies between an ``#if`` and its ``#endif``."""

    is_within: bool  # the body of a function
    asks: set[Question] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    has_declarations: bool = False
    has_else: bool = False
    groups: int = 0  # those that do not end in an error
    is_error: bool = False  # the present group, which no compiler accepts

    def end_group(self) -> None:
        self.groups += not self.is_error
        self.is_error = False


def questions(headers: Mapping[str, bytes]) -> dict[Question, str]:
    """Return what the declarations of headers depend on, each with the header that asks; their own macros last."""
    meanings = {name: read_meaning(text) for name, text in headers.items()}
    found: dict[Question, str] = {}
    for name, meaning in meanings.items():
        found |= dict.fromkeys(meaning.asks - found.keys(), name)
    pending = [*dict.fromkeys(each.word for each in found), *(f"<{name}>" for name in headers)]
    seen = set(pending)
    while pending:
        word = pending.pop()
        for name, meaning in meanings.items():
            found |= dict.fromkeys(meaning.macros.get(word, frozenset()) - found.keys(), name)
        new = {each.word for each in found} - seen
        seen |= new
        pending += sorted(new)
    own = {name for meaning in meanings.values() for name in meaning.macros}
    return dict(sorted(found.items(), key=lambda item: (item[0].word in own, item[0])))


@lru_cache(maxsize=1024)
def read_meaning(text: bytes) -> _Meaning:
    """Read what one header depends on."""
    reader = _Reader()
    reader.read(TOKEN.findall(plain_text(text)))
    has = {Question("has", match.decode()) for _, rest in all_directives(text) for match in _HAS.findall(rest)}
    return _Meaning(frozenset(reader.asks | has), {name: frozenset(asks) for name, asks in reader.macros.items()})


class _Reader:
    def __init__(self) -> None:
        self.asks: set[Question] = set()
        self.macros: dict[str, set[Question]] = defaultdict(set)
        self._scopes: list[bool] = []  # whether each is a body that is passed over
        self._chains: list[_Chain] = []

    def read(self, tokens: Sequence[str]) -> None:
        branches: list[list[bool]] = []
        head: list[str] = []  # of the present declaration, without what is in parentheses
        depth = 0
        was_body = False
        for token in tokens:
            if match := _DIRECTIVE.match(token):
                self._direct(match[1], match[2])
                follow_condition(token, self._scopes, branches)
                continue
            self._declare()
            if True not in self._scopes and WORD.match(token) and token not in KEYWORDS:
                self.asks.add(Question("value", token, is_condition=False))
            if token == "{":
                self._scopes.append(depth == 0 and (was_body or _is_body(head)))
            elif token == "}":
                was_body = bool(self._scopes and self._scopes.pop())
            if token in "{};" and depth == 0:
                head = []
            elif depth == 0 or (depth == 1 and token == ")"):
                head.append(token)
            depth = max(0, depth + (token == "(") - (token == ")"))
            was_body = was_body and token == "}"

    def _declare(self) -> None:
        for chain in self._chains:
            chain.has_declarations = True

    def _direct(self, word: str, rest: str) -> None:
        if word in ("if", "ifdef", "ifndef"):
            self._chains.append(_Chain(True in self._scopes, _conditions(word, rest)))
        elif word.startswith("el") and self._chains:
            self._chains[-1].end_group()
            self._chains[-1].has_else |= word == "else"
            self._chains[-1].asks |= _conditions(word, rest)
        elif word == "endif" and self._chains:
            self._end(self._chains.pop())
        elif word in ("define", "undef") and (match := _DEFINE.match(rest)):
            self._define(match[1])
            parameters = set(_WORD.findall(match[2] or ""))
            body = set(_WORD.findall(match[3])) - parameters - KEYWORDS if word == "define" else ()
            self.macros[match[1]] |= {Question("value", each, is_condition=False) for each in body}
        elif word == "include" and rest.startswith("<"):
            self._define(rest.partition(">")[0] + ">")
        elif word == "error" and self._chains:
            self._chains[-1].is_error = True
        elif word in ("include", "include_next", "import", "pragma") and rest.strip() != "once":
            self._declare()
            self.asks |= {Question("value", each) for each in _WORD.findall(rest) if not rest.startswith('"')}

    def _define(self, name: str) -> None:
        for chain in self._chains:
            chain.defined.add(name)

    def _end(self, chain: _Chain) -> None:
        chain.end_group()
        if chain.groups + (not chain.has_else) < 2:  # all others end in errors
            return
        for name in chain.defined:
            self.macros[name] |= chain.asks
        if chain.has_declarations and not chain.is_within:
            self.asks |= chain.asks


def _conditions(word: str, rest: str) -> set[Question]:
    if word.endswith("def"):
        return {Question("defined", each) for each in _WORD.findall(rest)[:1]}
    asked = {Question("defined", each) for each in _DEFINED.findall(rest)}
    return asked | {Question("value", each) for each in _WORD.findall(_DEFINED.sub("", rest))}


def _is_body(head: Sequence[str]) -> bool:
    """Return whether a brace behind a head opens the body of a function that changes no declaration."""
    rest = [*_without_prefixes(head)]
    calls = (n for n, (before, token) in enumerate(pairwise(rest)) if token == "(" and before not in _NO_FUNCTIONS)
    first = next(calls, None)
    if first is None or not _NO_BODIES.isdisjoint(rest) or ("=" in rest[:first] and "operator" not in rest):
        return False
    return {"auto", "decltype"}.isdisjoint(rest) or ("-", ">") in pairwise(rest)


def _without_prefixes(head: Sequence[str]) -> Iterator[str]:
    position = 0
    while position < len(head):
        if list(head[position : position + 2]) == ["template", "<"]:
            position = skip(head, position + 1)
        else:
            yield head[position]
            position += 1
