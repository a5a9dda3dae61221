"""C++ names: from what the linker sees to what a person wrote (Itanium C++ ABI, the one that NVRTC and nvcc use)."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable
from functools import cache
from typing import Any

_OPERATOR = re.compile(r"\boperator *(?:\(\)|\[\]|[-+*/%^&|~!=<>,]+)")


@cache
def demangle(name: str) -> str:
    """Demangle a symbol with the C++ runtime's ``__cxa_demangle``.

    Parameters
    ----------
    name : str
        A mangled name, or one that is not mangled (``extern "C"``).

    Returns
    -------
    str
        The C++ name; ``name`` itself if it is not mangled or no C++ runtime library can be loaded.
    """
    function = _cxa_demangle()
    if function is None or not name.startswith("_Z"):
        return name
    return function(name) or name


def parameter_types(name: str) -> list[str] | None:
    """The parameter types that a mangled function name spells, or None for a name that spells none (``extern "C"``).

    >>> parameter_types("_Z3addPKfi")
    ['float const*', 'int']
    """
    text = demangle(name)
    if text == name or not text.endswith(")"):
        return None
    depth, start = 0, len(text) - 1
    for start in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[start], 0)
        if depth == 0:
            break
    return split_top_level(text[start + 1 : -1])


def base_name(name: str) -> str:
    """The name of a function or variable without return type, namespaces, template arguments and parameters.

    >>> base_name("_ZN1a1kIfEEvPKT_")
    'k'
    """
    text = demangle(name).replace("(anonymous namespace)", "{anonymous}")
    operator = ""
    if match := _OPERATOR.search(text):
        # Its brackets are no brackets: let it be a word until they are gone.
        operator = match[0]
        text = f"{text[: match.start()]}operator{text[match.end() :]}"
    flat, depth = [], 0
    for character in text:
        depth += character == "<"
        if depth == 0:
            flat.append(character)
        depth -= character == ">"
    base = re.split(r"::|\s", "".join(flat).partition("(")[0].strip())[-1]
    return operator if operator and base == "operator" else base


def split_top_level(text: str) -> list[str]:
    """Split at the commas that stand outside all brackets, trimmed; an empty text gives no parts."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "(<[{":
            depth += 1
        elif character in ")>]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if text[start:].strip():
        parts.append(text[start:].strip())
    return parts


@cache
def _cxa_demangle() -> Callable[[str], str | None] | None:
    for library in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1", ctypes.util.find_library("c++")):
        try:
            if library:
                return _binding(ctypes.CDLL(library).__cxa_demangle, ctypes.CDLL(None).free)
        except (OSError, AttributeError):
            continue
    return None


def _binding(function: Any, free: Any) -> Callable[[str], str | None]:
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes = [ctypes.c_void_p]

    def call(name: str) -> str | None:
        status = ctypes.c_int()
        pointer = function(name.encode(), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            # A name that lies about its lengths may cut a character in two.
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            free(pointer)

    return call
