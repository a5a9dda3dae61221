"""The tokens of C++ in a text: a reading without a preprocessor, which knows nothing of macros."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

_JOINT = "\v"  # a blank in place of the end of a line that is gone, so that lines can be counted
_CONTINUED = re.compile(r"^(?:[^\n]*\\[ \t]*\r?\n)+[^\n]*", re.M)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
# Comments, strings and characters, and what may look like their beginning: words and numbers.
_LITERAL = re.compile(
    r'(?:u8|[uUL])?R"([^ ()\\\t\v\f\n]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*'
    r"|/\*.*?(?:\*/|\Z)|[A-Za-z_$][\w$]*|\.?[0-9](?:[eEpP][+-]|'?\w|\.)*",
    re.S,
)
TOKEN = re.compile(r'^[^\S\n]*(?:#|%:)[^\n]*|[A-Za-z_$][\w$]*|"(?:[^"\\]|\\.)*"|::|\.\.\.|\S', re.M)
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
    every = text.decode("utf-8", "replace").replace(_JOINT, " ")
    joined = _CONTINUED.sub(lambda match: _SPLICE.sub("", match[0]) + _JOINT * match[0].count("\n"), every)
    return _LITERAL.sub(lambda match: _replace(match[0]), joined)


def line_at(text: str, position: int) -> int:
    """Return the line of a position in a plain text."""
    return text.count("\n", 0, position) + text.count(_JOINT, 0, position) + 1


def _replace(literal: str) -> str:
    lines = _JOINT * (literal.count("\n") + literal.count(_JOINT))
    if literal.startswith(("//", "/*")):
        return f" {lines}"  # a directive goes on behind a comment of several lines
    if literal.startswith("'"):
        return "0"
    return f'""{lines}' if literal.endswith('"') and literal != '"C"' else literal.replace("'", "")


def is_directive(token: str) -> bool:
    """Return whether a token is a whole directive."""
    return token.lstrip().startswith(("#", "%:"))


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


def outer(tokens: Sequence[str], brackets: str = "([") -> Iterator[tuple[int, int]]:
    """Yield where each token begins and ends, of which one is a bracket with all within it."""
    position = 0
    while position < len(tokens):
        end = skip(tokens, position) if tokens[position] in tuple(brackets) else position + 1
        yield position, end
        position = end


def split_parameters(tokens: Sequence[str]) -> list[list[str]]:
    """Return the parameters in a list, without their defaults."""
    parts: list[list[str]] = [[]]
    is_default = False
    for position, end in outer(tokens, "([{<"):
        if tokens[position] == ",":
            parts.append([])
        is_default = tokens[position] == "=" or (is_default and tokens[position] != ",")
        parts[-1] += () if is_default or tokens[position] == "," else tokens[position:end]
    return parts


def parameter_name(tokens: Sequence[str]) -> str | None:
    """Return the name in the declaration of a parameter: its last word, if a type is before that."""
    tokens = list(tokens)
    while tokens[-1:] == ["]"] and "[" in tokens:  # of an array
        del tokens[len(tokens) - 1 - tokens[::-1].index("[") :]
    *before, last = tokens or [""]
    is_name = WORD.match(last) and last not in KEYWORDS and before[-1:] != ["::"]
    return last if is_name and not (_QUALIFIERS | CLASS_KEYS).issuperset({*before} - {"::"}) else None
