"""C++ types of kernel parameters: the table of scalar types, with NumPy's names for them; and errors of arguments.

Sizes are those of CUDA device code on a 64-bit system (CUDA C++ Programming Guide, «Built-in types»).
"""

import re
from collections.abc import Sequence

from jitlto.base.errors import ArgumentError
from jitlto.base.frozen import Frozen
from jitlto.base.text import abbreviate


class Scalar(Frozen):
    """A C++ scalar type: its canonical name, its NumPy type string without byte order (``f4``), its size in bytes."""

    name: str
    typestr: str
    size: int


class Parameter(Frozen):
    """One parameter of a kernel.

    Args:
        name: Its name.
        type: Its C++ type, e.g. ``float const*``.
        size, alignment: In bytes, from the ``.entry`` that the compiler emitted.
    """

    name: str
    type: str
    size: int
    alignment: int

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


#: The type of a parameter of which only size and alignment are known: callers pass as many bytes.
UNKNOWN_TYPE = "?"

_ALIASES: tuple[tuple[Scalar, tuple[str, ...]], ...] = (
    (Scalar("bool", "b1", 1), ()),
    (Scalar("char", "i1", 1), ("signed char", "int8_t")),
    (Scalar("unsigned char", "u1", 1), ("uint8_t",)),
    (Scalar("short", "i2", 2), ("short int", "signed short", "int16_t")),
    (Scalar("unsigned short", "u2", 2), ("unsigned short int", "uint16_t")),
    (Scalar("int", "i4", 4), ("signed", "signed int", "int32_t")),
    (Scalar("unsigned int", "u4", 4), ("unsigned", "uint32_t")),
    (Scalar("long long", "i8", 8), (
        "long", "long int", "signed long", "long long int", "signed long long", "int64_t", "ptrdiff_t", "intptr_t",
    )),
    (Scalar("unsigned long long", "u8", 8), (
        "unsigned long", "unsigned long int", "unsigned long long int", "uint64_t", "size_t", "uintptr_t",
        "cudaTextureObject_t", "cudaSurfaceObject_t", "CUtexObject", "CUsurfObject",
    )),
    (Scalar("__half", "f2", 2), ("half",)),
    (Scalar("__nv_bfloat16", "bfloat16", 2), ("nv_bfloat16",)),
    (Scalar("float", "f4", 4), ()),
    (Scalar("double", "f8", 8), ()),
    (Scalar("float2", "c8", 8), ("cuda::std::complex<float>", "cuFloatComplex", "cuComplex")),
    (Scalar("double2", "c16", 16), ("cuda::std::complex<double>", "cuDoubleComplex")),
)  # fmt: skip
_BY_NAME = {name: scalar for scalar, aliases in _ALIASES for name in (scalar.name, *aliases)}
#: The names of scalar types in C++.
TYPE_NAMES = frozenset(_BY_NAME)
_BY_TYPESTR = {scalar.typestr: scalar for scalar, _ in _ALIASES}
# Names of dtypes in NumPy, CuPy and PyTorch that are not C++ names.
_NUMPY_NAMES = {
    "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16",
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "longlong": "i8",
    "ulonglong": "u8", "bool": "b1", "bool_": "b1", "bfloat16": "bfloat16",
}  # fmt: skip
#: NumPy's name of each type string.
DTYPES = {typestr: name for name, typestr in reversed(_NUMPY_NAMES.items())}
# Types that are only named here: NumPy has no notation for them.
_SMALL_FLOATS = {
    "float8_e4m3fn": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2", "float8_e8m0fnu": "__nv_fp8_e8m0",
    "float6_e2m3fn": "__nv_fp6_e2m3", "float6_e3m2fn": "__nv_fp6_e3m2", "float4_e2m1fn": "__nv_fp4_e2m1",
    "float4_e2m1fn_x2": "__nv_fp4x2_e2m1",
}  # fmt: skip
#: The namespace that such a name may bear, as a regular expression.
STD = r"(?:::)?(?:cuda::)?std::(?!complex)"


