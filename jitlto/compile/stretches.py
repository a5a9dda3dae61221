"""The lines of a header between its directives, and the declarations in a text without directives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jitlto.compile.tokens import CLASS_KEYS, plain_text, skip, without_comments

_DIRECTIVE = re.compile(r"\s*(?:#|%:)\s*(\w+)\s*(.*)", re.S)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_JOINT = "\0"  # in place of the end of a line that goes on
_NO_FUNCTIONS = frozenset(("alignas", "__align__", "__attribute__", "__declspec", "decltype", "noexcept", "explicit"))
_NO_BODIES = CLASS_KEYS | {"constexpr", "consteval", "namespace"}


class Stretch(NamedTuple):
    """A directive with its word, or lines between directives, without comments."""

    line: int  # the first
    word: str  # of a directive, else empty
    text: str


def stretches(text: bytes) -> Iterator[Stretch]:
    """Yield the directives of a header, and what is between them, in pieces that end with a whole line of code."""
    number, begin, pending = 1, 1, ""
    for written in without_comments(_CONTINUED.sub(_JOINT, text.decode("utf-8", "replace")), _JOINT).split("\n"):
        line = written.replace(_JOINT, "").strip()
        directive = _DIRECTIVE.fullmatch(line)
        if pending and directive:
            yield Stretch(begin, "", pending)
            pending = ""
        if directive:
            yield Stretch(number, directive[1], directive[2])
        elif line:
            begin, pending = (begin, f"{pending} {line}") if pending else (number, line)
            if line.endswith((";", "{", "}")) and is_balanced(pending):
                yield Stretch(begin, "", pending)
                pending = ""
        number += 1 + written.count(_JOINT)
    if pending:
        yield Stretch(begin, "", pending)


def is_balanced(text: str) -> bool:
    """Return whether each parenthesis of a text has its other one."""
    depth = 0
    for each in re.findall(r"[()]", plain_text(text.encode())):
        depth += 1 if each == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def declarations(tokens: Iterable[str]) -> list[int]:
    """Return the positions of the tokens that declare something: none in the bodies of functions, and no assertions.

    The body of a function counts that is ``constexpr``, or whose result is deduced.
    """
    found: list[int] = []
    every = list(tokens)
    head: list[str] = []  # of the present declaration, without what is in parentheses
    position, depth, was_body = 0, 0, False
    while position < len(every):
        token = every[position]
        end = position + 1
        if token == "static_assert" and every[end : end + 1] == ["("]:
            end = skip(every, end)
        elif token == "{" and depth == 0 and (was_body or _is_body(head)):
            end, head, was_body = skip(every, position), [], True
        else:
            found.append(position)
            was_body = False
            if token in "{};" and depth == 0:
                head = []
            elif depth == 0 or (depth == 1 and token == ")"):
                head.append(token)
            depth = max(0, depth + (token == "(") - (token == ")"))
        position = end
    return found


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
