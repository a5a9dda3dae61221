"""Compares C++ types of kernel parameters by a canonical spelling."""

from __future__ import annotations

import re
from functools import lru_cache

from jitlto.base.mangling import split_top_level
from jitlto.base.types import STD, find_scalar

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
