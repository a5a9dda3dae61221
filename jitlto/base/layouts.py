"""C++ types of kernel parameters: their one spelling; and the layouts of those that are taken by value.

Device code lays types out as the host compiler does (CUDA C++ Programming Guide, «Classes»); the built-in vector types
have alignments of their own (there, «Built-in Vector Types»).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest

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


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a type in memory.

    Args:
        type: Its name in C++; in messages only, where the layout is that of a Python type.
        size, alignment: In bytes.
        kind: Of a scalar NumPy's type string without byte order, such as ``f4``, or ``bfloat16``; ``pointer``,
            ``array``, ``structure``, ``vector`` (a structure whose fields have no names that matter), or ``bytes`` if
            nothing is known but size and alignment.
        element: Of an array the layout of an element.
        fields: Of a structure or vector, in order.
    """

    type: str
    size: int
    alignment: int
    kind: str
    element: Layout | None = None
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure; its offset is in bytes."""

    name: str
    offset: int
    layout: Layout


def array(element: Layout, count: int) -> Layout:
    """Return the layout of an array."""
    return Layout(f"{element.type}[{count}]", element.size * count, element.alignment, "array", element)


def structure(
    type_name: str, members: Iterable[tuple[str, Layout]], alignment: int = 1, kind: str = "structure"
) -> Layout:
    """Return the layout that a compiler gives a structure with some members, aligned to ``alignment`` or more."""
    fields, end = [], 0
    for name, layout in members:
        offset = -(-end // layout.alignment) * layout.alignment
        fields.append(Field(name, offset, layout))
        end = offset + layout.size
        alignment = max(alignment, layout.alignment)
    # An object of a structure without members has a byte, too.
    size = -(-max(end, 1) // alignment) * alignment
    return Layout(type_name, size, alignment, kind, None, tuple(fields))


_EXTENTS = re.compile(r"(?:\s*\[\s*\d{1,9}\s*\])+\s*\Z")


def parse_type(type_name: str, structures: Mapping[str, Layout] | None = None) -> Layout | None:
    """Return the layout of a C++ type that is known: a scalar, a pointer, a built-in vector type, an array of these.

    Args:
        type_name: Its name; with extents for an array, ``float[3]``.
        structures: The layouts of further types by canonical spelling.
    """
    match = _EXTENTS.search(type_name)
    base, extents = (type_name[: match.start()], match[0]) if match else (type_name, "")
    counts = [int(extent) for extent in re.findall(r"\d+", extents)]
    if base.rstrip().removesuffix("const").rstrip().endswith(("*", "&")):
        layout: Layout | None = Layout(base.strip(), 8, 8, "pointer")
    else:
        words = re.sub(STD, "", base).split()
        plain = " ".join(word for word in words if word not in ("const", "volatile", "struct"))
        layout = (structures or {}).get(canonical_spelling(base)) or _parse_single(plain)
    if layout is None or 0 in counts:
        return None
    for count in reversed(counts):
        layout = array(layout, count)
    return layout


_UNSUPPORTED = re.compile(r"\([*&]|::\*|^(?:long double|wchar_t|char(?:8|16|32)_t|.*nullptr.*|_Float16|__float128)$")


def is_supported(type_name: str) -> bool:
    """Return whether launchers take values of a type: not if Python has none of them, or none that mean something."""
    text = type_name
    while "<" in text and (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter  # without template arguments
    return not _UNSUPPORTED.search(text)


_INTEGERS_128 = {
    "__int128": "i16", "signed __int128": "i16", "__int128_t": "i16", "unsigned __int128": "u16", "__uint128_t": "u16",
}  # fmt: skip
_ELEMENTS = {
    "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long",
    "longlong": "long long", "ulonglong": "unsigned long long",
    **{name: name for name in ("char", "short", "int", "long", "float", "double", "__half", "half", "__nv_bfloat16")},
    "nv_bfloat16": "__nv_bfloat16",
}  # fmt: skip


@cache
def _parse_single(name: str) -> Layout | None:
    known = find_scalar(name)
    if known is not None and known.typestr[0] != "c":
        return Layout(name, known.size, known.size, known.typestr)
    if name in _INTEGERS_128:
        return Layout(name, 16, 16, _INTEGERS_128[name])
    name = known.name if known is not None else name  # float2 for complex numbers
    match = re.fullmatch(r"(\w*?[a-z]|(?:__)?nv_bfloat16)([1-4])(?:_(16|32)a)?", "uint3" if name == "dim3" else name)
    if match is None or match[1] not in _ELEMENTS:
        return None
    count, element = int(match[2]), _parse_single(_ELEMENTS[match[1]])
    if element is None:
        return None
    alignment = int(match[3] or 0) or (min(16, element.size * count) if count in (2, 4) else 1)
    return structure(name, [(member, element) for member in "xyzw"[:count]], alignment, "vector")


def parse_fields(
    type_name: str, texts: Iterable[str], structures: Mapping[str, Layout] | None = None, alignment: int = 1
) -> Layout:
    """Return the layout of a structure whose fields are given as in C++: ``float scale``, ``int sizes[3]``.

    Raises:
        ValueError: If one is no declaration of a field, or its type is not known.
    """
    members: dict[str, Layout] = {}
    for text in texts:
        match = re.fullmatch(r"\s*(.+?[\s*&])\s*([A-Za-z_]\w*)\s*((?:\[\s*\d+\s*\]\s*)*);?\s*", text, re.S)
        if match is None:
            raise ValueError(f'invalid field {text!r}: expected a type and a name, such as "float scale"')
        layout = parse_type(match[1] + match[3], structures)
        if layout is None:
            raise ValueError(f"the layout of {(match[1] + match[3]).strip()!r} is not known, in field {text!r}")
        if match[2] in members:
            raise ValueError(f"two fields have the name {match[2]!r}")
        members[match[2]] = layout
    return structure(type_name, members.items(), alignment)


_MOST_DEFINITIONS = 100  # what handles layouts is recursive
_DEFINITION = re.compile(r"struct (?:alignas\((\d{1,9})\) )?([^{};]+) \{ ([^{}]*)\};\s*")


def format_definition(type_name: str, fields: Iterable[str], alignment: int = 1) -> str:
    """Return the definition of a structure in C++, for :func:`parse_definitions`."""
    head = f"alignas({alignment}) {type_name}" if alignment > 1 else type_name
    return f"struct {head} {{ {''.join(f'{field}; ' for field in fields)}}};"


def parse_definitions(text: str) -> Layout:
    """Return the layout of the last structure that a text defines.

    Raises:
        ValueError: If the text is no sequence of definitions, or a type in it is not known.
    """
    known: dict[str, Layout] = {}
    layout, end = None, 0
    while match := _DEFINITION.match(text, end):
        end = match.end()
        fields = [field for field in match[3].split(";") if field.strip()]
        layout = parse_fields(match[2], fields, known, int(match[1] or 1))
        known[canonical_spelling(match[2])] = layout
    if len(known) > _MOST_DEFINITIONS:
        raise ValueError(f"more than {_MOST_DEFINITIONS} structures in one another")
    if layout is None or end != len(text):
        raise ValueError(f"invalid definition of a structure: {text[end : end + 60]!r}")
    return layout


def _leaves(layout: Layout, path: str = "", offset: int = 0) -> Iterator[Field]:
    """Return the scalars of a layout; their names are paths, without the indices of arrays."""
    if layout.element is not None:
        size = layout.element.size
        for number in range(layout.size // size if size else 0):
            yield from _leaves(layout.element, path, offset + number * size)
    elif layout.fields or layout.kind == "structure":
        for field in layout.fields:
            name = "?" if layout.kind == "vector" else field.name
            yield from _leaves(field.layout, f"{path}.{name}" if path else name, offset + field.offset)
    elif layout.size:
        yield Field(path, offset, layout)


def find_difference(expected: Layout, actual: Layout) -> str | None:
    """Return how a layout differs from the expected one, None if it does not.

    A pointer may be an integer of 8 bytes, a boolean or character any byte, a ``__half`` or ``__nv_bfloat16`` its bits
    as an unsigned integer, and anything may be in bytes of which nothing else is known.
    """
    if expected.size != actual.size:
        return f"{actual.type} has {actual.size} bytes, {expected.type} has {expected.size}"
    leaves = list(_leaves(actual))
    found = [leaf for leaf in leaves if leaf.layout.kind != "bytes"]
    # What only has a size says nothing of what it covers: fields, as a union does, or padding.
    opaque = [(leaf.offset, leaf.offset + leaf.layout.size) for leaf in leaves if leaf.layout.kind == "bytes"]
    wanted = [
        leaf
        for leaf in _leaves(expected)
        if not any(begin <= leaf.offset and leaf.offset + leaf.layout.size <= end for begin, end in opaque)
    ]
    for want, have in zip_longest(wanted, found):
        if want is None or have is None or not _is_same(want, have):
            return f"{actual.type} has {_described(have)}, {expected.type} has {_described(want)}"
    return None


def _described(leaf: Field | None) -> str:
    return "nothing more" if leaf is None else f"{leaf.layout.type} {leaf.name} at offset {leaf.offset}"


def _is_same(expected: Field, actual: Field) -> bool:
    a, b, is_named = expected.layout.kind, actual.layout.kind, "?" not in expected.name + actual.name
    if expected.offset != actual.offset or (is_named and expected.name != actual.name):
        return False
    if a == b or expected.layout.size != actual.layout.size:
        return a == b
    if "pointer" in (a, b):
        return {a, b} <= {"pointer", "i8", "u8"}
    if expected.layout.size == 1:
        return a == "b1" or expected.layout.type.split()[-1] == "char"
    return a in ("f2", "bfloat16") and b == "u2"
