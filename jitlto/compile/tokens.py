"""The tokens of C++ in a text: a reading without a preprocessor, which knows nothing of macros."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

S = TypeVar("S")  # what stands for an open brace

# Comments, strings and characters, and what may look like their beginning: words and numbers.
_LITERAL = re.compile(
    r'(?:u8|[uUL])?R"([^ ()\\\t\v\f\n]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*'
    r"|/\*.*?(?:\*/|\Z)|[A-Za-z_$][\w$]*|\.?[0-9](?:[eEpP][+-]|'?\w|\.)*",
    re.S,
)
TOKEN = re.compile(r'^[ \t]*(?:#|%:)[^\n]*|[A-Za-z_$][\w$]*|"C"|::|\.\.\.|\S', re.M)
WORD = re.compile(r"[A-Za-z_$][\w$]*\Z")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
#: Words that qualify a parameter or its type; as last word of a declaration none is its name.
_QUALIFIERS = frozenset(
    ("const", "volatile", "register", "typename", "__restrict__", "__restrict", "__grid_constant__", "alignas")
)
CLASS_KEYS = frozenset(("struct", "class", "union", "enum"))
TYPES = frozenset(
    ("void", "bool", "char", "wchar_t", "char8_t", "char16_t", "char32_t", "short", "int", "long", "signed", "unsigned",
     "float", "double", "auto", "decltype", "__int128")
)  # fmt: skip
_SPECIFIERS = frozenset(
    ("extern", "static", "inline", "constexpr", "template", "using", "typedef", "namespace", "operator", "return",
     "__device__", "__host__", "__global__", "__constant__", "__forceinline__", "__noinline__")
)  # fmt: skip
KEYWORDS = _QUALIFIERS | CLASS_KEYS | TYPES | _SPECIFIERS


@lru_cache(maxsize=256)
def plain_text(text: bytes) -> str:
    """Return a text with its continued lines joined, and without comments and the content of strings."""
    joined = re.sub(r"\\[ \t]*\r?\n", "", text.decode("utf-8", "replace"))
    return _LITERAL.sub(_without_literal, joined)


def without_comments(text: str, joint: str) -> str:
    """Return a text without comments, with a joint for each line that ended in one."""
    return _LITERAL.sub(lambda match: _without_comment(match[0], joint), text)


def _without_comment(literal: str, joint: str) -> str:
    if not literal.startswith(("//", "/*")):
        return literal
    return " " + joint * (literal.count("\n") + literal.count(joint))


def _without_literal(match: re.Match[str]) -> str:
    literal = match[0]
    if literal.startswith(("//", "/*")):
        return " "  # a directive goes on behind a comment of several lines
    if literal.startswith("'"):
        return "0"
    return '""' if literal.endswith('"') and literal != '"C"' else literal.replace("'", "")


def follow_condition(directive: str, scopes: list[S], branches: list[list[S]]) -> None:
    """Have each branch of a condition begin in the scope of the first."""
    word = re.sub(r"[^a-z]*([a-z]*).*", r"\1", directive, count=1, flags=re.S)
    if word in ("if", "ifdef", "ifndef"):
        branches.append(list(scopes))
    elif word in ("else", "elif", "elifdef", "elifndef") and branches:
        scopes[:] = branches[-1]
    elif word == "endif" and branches:
        branches.pop()


def skip(tokens: Sequence[str], position: int) -> int:
    """Return the position behind a bracket that opens at ``position``, and all within it."""
    closing = [_CLOSING[tokens[position]]]
    while closing and position + 1 < len(tokens):
        position += 1
        token = tokens[position]
        if token == closing[-1]:
            closing.pop()
        elif token in _CLOSING and (token != "<" or closing[-1] == ">"):  # elsewhere it may mean less
            closing.append(_CLOSING[token])
    return position + 1


def split_parameters(tokens: Sequence[str]) -> list[list[str]]:
    """Return the parameters in a list, without their defaults."""
    parts: list[list[str]] = [[]]
    position, is_default = 0, False
    while position < len(tokens):
        if tokens[position] == ",":
            parts.append([])
            position, is_default = position + 1, False
            continue
        end = skip(tokens, position) if tokens[position] in _CLOSING else position + 1
        is_default = is_default or tokens[position] == "="
        parts[-1] += () if is_default else tokens[position:end]
        position = end
    return parts


def parameter_name(tokens: Sequence[str]) -> str | None:
    """Return the name in the declaration of one parameter; None if it has none, or it cannot be told."""
    tokens = list(tokens)
    while tokens[-1:] == ["]"]:  # of an array
        del tokens[len(tokens) - 1 - tokens[::-1].index("[") :]
    pointer = re.search(r"\( (?:\* (?:const )?)+([A-Za-z_$][\w$]*) (?:\[ [^]]*\] )*\) [([]", " ".join([*tokens, "["]))
    if pointer:
        return pointer[1]  # to a function or an array
    if not tokens or not WORD.match(tokens[-1]) or tokens[-1] in KEYWORDS or tokens[-2:-1] == ["::"]:
        return None
    # Before a name there is a type: a word that is no qualifier, or the end of one.
    before = tokens[:-1]
    types = [token for token in before if token not in _QUALIFIERS and token not in CLASS_KEYS and token != "::"]
    return tokens[-1] if types else None
