"""C++ types of kernel parameters: their one spelling, and which of them are built in."""

import re
from functools import cache, lru_cache

from jitlto.base.mangling import split_top_level
from jitlto.base.types import STD, Scalar, find_scalar

# Keywords that do not belong to a parameter's type.
_NO_PART = r"\b(?:__restrict__|__restrict|struct|class|enum|volatile)\b"


def is_same_type(a: str, b: str) -> bool:
    """Return whether two C++ type names name one type in a kernel's signature, by the table of scalars or by spelling.

    Qualifiers of the parameter itself, ``long`` beside ``long long`` (both 8 bytes), and namespaces that one of the
    two leaves out, do not count.
    """
    left, right = canonical_spelling(a), canonical_spelling(b)
    # A declaration may leave out namespaces that the compiler spells out.
    return left == right or left.endswith(f"::{right}") or right.endswith(f"::{left}")


@lru_cache(maxsize=4096)  # the kernels of a build share their types
def canonical_spelling(type_name: str) -> str:
    """Return a C++ parameter type in canonical spelling: ``const`` behind what it qualifies, canonical scalar names."""
    try:
        return _spelling(type_name, parameter=True)
    except RecursionError:  # of hundreds of types in one another
        return "".join(type_name.split())


def _spelling(type_name: str, *, parameter: bool) -> str:
    text = re.sub(_NO_PART, " ", re.sub(STD, "", type_name))
    match = re.fullmatch(r"(.*?)((?:[*&\s]|\bconst\b)*)", text, re.S)
    base, tail = match.groups() if match else (text, "")
    first, *levels = re.split(r"(?=[*&])", tail)
    name, bracket, inner = base.strip().partition("<")
    words = name.split()
    constant = "const" in words or "const" in first
    plain = " ".join(word for word in words if word != "const")
    if bracket and inner.endswith(">"):
        arguments = (_spelling(part, parameter=False) for part in split_top_level(inner[:-1]))
        plain += f"<{','.join(arguments)}>"
    else:
        plain += bracket + inner
    known = find_scalar(plain)
    result = (known.name if known else plain) + (" const" if constant and (levels or not parameter) else "")
    for position, level in enumerate(levels):
        # The last level is the parameter itself, whose own const is no part of its type.
        own = parameter and position == len(levels) - 1
        result += level[0] + (" const" if "const" in level and not own else "")
    return result


_UNSUPPORTED = re.compile(r"\([*&]|::\*|^(?:long double|wchar_t|char(?:8|16|32)_t|.*nullptr.*|_Float16|__float128)$")


def is_supported(type_name: str) -> bool:
    """Return whether launchers take values of a type: not if Python has none of them, or none that mean something."""
    text = type_name
    while "<" in text and (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter  # without template arguments
    return not _UNSUPPORTED.search(text)


#: The integers of 128 bits, and whether they have a sign.
INTEGERS_128 = {
    "__int128": True, "signed __int128": True, "__int128_t": True, "unsigned __int128": False, "__uint128_t": False,
}  # fmt: skip
_ELEMENTS = {
    "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long",
    "longlong": "long long", "ulonglong": "unsigned long long",
    **{name: name for name in ("char", "short", "int", "long", "float", "double", "__half", "half", "__nv_bfloat16")},
    "nv_bfloat16": "__nv_bfloat16",
}  # fmt: skip


def is_built_in(type_name: str) -> bool:
    """Return whether a type is C++'s or CUDA's own: a scalar, a pointer or reference, a vector."""
    text = type_name.strip().removesuffix("const").rstrip()
    return text.endswith(("*", "&")) or text in INTEGERS_128 or bool(find_scalar(text) or find_vector(text))


@cache
def find_vector(type_name: str) -> tuple[Scalar, int] | None:
    """Return the type of the elements of a built-in vector type and their number; None for another type.

    >>> find_vector("uchar4")[0].name, find_vector("dim3")[1]
    ('unsigned char', 3)
    """
    known = find_scalar(type_name)  # float2 for complex numbers
    words = (known.name if known else re.sub(STD, "", type_name)).split()
    name = " ".join(word for word in words if word not in ("const", "volatile", "struct"))
    match = re.fullmatch(r"(\w*?[a-z]|(?:__)?nv_bfloat16)([1-4])(?:_(?:16|32)a)?", "uint3" if name == "dim3" else name)
    element = find_scalar(_ELEMENTS[match[1]]) if match and match[1] in _ELEMENTS else None
    return (element, int(match[2])) if match and element else None
