"""Random structures, as C++ and as layouts: scalars, pointers, vector types, arrays, and structures in structures."""

from __future__ import annotations

import ctypes
import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jitlto.base.layouts import Layout, parse_fields

SCALARS = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long long",
    "unsigned long long", "float", "double",
)  # fmt: skip
OTHERS = ("float*", "void const*", "float2", "float3", "float4", "double2", "uchar4", "short3", "int4", "ulonglong2")


@dataclass(frozen=True)
class Declared:
    """A structure: its name, its fields and extra alignment as in C++, and those of structures in it before it."""

    name: str
    fields: tuple[str, ...]
    alignment: int
    inner: tuple[Declared, ...]

    def cpp(self) -> str:
        """Its definition, after those of the structures in it."""
        head = f"struct alignas({self.alignment}) {self.name}" if self.alignment > 1 else f"struct {self.name}"
        return "".join(each.cpp() for each in self.inner) + f"{head} {{ {''.join(f'{f}; ' for f in self.fields)}}};\n"

    def layout(self) -> Layout:
        """Its layout by our rules."""
        known = {each.name: each.layout() for each in self.inner}
        return parse_fields(self.name, self.fields, known, self.alignment)


@st.composite
def structures(draw: st.DrawFn, name: str = "s", depth: int = 2, types: tuple[str, ...] = SCALARS + OTHERS) -> Declared:
    """Structures of one to six fields, nested to a depth."""
    inner, fields = [], []
    for number in range(draw(st.integers(1, 6))):
        if depth and draw(st.integers(0, 3)) == 0:
            inner.append(draw(structures(f"{name}_{number}", depth - 1, types)))
            type_ = inner[-1].name
        else:
            type_ = draw(st.sampled_from(types))
        extents = "".join(f"[{extent}]" for extent in draw(st.lists(st.integers(1, 3), max_size=2)))
        fields.append(f"{type_} f{number}{extents}")
    # C++ does not let a structure be aligned to less than its fields.
    plain = Declared(name, tuple(fields), 1, tuple(inner))
    alignment = max(draw(st.sampled_from([1, 1, 1, 16, 32])), plain.layout().alignment)
    return Declared(name, plain.fields, alignment, plain.inner)


# --- the same in Python ---

CTYPES = {
    "bool": ctypes.c_bool, "char": ctypes.c_char, "short": ctypes.c_short, "unsigned short": ctypes.c_ushort,
    "int": ctypes.c_int, "unsigned int": ctypes.c_uint, "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong, "float": ctypes.c_float, "double": ctypes.c_double,
    "float*": ctypes.c_void_p,
}  # fmt: skip
DTYPES = {
    "bool": "?", "char": "i1", "short": "i2", "unsigned short": "u2", "int": "i4", "unsigned int": "u4",
    "long long": "i8", "unsigned long long": "u8", "float": "f4", "double": "f8", "float*": "u8",
}  # fmt: skip


def parts(declared: Declared) -> list[tuple[str, str, list[int]]]:
    """Return name, type and extents of each field."""
    found = []
    for text in declared.fields:
        type_, _, rest = text.rpartition(" ")
        name, *extents = rest.replace("]", "").split("[")
        found.append((name, type_, list(map(int, extents))))
    return found


def as_ctypes(declared: Declared) -> Any:
    """Return its type for ctypes."""
    inner = {each.name: as_ctypes(each) for each in declared.inner}
    fields = []
    for name, type_, extents in parts(declared):
        made = inner.get(type_) or CTYPES[type_]
        for extent in reversed(extents):
            made *= extent
        fields.append((name, made))
    return type(declared.name, (ctypes.Structure,), {"_fields_": fields})


def as_dtype(declared: Declared) -> np.dtype[Any]:
    """Return its type for NumPy."""
    inner = {each.name: as_dtype(each) for each in declared.inner}
    fields = [(name, inner.get(type_, DTYPES.get(type_)), tuple(extents)) for name, type_, extents in parts(declared)]
    return np.dtype(fields, align=True)  # type: ignore[arg-type]


def without_alignments(declared: Declared) -> Declared:
    """Return the structure without alignments, which Python has not."""
    return dataclasses.replace(declared, alignment=1, inner=tuple(map(without_alignments, declared.inner)))


def random_row(declared: Declared, seed: int, address: int) -> np.ndarray[Any, Any]:
    """Return random values of its fields: finite floats, an address as every pointer, and zeros as padding."""
    row = np.zeros((), as_dtype(declared))
    random = np.random.default_rng(seed)

    def fill(part: Declared, values: np.ndarray[Any, Any]) -> None:
        inner = {each.name: each for each in part.inner}
        for name, type_, _ in parts(part):
            field = values[name]
            if type_ in inner:
                fill(inner[type_], field)
            elif type_.endswith("*"):
                field[...] = address
            else:
                drawn = np.frombuffer(random.bytes(field.size * field.itemsize), np.uint8).view(_bits(field.dtype))
                drawn = np.where(np.isfinite(drawn), drawn, 0) if field.dtype.kind == "f" else drawn
                field[...] = drawn.reshape(field.shape) & 1 if field.dtype.kind == "b" else drawn.reshape(field.shape)

    fill(declared, row)
    return row


def _bits(dtype: np.dtype[Any]) -> Any:
    return np.uint8 if dtype.kind == "b" else dtype


def is_field(declared: Declared) -> np.ndarray[Any, Any]:
    """Return which bytes belong to a field: the others are padding."""
    marks = np.zeros((), as_dtype(declared))

    def mark(part: Declared, values: np.ndarray[Any, Any]) -> None:
        inner = {each.name: each for each in part.inner}
        for name, type_, _ in parts(part):
            if type_ in inner:
                mark(inner[type_], values[name])
            else:
                values[name][...] = np.frombuffer(b"\xff" * values[name].itemsize, values[name].dtype)[0]

    mark(declared, marks)
    return np.frombuffer(marks.tobytes(), np.uint8) != 0
