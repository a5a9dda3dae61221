"""Names and types of kernels' parameters, as their definitions in the text have them.

A compiler tells the sizes of parameters, and their types unless the kernel is ``extern "C"``; their names it tells
nowhere. Where a macro stands among them, or may have defined the kernel, none is known.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from jitlto.base.layouts import canonical_spelling
from jitlto.base.mangling import base_name, parameter_types
from jitlto.base.types import find_scalar
from jitlto.compile.declarations import macro_definitions, read_declarations
from jitlto.compile.tokens import is_directive, parameter_name, split_parameters
from jitlto.record.options import macro_values

#: Name and type of each parameter of a kernel; None where it is not known.
Parameters = tuple[tuple[str | None, str | None], ...]

_NO_TYPE = frozenset(("__restrict__", "__restrict", "__grid_constant__", "volatile", "register"))


def find_parameters(
    texts: Sequence[bytes], options: Sequence[str], kernels: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, Parameters]]:
    """Yield the parameters of kernels, as far as their definitions in some texts tell them.

    Args:
        texts: A source, and its family's headers.
        options: Of the compiler, which may define macros.
        kernels: The mangled name of each kernel, and the number of its parameters.
    """
    defined = [each for text in texts if b"__global__" in text for each in read_declarations(text).kernels]
    macros = [macro for text in texts for macro in macro_definitions(text)] if defined else []
    macros += macro_values(options).items()
    for mangled, count in kernels:
        kernel = base_name(mangled)
        lists = [inner for name, inner in defined if name == kernel]
        found = {made for made in map(_read_list, lists) if made is None or len(made) == count}
        words, defines = {kernel}.union(*lists) - _NO_TYPE, re.compile(rf"\b(?:__global__|{re.escape(kernel)})\b")
        is_sure = not any(macro in words or defines.search(body or "") for macro, body in macros)
        if is_sure and len(found) == 1 and (made := found.pop()) is not None:
            yield mangled, made


def mangled_parameters(kernel: str, count: int) -> Parameters:
    """Return the types of a kernel's parameters that its name tells: none of ``extern "C"``, or of one too long."""
    types = parameter_types(kernel) or ()
    return tuple((None, type_) for type_ in types) if len(types) == count else ((None, None),) * count


def _read_list(tokens: Sequence[str]) -> Parameters | None:
    """Return the parameters in a list; None if a condition is in it, it ends in an ellipsis, or two have one name."""
    if any(is_directive(token) or token == "..." for token in tokens):
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
