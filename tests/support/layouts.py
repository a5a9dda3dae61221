"""Random structures, as C++ and as layouts: scalars, pointers, vector types, arrays, and structures in structures."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from jitlto.model.layouts import Layout, parse_fields

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
