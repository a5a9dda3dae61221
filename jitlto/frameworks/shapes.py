"""Shapes and dtypes in declarations: texts with names that are bound to an argument's own."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from jitlto.base.errors import OperatorError
from jitlto.base.types import from_numpy_name

#: Of a shape: names, ``*name`` for any number of dimensions, and numbers.
Dimensions: TypeAlias = tuple[str | int, ...]
#: The dtypes that arrays of PyTorch and JAX may have here, with the bytes of an element.
DTYPES: Mapping[str, int] = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


class DType(str):
    """The name of a dtype, such as ``float32``."""

    __slots__ = ()

    @property
    def cpp(self) -> str:
        """Its name in C++, such as ``float``."""
        return from_numpy_name(str(self)) or str(self)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return DTYPES[self]


def parse_shape(text: str, where: str) -> Dimensions:
    """Return the dimensions of a shape.

    Raises:
        OperatorError: If the text is not a shape.
    """
    dimensions = tuple(int(word) if word.isdecimal() else word for word in text.split())
    names = [d for d in dimensions if isinstance(d, str)]
    if not all(name.removeprefix("*").isidentifier() for name in names) or sum(n[0] == "*" for n in names) > 1:
        raise OperatorError(
            f"invalid shape {text!r}",
            code="operator-argument",
            where=where,
            hint="divide names and numbers by blanks, as in '*batch n 3'; one *name at most",
        )
    return dimensions


def bind_shape(pattern: Sequence[str | int], shape: Sequence[Any], bound: MutableMapping[str, Any]) -> str | None:
    """Bind the names of a pattern to the sizes of a shape.

    Args:
        pattern: As :func:`parse_shape` returns it.
        shape: The sizes: ints, or symbols of a framework that traces.
        bound: The sizes by name. The names that are not in it yet are added.

    Returns:
        What does not fit; None if the shape fits.
    """
    star = next((i for i, name in enumerate(pattern) if isinstance(name, str) and name[0] == "*"), None)
    more = len(shape) - len(pattern)
    if more if star is None else more < -1:
        least = "" if star is None else "or more "
        return f"has {len(shape)} dimensions, not {len(pattern) - (star is not None)} {least}".rstrip()
    sizes = list(shape)
    if star is not None:
        sizes[star : star + more + 1] = [tuple(sizes[star : star + more + 1])]
    for name, size in zip(pattern, sizes, strict=True):
        known = name if isinstance(name, int) else bound.setdefault(name.removeprefix("*"), size)
        if known is not size and known != size:
            return f"has {size} in its dimension {name}" + ("" if isinstance(name, int) else f", not {known}")
    return None


def shape_of(pattern: Sequence[str | int], case: object) -> tuple[Any, ...]:
    """Return the shape that a pattern stands for, of the sizes that a case has as attributes."""
    sizes: list[Any] = []
    for name in pattern:
        if isinstance(name, int):
            sizes.append(name)
        elif name[0] == "*":
            sizes.extend(getattr(case, name[1:]))
        else:
            sizes.append(getattr(case, name))
    return tuple(sizes)