def find_scalar(type_name: str) -> Scalar | None:
    """Return the scalar that a C++ type name means, whatever its spelling; None if it is not in the table.

    >>> find_scalar("cuda::std::int64_t").name
    'long long'
    """
    name = re.sub(STD, "", type_name) if "std::" in type_name else type_name
    return _BY_NAME.get(" ".join(word for word in name.split() if word not in ("const", "volatile")))


def cpp_name(value: object) -> str:
    """Return a parameter value as text: names, numbers and booleans as they are, NumPy dtypes by their C++ name.

    Args:
        value (object): A string, a number, a boolean, or anything that names a dtype: a NumPy dtype or scalar class, a
            PyTorch or CuPy dtype.

    Raises:
        TypeError: If ``value`` is none of these.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)  # a str itself, whatever a subclass prints
    if isinstance(value, int) or type(value) is float:
        try:
            return str(value)
        except ValueError:
            raise TypeError("invalid parameter value: an integer with too many digits") from None
    typestr = getattr(value, "str", None)
    if isinstance(typestr, str) and typestr[1:] in _BY_TYPESTR and typestr[0] != ">":
        return _BY_TYPESTR[typestr[1:]].name
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        native = value.item()  # a NumPy scalar: a number that came out of an array
        if type(native) in (bool, int, float):
            return cpp_name(native)
    name = value.__name__ if isinstance(value, type) else str(value).rpartition(".")[2]
    known = from_numpy_name(name)
    if known is not None:
        return known
    raise TypeError(f"invalid parameter value {abbreviate(value)}: expected text, a number, a boolean or a dtype")


def is_exact(value: object) -> bool:
    """Return whether equal values of this type always have one C++ name, so that a value may stand for its name.

    Not so for floats (``0.0 == -0.0``), nor for what may change or compare as it likes: arrays, tensors, subclasses.
    """
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind in (str, int, bool, type) or (library in ("numpy", "torch") and not hasattr(value, "item"))


def is_same_value(a: str, b: str) -> bool:
    """Return whether two parameter values are the same: the same text, or two names of one C++ scalar."""
    if a == b:
        return True
    left, right = (_BY_NAME.get(re.sub(STD, "", name).strip()) for name in (a, b))
    return left is not None and left is right


def from_numpy_name(name: str) -> str | None:
    """Return the C++ name of a type name of NumPy, ml_dtypes or PyTorch (``float32``), None if it is not one."""
    typestr = _NUMPY_NAMES.get(name)
    return _BY_TYPESTR[typestr].name if typestr else _SMALL_FLOATS.get(name)


def argument_error(parameter: Parameter, case: str, what: str, hint: str) -> ArgumentError:
    """Return the error of an argument that does not fit its parameter; ``case`` is the end of its code."""
    where = f"parameter {parameter.name!r} ({parameter.type})"
    return ArgumentError(what, code=f"launch-argument-{case}", where=where, hint=hint)


def type_error(parameter: Parameter, argument: object, expected: str) -> ArgumentError:
    """Return the error of an argument of a wrong type."""
    what = f"expected {expected}, got {type(argument).__name__}"
    return argument_error(parameter, "type", what, f"pass {expected}")


def count_error(kernel: str, signature: Sequence[Parameter], count: int) -> ArgumentError:
    """Return the error for a launch with ``count`` arguments, too few or too many."""
    expected = len(signature)
    what = f"expected {expected} arguments, got {count}"
    if count < expected:
        missing = signature[count]
        what = f"missing argument {missing.name!r} ({missing.type}): {what}"
    hint = f"the kernel takes ({', '.join(map(str, signature))})"
    return ArgumentError(what, code="launch-argument-count", where=kernel, hint=hint)


def range_error(parameter: Parameter, value: object, low: float, high: float) -> ArgumentError:
    """Return the error of a number that a parameter cannot hold."""
    return argument_error(parameter, "range", f"{value} is out of range", f"{parameter.type} holds {low} to {high}")
