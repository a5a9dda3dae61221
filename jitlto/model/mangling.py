"""Demangling of C++ names (Itanium C++ ABI, used by NVRTC and nvcc)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

# A mangled name may refer to its own parts; every such reference can double the length of the demangled name.
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")
_FEW_REFERENCES = 24
_SECONDS, _MEMORY = 1, 256 << 20  # limits of the process that demangles a name with more
_FIRST_WORD = re.compile(r"(?<![\w:~])[A-Za-z_]\w*(?:::)?")  # of each qualified name
_TOOLKIT_WORD = re.compile(
    r"(?:cuda|cub|thrust|nvcuda|cooperative_groups|std)::|__\w+(?:::)?"  # what C++ reserves for implementations
    r"|void|bool|char|wchar_t|char\d+_t|short|int|long|float|double|signed|unsigned|const(?:::)?|volatile|operator"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double)[1-4](?:_\d+a)?|dim3"
)
_OPERATOR = re.compile(r"\boperator *(?:\(\)|\[\]|[-+*/%^&|~!=<>,]+)")


@cache
def demangle(name: str) -> str:
    """Demangle a symbol with the C++ runtime's ``__cxa_demangle``.

    Args:
        name: A mangled name, or one that is not mangled (``extern "C"``).

    Returns:
        str: The C++ name; ``name`` itself if it is not mangled, no C++ runtime library can be loaded, or writing it out
            takes seconds or hundreds of megabytes.
    """
    if not name.startswith("_Z"):
        return name
    if len(_REFERENCE.findall(name)) > _FEW_REFERENCES:
        return _demangle_in_subprocess(name) or name
    function = _cxa_demangle()
    return (function(name) if function else None) or name


def _demangle_in_subprocess(name: str) -> str | None:
    """Demangle in a process with limits of time and memory; return None if it exceeds them."""
    import subprocess
    import sys

    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__],
            input=name.encode("utf-8", "replace"),
            capture_output=True,
            timeout=10 * _SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _main() -> None:
    """Demangle a name from standard input within the limits: the subprocess's side."""
    import resource
    import sys

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    function = _cxa_demangle()
    name = sys.stdin.buffer.read().decode()
    sys.stdout.buffer.write(((function(name) if function else None) or "").encode())


def parameter_types(name: str) -> list[str] | None:
    """Return the parameter types in a mangled function name; None for a name without types (``extern "C"``).

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
    """Return the name of a function or variable without return type, namespaces, template arguments and parameters.

    >>> base_name("_ZN1a1kIfEEvPKT_")
    'k'
    """
    text = demangle(name).replace("(anonymous namespace)", "{anonymous}")
    operator = ""
    if match := _OPERATOR.search(text):
        # Brackets in an operator's name do not nest: put a word in its place while the others are removed.
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


def qualified_name(name: str) -> str:
    """Return the name of a function with namespaces and template arguments, but without return type and parameters.

    >>> qualified_name("_ZN1a1kIfEEvPKT_")
    'a::k<float>'
    """
    text = demangle(name).replace("(anonymous namespace)", "{anonymous}")
    if _OPERATOR.search(text):
        return text
    begin = depth = 0
    for position, character in enumerate(text):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0 and character == " ":
            begin = position + 1
        elif depth == 0 and character == "(":
            return text[begin:position]
    return text[begin:]


def is_toolkit_name(name: str) -> bool:
    """Return whether only the toolkit's headers may define a function or variable: no type of others is in its name.

    >>> is_toolkit_name("_ZN4cuda3std3absEf"), is_toolkit_name("_ZN4cuda3std4swapI4mineEEvRT_S4_")
    (True, False)
    """
    words = _FIRST_WORD.findall(demangle(name))
    return bool(words) and all(map(_TOOLKIT_WORD.fullmatch, words))


def split_top_level(text: str) -> list[str]:
    """Split at the commas outside all brackets and strip the parts; an empty text has none."""
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
    import ctypes  # imported lazily: takes 3 ms, and plans do not need it

    for library in _runtime_libraries():
        with suppress(OSError, AttributeError):
            return _binding(ctypes.CDLL(library).__cxa_demangle, ctypes.CDLL(None).free)
    return None


def _runtime_libraries() -> Iterator[str]:
    yield from ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
    from ctypes.util import find_library  # the last resort, because it runs programs

    if library := find_library("c++"):
        yield library


def _binding(function: Any, free: Any) -> Callable[[str], str | None]:
    import ctypes

    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.argtypes = [ctypes.c_void_p]

    def call(name: str) -> str | None:
        status = ctypes.c_int()
        pointer = function(name.encode(), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            # Wrong lengths in a name may split a character.
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            free(pointer)

    return call


if __name__ == "__main__":
    _main()
