"""Kernels as their sources define them: the names of parameters, which no compiler puts into its output.

A reading of tokens, not a parser: what it cannot tell for sure has no name. What depends on macros is asked of the
compiler (:mod:`jitlto.compile.kernel_probe`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from jitlto.base.mangling import base_name, parameter_types

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

# The front end's names for parameters without one, and for those of a pack.
_MADE_UP = re.compile(r"__T\d+\Z|__\d+_\d+_\d+_")

#: Name and type of each parameter of a kernel; None where it is not known.
Parameters = tuple[tuple[str | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class KernelDefinition:
    """A definition of a ``__global__`` function in a text.

    Args:
        name: Its name, with namespaces.
        is_c: Whether it has C linkage.
        names: The names of its parameters, None for one without; or None if they cannot be told.
        words: All words in the list of parameters that a macro could stand for.
        is_conditional: Whether it is under a condition, and so perhaps not what is compiled.
    """

    name: str
    is_c: bool
    names: tuple[str | None, ...] | None
    words: frozenset[str]
    is_conditional: bool

    @property
    def base_name(self) -> str:
        """Its name without namespaces."""
        return self.name.rpartition("::")[2]


@lru_cache(maxsize=256)
def find_kernels(text: bytes) -> tuple[KernelDefinition, ...]:
    """Find the definitions of kernels in a source or header, in namespaces, under any condition."""
    first = text.find(b"__global__")
    if first < 0 or b"{" not in text[first:]:  # as in a source that instantiates a template
        return ()
    return tuple(_definitions(TOKEN.findall(plain_text(text))))


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


def _definitions(tokens: Sequence[str]) -> Iterator[KernelDefinition]:
    scopes: list[str | None] = []  # of each open brace: a namespace, 'extern "C"', or None for anything else
    branches: list[list[str | None]] = []  # the scopes at each open #if
    start = 0  # of the declaration
    end = 0  # of an expression in brackets, or of the arguments of a macro, which may drop them
    for position, token in enumerate(tokens):
        if position < end:
            continue
        if token.lstrip().startswith(("#", "%:")):
            follow_condition(token, scopes, branches)
            start = position + 1
        elif token == "{":
            scopes.append(_scope(tokens[start:position]))
            start = position + 1
        elif token == "}":
            del scopes[-1:]
            start = position + 1
        elif token == ";":
            start = position + 1
        elif token == "(":
            end = skip(tokens, position)
        elif token == "__global__" and None not in scopes:
            head = tokens[start:position]
            spaces = [scope for scope in scopes if scope and scope != 'extern "C"']
            is_c = 'extern "C"' in " ".join(head) or 'extern "C"' in scopes
            if found := _definition(tokens, position + 1, spaces, is_c=is_c, is_conditional=bool(branches)):
                yield found


def follow_condition(directive: str, scopes: list[S], branches: list[list[S]]) -> None:
    """Have each branch of a condition begin in the scope of the first."""
    word = re.sub(r"[^a-z]*([a-z]*).*", r"\1", directive, count=1, flags=re.S)
    if word in ("if", "ifdef", "ifndef"):
        branches.append(list(scopes))
    elif word in ("else", "elif", "elifdef", "elifndef") and branches:
        scopes[:] = branches[-1]
    elif word == "endif" and branches:
        branches.pop()


def _scope(head: Sequence[str]) -> str | None:
    if list(head[-2:]) == ["extern", '"C"']:
        return 'extern "C"'
    if "namespace" in head:
        name = "".join(word for word in head[list(head).index("namespace") + 1 :] if word == "::" or WORD.match(word))
        return name or None  # None: without a name, and so no other fragment's business
    return None


def _definition(
    tokens: Sequence[str], position: int, spaces: Sequence[str], *, is_c: bool, is_conditional: bool
) -> KernelDefinition | None:
    """Read a declarator from behind ``__global__``; None if it is no definition."""
    name: list[str] = []
    while position < len(tokens):
        token = tokens[position]
        if WORD.match(token) or token == "::":
            name = [*name, token] if token == "::" or name[-1:] == ["::"] else [token]
            position += 1
        elif token in "[<":
            position = skip(tokens, position)
        elif token == "(":
            end = skip(tokens, position)
            if tokens[end : end + 1] == ["{"] or list(tokens[end : end + 2]) == ["noexcept", "{"]:
                if not name or name[-1] in KEYWORDS:
                    return None
                qualified = "::".join([*spaces, "".join(name)])
                inner = tokens[position + 1 : end - 1]
                words = frozenset(word for word in inner if WORD.match(word)) - KEYWORDS
                return KernelDefinition(qualified, is_c, _names(inner), words, is_conditional)
            position = end  # arguments of an attribute or of a macro
        else:
            return None
    return None


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


def _names(tokens: Sequence[str]) -> tuple[str | None, ...] | None:
    """Return the names of the parameters in a list; None if a condition is in it, or it ends in an ellipsis."""
    if any(token.lstrip().startswith(("#", "%:")) or token == "..." for token in tokens):
        return None
    if not tokens or list(tokens) == ["void"]:
        return ()
    names = tuple(map(parameter_name, split_parameters(tokens)))
    named = [name for name in names if name]
    return names if len(set(named)) == len(named) else None


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


def read_front_end(code: str, stubs: str, kernels: Mapping[str, int]) -> dict[str, Parameters]:
    """Read names and types of parameters from what nvcc's front end makes of a source.

    Args:
        code: The device code as C, in which macros and templates are expanded (``.cudafe1.gpu``).
        stubs: The host's functions that launch kernels, whose names are mangled for ``extern "C"`` kernels too
            (``.cudafe1.stub.c``).
        kernels: The mangled name of each kernel, and the number of its parameters.
    """
    mangled = {base_name(name): name for name in re.findall(r"__device_stub_(_Z\w+)\(", stubs)}
    result = {}
    for name, count in kernels.items():
        # The text is megabytes: it is searched, and only the list of parameters is read.
        defined = re.search(rf"__global__[^;{{}}]*?\b{re.escape(name)}\(([^;{{}}]*)\)\{{", code)
        listed = re.sub(r"^#[^\n]*", "", defined[1], flags=re.M) if defined else ""
        names = [None if n is None or _MADE_UP.match(n) else n for n in _names(TOKEN.findall(listed)) or ()]
        types = [t for t in parameter_types(mangled.get(name, name)) or () if t != "void"]
        known: Sequence[str | None] = names if len(names) == count else (None,) * count
        typed: Sequence[str | None] = types if len(types) == count else (None,) * count
        result[name] = tuple(zip(known, typed, strict=True))
    return result
