"""Names of functions and variables, demangled (Itanium C++ ABI, used by NVRTC and nvcc)."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demangle import Signature

# A mangled name refers to its own parts, and every reference can double the length of the demangled name.
_MOST_CHARACTERS = 1 << 20
_FIRST_WORD = r"(?<![\w:~])[A-Za-z_]\w*(?:::)?"  # of each qualified name
_TOOLKIT_WORD = (
    r"(?:cuda|cub|thrust|nvcuda|cooperative_groups|std)::|__\w+(?:::)?"  # what C++ reserves for implementations
    r"|void|bool|true|false|char|wchar_t|char\d+_t|short|int|long|float|double|signed|unsigned|const(?:::)?|volatile|operator"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double)[1-4](?:_\d+a)?|dim3"
)
_OPERATOR = r"operator *(?:\(\)|\[\]|->\*?|[-+*/%^&|~!=<>,]+)"


def demangle(name: str) -> str:
    """Demangle a symbol, spelled as GNU's demangler does.

    Args:
        name: A mangled name, or one that is not mangled (``extern "C"``).

    Returns:
        str: The C++ name; ``name`` itself if it is not mangled, or has too many characters when written out.
    """
    parts = _read(name)
    return parts.demangled if parts else name


@cache
def _read(name: str) -> Signature | None:
    if not name.startswith("_Z"):
        return None
    import demangle  # imported lazily: takes 40 ms, and plans do not need it

    limits = demangle.Limits(max_output=_MOST_CHARACTERS, max_input=_MOST_CHARACTERS)
    try:
        return demangle.signature(name, language="itanium", style="gnu", limits=limits)
    except demangle.DemanglingError:  # beyond the limits, too
        return None


def parameter_types(name: str) -> list[str] | None:
    """Return the parameter types in a mangled function name; None for a name without types (``extern "C"``).

    >>> parameter_types("_Z3addPKfi")
    ['float const*', 'int']
    """
    parts = _read(name)
    if parts is None or parts.parameters is None:
        return None
    # A pack is one parameter.
    return split_top_level(", ".join(filter(None, parts.parameters)))


def base_name(name: str) -> str:
    """Return the name of a function or variable without return type, namespaces, template arguments and parameters.

    >>> base_name("_ZN1a1kIfEEvPKT_")
    'k'
    """
    parts = _read(name)
    base = parts.base_name if parts else name
    operator = re.match(_OPERATOR, base)
    return operator[0] if operator else base.partition("<")[0]


def qualified_name(name: str) -> str:
    """Return the name of a function with namespaces and template arguments, but without return type and parameters.

    >>> qualified_name("_ZN1a1kIfEEvPKT_")
    'a::k<float>'
    """
    parts = _read(name)
    return parts.qualified_name if parts else name


@lru_cache(maxsize=1 << 16)
def is_toolkit_name(name: str) -> bool:
    """Return whether only the toolkit's headers may define a function or variable: no type of others is in its name.

    >>> is_toolkit_name("_ZN4cuda3std3absEf"), is_toolkit_name("_ZN4cuda3std4swapI4mineEEvRT_S4_")
    (True, False)
    """
    words = re.findall(_FIRST_WORD, demangle(name))
    return bool(words) and all(re.fullmatch(_TOOLKIT_WORD, word) for word in words)


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
