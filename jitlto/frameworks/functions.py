"""Functions that are fused into a kernel: element-wise operations of PyTorch, printed in CUDA C++.

What an operation computes stands in ``fused.cuh``. Numbers of 16 bits are computed in float, as Inductor does, and an
operator's result is rounded to its dtype before a function behind it has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeAlias

Number: TypeAlias = bool | int | float | complex

#: The dtypes of elements in memory, with their types there and in computations.
STORED: Mapping[str, tuple[str, str]] = {
    "bool": ("bool", "bool"), "int8": ("signed char", "int"), "uint8": ("unsigned char", "int"),
    "int16": ("short", "int"), "int32": ("int", "int"), "int64": ("long long", "long long"),
    "float16": ("half", "float"), "bfloat16": ("bfloat16", "float"), "float32": ("float", "float"),
    "float64": ("double", "double"), "complex64": ("float2", "float2"), "complex128": ("double2", "double2"),
}  # fmt: skip
#: Those that a function can compute; the others it can read.
COMPUTED = tuple(name for name in STORED if name not in ("int8", "uint8", "int16"))
_KINDS = {"bool": "b", "int": "i", "long long": "i", "float": "f", "double": "f", "float2": "c", "double2": "c"}
_TESTS: tuple[str, ...] = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf")
_TESTS += ("logical_and", "logical_or", "logical_xor", "logical_not")
_PLACE = "unsigned long long row, unsigned long long column, unsigned long long columns"
# Those that C++ has.
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "div_trunc": "/", "bitwise_and": "&", "bitwise_or": "|",
          "bitwise_xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "logical_and": "&&",
          "logical_or": "||", "logical_xor": "!="}  # fmt: skip
_MATH = ("sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "atan", "tanh",
         "erf", "floor", "ceil", "trunc", "pow")  # fmt: skip
_SCOPE = dict.fromkeys(_MATH, "::")
#: Of each operation how many operands it has, and of which kinds: bool, int, float, complex.
OPERATIONS: Mapping[str, tuple[int, str]] = {
    **dict.fromkeys(("add", "sub", "mul"), (2, "ifc")),
    **dict.fromkeys(("maximum", "minimum", "remainder", "fmod"), (2, "if")),
    **dict.fromkeys(("div_trunc", "div_floor"), (2, "i")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (2, "bi")),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), (2, "bif")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (2, "bif")),
    **dict.fromkeys(("abs", "sign", "relu"), (1, "if")),
    **dict.fromkeys((*_MATH, "reciprocal", "sigmoid", "round", "isnan", "isinf"), (1, "f")),
    "div": (2, "f"),
    "pow": (2, "f"),
    "neg": (1, "ifc"),
    "bitwise_not": (1, "bi"),
    "logical_not": (1, "bif"),
    "where": (3, "bifc"),
}  # fmt: skip


class Value(NamedTuple):
    """A value within a function.

    Args:
        text: The expression of C++.
        dtype: The dtype as which PyTorch has it.
        has_dimensions: False for what PyTorch takes for a number: it decides about a dtype only by its category.
    """

    text: str
    dtype: str
    has_dimensions: bool = True

    @property
    def type(self) -> str:
        """The type in which it is computed."""
        return STORED[self.dtype][1]


class Input(NamedTuple):
    """An array that a function reads.

    Args:
        name: Its name as an argument.
        dtype: Its dtype.
        access: Where it is read: at each ``element``, ``row`` or ``column``, or ``one`` element for all; or
            ``gathered``, the columns of a row whose number the ``row`` of the input before it is.
    """

    name: str
    dtype: str
    access: str

    @property
    def is_vector(self) -> bool:
        """Whether V neighbours are read, and not one element for all of them."""
        return self.access in ("element", "column", "gathered")


_PLACES = {"element": "row * columns + column", "row": "row", "column": "column", "one": "0"}


@dataclass(frozen=True)
class Function:
    """A printed function.

    Args:
        text: CUDA C++, which defines ``fused::load`` or ``fused::store``.
        inputs: The arrays that it reads.
        numbers: The names of the numbers that follow them.
        dtype: The dtype of what it returns.
    """

    text: str
    inputs: tuple[Input, ...]
    numbers: tuple[str, ...]
    dtype: str


class UnsupportedError(Exception):
    """An operation or a dtype is none that can be printed; the message says which."""


@dataclass
class Printer:
    """Prints one function, an operation a line."""

    inputs: list[Input] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def read(self, array: Input, *, has_dimensions: bool = True) -> Value:
        """Have an element of a further input read, or V neighbours.

        Raises:
            UnsupportedError: If its dtype cannot be read.
        """
        if array.dtype not in STORED:
            raise UnsupportedError(f"dtype {array.dtype}")
        self.inputs.append(array)
        return Value(f"x{len(self.inputs) - 1}[{'i' if array.is_vector else 0}]", array.dtype, has_dimensions)

    def number(self, name: str) -> Value:
        """Return a number that each call is given."""
        self.numbers.append(name)
        return Value(f"number{len(self.numbers) - 1}", "float32", has_dimensions=False)

    def apply(self, name: str, operands: Sequence[Value | Number], dtype: str | None = None) -> Value:
        """Print an operation.

        Args:
            name: One of :data:`OPERATIONS`, ``to`` for a conversion, or ``gelu`` or ``silu``.
            operands: Values, and numbers of Python.
            dtype: The dtype of the result, where the caller knows it.

        Raises:
            UnsupportedError: If the operation is not known, or not for such operands.
        """
        values = [each if isinstance(each, Value) else constant(each) for each in operands]
        if name == "to":
            return self._line(values[0], dtype or values[0].dtype)
        if name in ("gelu", "silu") and len(values) != 1:
            raise UnsupportedError(f"{name} of {len(values)} operands")
        if name == "gelu":
            erf = self.apply("erf", [self.apply("mul", [values[0], 0.7071067811865476])])
            return self.apply("mul", [self.apply("mul", [values[0], 0.5]), self.apply("add", [erf, 1])])
        if name == "silu":
            return self.apply(
                "div", [values[0], self.apply("add", [self.apply("exp", [self.apply("neg", values)]), 1])]
            )
        if name == "pow" and not isinstance(operands[1], Value) and operands[1] in (2, 0.5):  # as Inductor computes it
            return self.apply(*(("mul", values[:1] * 2) if operands[1] == 2 else ("sqrt", values[:1])), dtype)
        count, kinds = OPERATIONS.get(name, (-1, ""))
        if count != len(values):
            raise UnsupportedError(f"operation {name}" + (f" of {len(values)} operands" if count > 0 else ""))
        inner = promote(values[1:] if name == "where" else values)
        is_float = kinds == "f" and _kind(inner) in "bi" and name not in ("pow", *_TESTS)  # pow has integers of its own
        is_small = any(value.dtype not in COMPUTED for value in values)  # they wrap
        if is_small or not (is_float or _kind(inner) in kinds):
            raise UnsupportedError(f"{name} of {' and '.join(dict.fromkeys(value.dtype for value in values))}")
        result = "bool" if name in _TESTS else dtype or ("float32" if is_float else inner)
        inner = inner if name in _TESTS else result
        if result not in COMPUTED or _kind(inner) not in kinds:
            raise UnsupportedError(f"{name} of {inner}")
        types = ["bool" if name.startswith("logical") else STORED[inner][1]] * count
        types[0] = "bool" if name == "where" else types[0]
        given = [_converted(value, type_) for value, type_ in zip(values, types, strict=True)]
        text = f"{_SCOPE.get(name, 'fused::')}{name}({', '.join(given)})"
        return self._line(Value(f" {_INFIX[name]} ".join(given) if name in _INFIX else text, result), result)

    def _line(self, value: Value, dtype: str) -> Value:
        if dtype not in COMPUTED:
            raise UnsupportedError(f"a value of {dtype}")
        name, type_ = f"t{len(self.lines)}", STORED[dtype][1]
        self.lines.append(f"const {type_} {name} = {_converted(value, type_)};")
        return Value(name, dtype, value.has_dimensions)

    def store(self, result: Value, value: str) -> Function:
        """Return ``fused::store``, which writes what was printed of ``v``, an element of the dtype ``value``."""
        stored, computed = STORED[value]
        before = f"const {computed} v = fused::rounded<{_qualified(stored)}>(value[i]);"
        after = f"fused::write<{_qualified(STORED[result.dtype][0])}>(output, row * columns + column, result);"
        given = f"const {computed} (&value)[V]"
        return self._print(f"store(void* output, {_PLACE}, {given}, void* info)", [before], result, [after])

    def load(self, result: Value) -> Function:
        """Return ``fused::load``, which gives what was printed, not rounded to 16 bits."""
        after = "for (int i = 0; i < V; ++i) value[i] = result[i];"
        head = f"load({_PLACE}, {result.type} (&value)[V], void* info)"
        return self._print(head, [], result, ["#pragma unroll", after])

    def _print(self, head: str, before: Sequence[str], result: Value, after: Sequence[str]) -> Function:
        text = []
        for number, each in enumerate(self.inputs):
            stored, computed = STORED[each.dtype]
            base = f"fused::address(info, {number})" if len(self.inputs) + len(self.numbers) > 1 else "info"
            text.append(f"{computed} x{number}[{'V' if each.is_vector else 1}];")
            if each.access == "gathered":
                rows = f"number{self.numbers.index(f'{each.name}_rows')}"
                how = f"gather<{_qualified(stored)}>({base}, x{number - 1}[0], {rows}, column, columns, x{number});"
            else:
                how = f"read<{_qualified(stored)}>({base}, {_PLACES[each.access]}, x{number});"
            text.append(f"fused::{how}")
        numbers = range(len(self.numbers))
        text[:0] = [f"const double number{n} = fused::number(info, {len(self.inputs) + n});" for n in numbers]
        computed_lines = [*before, *self.lines, f"result[i] = {_converted(result, result.type)};"]
        text += [
            f"{result.type} result[V];",
            "#pragma unroll",
            "for (int i = 0; i < V; ++i) {",
            *computed_lines,
            "}",
            *after,
        ]
        whole = ["template <int V>", f"__device__ __forceinline__ void {head} {{", *text, "}"]
        lines = "\n".join(["namespace fused {", *whole, "}", ""])
        return Function(lines, tuple(self.inputs), tuple(self.numbers), result.dtype)


def promote(values: Sequence[Value]) -> str:
    """Return the dtype in which PyTorch computes with some values: numbers decide only if their category is higher."""
    order = list(STORED)
    highest = max("bifc".index(_kind(value.dtype)) for value in values)
    top = [value for value in values if "bifc".index(_kind(value.dtype)) == highest]
    found = {value.dtype for value in top if value.has_dimensions} or {value.dtype for value in top}
    if found == {"complex64"} and any(value.dtype == "float64" and value.has_dimensions for value in values):
        return "complex128"
    return "float32" if found == {"float16", "bfloat16"} else max(found, key=order.index)


def constant(number: Number) -> Value:
    """Return a number of Python as a value: printed exactly, of the dtype that PyTorch takes for it."""
    if isinstance(number, bool):
        return Value(str(number).lower(), "bool", has_dimensions=False)
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise UnsupportedError(f"the integer {number}")
        text = f"{number}LL" if number > -(2**63) else "(-9223372036854775807LL - 1)"
        return Value(text, "int64", has_dimensions=False)
    if isinstance(number, complex):
        return Value(f"double2{{{_real(number.real)}, {_real(number.imag)}}}", "complex64", has_dimensions=False)
    return Value(_real(number), "float32", has_dimensions=False)


def filled(number: Number, dtype: str, *, has_dimensions: bool) -> Value:
    """Return the elements of an array that holds one number.

    Raises:
        UnsupportedError: If none can be printed of the dtype.
    """
    if dtype not in COMPUTED:
        raise UnsupportedError(f"a value of {dtype}")
    stored, computed = STORED[dtype]
    text = f"fused::rounded<{_qualified(stored)}>(fused::to<{computed}>({constant(number).text}))"
    return Value(text, dtype, has_dimensions)


def _real(number: float) -> str:
    if number != number:
        return "__longlong_as_double(0x7ff8000000000000LL)"
    if number in (float("inf"), float("-inf")):
        return f"({'-' if number < 0 else ''}__longlong_as_double(0x7ff0000000000000LL))"
    return f"({number!r})"


def _kind(dtype: str) -> str:
    return _KINDS[STORED[dtype][1]] if dtype in STORED else "?"


def _converted(value: Value, type_: str) -> str:
    return value.text if value.type == type_ and value.has_dimensions else f"fused::to<{type_}>({value.text})"


def _qualified(stored: str) -> str:
    return f"fused::{stored}" if stored in ("half", "bfloat16") else stored


@cache
def prelude() -> str:
    """Return the text that stands before each function."""
    return (files("jitlto.frameworks") / "fused.cuh").read_text("utf-8")
