"""Names and types of kernels' parameters, as their definitions in the text have them.

A compiler tells the sizes of parameters, and their types unless the kernel is ``extern "C"``; their names it tells
nowhere. What a macro may have changed is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from jitlto.base.mangling import base_name
from jitlto.base.type_spelling import canonical_spelling
from jitlto.base.types import find_scalar
from jitlto.compile.declarations import heads
from jitlto.compile.includes import all_directives
from jitlto.compile.tokens import KEYWORDS, WORD, parameter_name, plain_text, skip, split_parameters
from jitlto.record.options import macro_values

#: Name and type of each parameter of a kernel; None where it is not known.
Parameters = tuple[tuple[str | None, str | None], ...]

_NO_TYPE = frozenset(("__restrict__", "__restrict", "__grid_constant__", "volatile", "register"))
_MACRO = re.compile(r"([\w$]+)(.*)", re.S)
_ODD = re.compile(r"[(),#]|__global__")


def find_parameters(
    texts: Sequence[bytes], options: Sequence[str], kernels: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, Parameters]]:
    """Yield the parameters of kernels, as far as their definitions in some texts tell them.

    Args:
        texts: A source, and its family's headers.
        options: Of the compiler, which may define macros.
        kernels: The mangled name of each kernel, and the number of its parameters.
    """
    defined = [kernel for text in texts for kernel in _find_kernels(text)]
    macros = [macro for text in texts for macro in _find_macros(text)] if defined else []
    macros += [(name, value or "") for name, value in macro_values(options).items()]
    for mangled, count in kernels:
        lists = [inner for name, inner in defined if name == base_name(mangled)]
        found = {made for made in (_read_list(inner) for inner in lists) if made is None or len(made) == count}
        if len(found) == 1 and (made := found.pop()) is not None:
            words = {token for inner in lists for token in inner if WORD.match(token)} | {base_name(mangled)}
            if not any(_may_change(*macro, words, {name for name, _ in made}, base_name(mangled)) for macro in macros):
                replaced = words & {name for name, _ in macros}
                yield mangled, tuple((name, None if replaced else type_) for name, type_ in made)


def _may_change(macro: str, body: str, words: set[str], names: set[str | None], kernel: str) -> bool:
    """Return whether a macro may give parameters other names than those that are written."""
    if re.search(rf"\b(?:__global__|{re.escape(kernel)})\b", body):  # it may define the kernel
        return True
    return macro in words and (macro in names or macro == kernel or _ODD.search(body) is not None)


@lru_cache(maxsize=256)  # the sources of a build share their headers
def _find_kernels(text: bytes) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the kernels that a text defines: the name without namespaces, and what stands in the parentheses."""
    return tuple(_kernels(text)) if b"__global__" in text else ()


def _kernels(text: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    for head in heads(plain_text(text)):
        if "__global__" in head.tokens and head.end == "{" and not (head.in_class or head.is_internal):
            position, name, inner = 0, "", None
            while position < len(head.tokens):
                end = skip(head.tokens, position) if head.tokens[position] in "([<" else position + 1
                if head.tokens[position] == "(" and name not in (*KEYWORDS, "noexcept"):
                    inner = name, tuple(head.tokens[position + 1 : end - 1])
                if WORD.match(head.tokens[position]):
                    name = head.tokens[position]
                position = end
            if inner is not None:
                yield inner


@lru_cache(maxsize=256)
def _find_macros(text: bytes) -> tuple[tuple[str, str], ...]:
    """Return the macros that a text defines, or undefines, with what they stand for."""
    matches = ((word, _MACRO.match(rest)) for word, rest in all_directives(text) if word in ("define", "undef"))
    return tuple((match[1], match[2] if word == "define" else "") for word, match in matches if match)


def _read_list(tokens: Sequence[str]) -> Parameters | None:
    """Return the parameters in a list; None if a condition is in it, it ends in an ellipsis, or two have one name."""
    if any(token.lstrip().startswith(("#", "%:")) or token == "..." for token in tokens):
        return None
    if not tokens or list(tokens) == ["void"]:
        return ()
    parts = split_parameters(tokens)
    found = tuple((name := parameter_name(part), _type(part, name)) for part in parts)
    named = [name for name, _ in found if name]
    return found if len(set(named)) == len(named) else None


def _type(tokens: Sequence[str], name: str | None) -> str | None:
    """Return the type of a parameter, if it is a number or a pointer; a text does not say what other names are."""
    tokens = [token for token in tokens if token not in _NO_TYPE and token != name]
    is_array = "[" in tokens
    tokens = tokens[: tokens.index("[")] if is_array else tokens
    if tokens[-2:] == ["*", "const"]:
        del tokens[-1]
    text = " ".join(tokens).replace(" :: ", "::")
    is_number = find_scalar(text) is not None or "__int128" in tokens
    if "(" in tokens or not (is_number or is_array or tokens[-1:] in (["*"], ["&"])):
        return None
    return canonical_spelling(text + "*" * is_array)
