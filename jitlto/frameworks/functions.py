"""Functions that are fused into a kernel: element-wise operations of PyTorch, printed in CUDA C++.

Numbers of 16 bits are computed in float, as Inductor does, and an operator's result is rounded to its dtype before a
function behind it has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isfinite
from struct import pack, unpack
from typing import NamedTuple

#: The dtypes of elements in memory: their types there and in computations, and their kinds.
STORED: Mapping[str, tuple[str, str, str]] = {
    "bool": ("bool", "bool", "b"), "int8": ("signed char", "int", "i"), "uint8": ("unsigned char", "int", "i"),
    "int16": ("short", "int", "i"), "int32": ("int", "int", "i"), "int64": ("long long", "long long", "i"),
    "float16": ("fused::half", "float", "f"), "bfloat16": ("fused::bfloat16", "float", "f"),
    "float32": ("float", "float", "f"), "float64": ("double", "double", "f"),
    "complex64": ("float2", "float2", "c"), "complex128": ("double2", "double2", "c"),
}  # fmt: skip
#: Those that a function can compute; the others it can read.
COMPUTED = tuple(name for name in STORED if name not in ("int8", "uint8", "int16"))
_OF_FLOATS = ("sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "atan",
              "tanh", "erf", "floor", "ceil", "trunc")  # fmt: skip
# Of each operation the kinds of its operands (bool, int, float, complex), and C++ of these and their type T.
_TESTS: Mapping[str, tuple[str, str]] = {
    "eq": ("bif", "{a} == {b}"), "ne": ("bif", "{a} != {b}"), "lt": ("bif", "{a} < {b}"), "le": ("bif", "{a} <= {b}"),
    "gt": ("bif", "{a} > {b}"), "ge": ("bif", "{a} >= {b}"), "logical_and": ("bif", "{a} && {b}"),
    "logical_or": ("bif", "{a} || {b}"), "logical_xor": ("bif", "!{a} != !{b}"), "logical_not": ("bif", "!{a}"),
    "isnan": ("f", "{a} != {a}"), "isinf": ("f", "{a} - {a} != {a} - {a} && {a} == {a}"),
}  # fmt: skip
#: All operations, by PyTorch's names.
OPERATIONS: Mapping[str, tuple[str, str]] = {
    **_TESTS,
    **{name: ("f", f"::{name}({{a}})") for name in _OF_FLOATS},
    "add": ("ifc", "{a} + {b}"), "sub": ("ifc", "{a} - {b}"), "mul": ("ifc", "{a} * {b}"), "neg": ("ifc", "-{a}"),
    "div": ("f", "{a} / {b}"), "reciprocal": ("f", "1 / {a}"), "round": ("f", "::rint({a})"),
    "div_trunc": ("i", "{a} / {b}"),
    "div_floor": ("i", "{a} / {b} - ({a} % {b} != 0 && ({a} < 0) != ({b} < 0))"),
    "fmod": ("if", "fused::fmod({a}, {b})"), "remainder": ("if", "fused::remainder({a}, {b})"),
    "maximum": ("if", "{a} > {b} || {a} != {a} ? {a} : {b}"), "minimum": ("if", "{a} < {b} || {a} != {a} ? {a} : {b}"),
    "abs": ("if", "{a} < 0 ? -{a} : {a} == 0 ? 0 : {a}"), "sign": ("if", "(0 < {a}) - ({a} < 0)"),
    "relu": ("if", "{a} < 0 ? 0 : {a}"), "bitwise_not": ("bi", "{a} ^ fused::to<{T}>(-1)"),
    "bitwise_and": ("bi", "{a} & {b}"), "bitwise_or": ("bi", "{a} | {b}"), "bitwise_xor": ("bi", "{a} ^ {b}"),
    "sigmoid": ("f", "1 / (1 + ::exp(-{a}))"), "silu": ("f", "{a} / (::exp(-{a}) + 1)"),
    "gelu": ("f", "{a} * {T}(0.5) * (::erf({a} * {T}(0.7071067811865476)) + 1)"),
    "pow": ("f", "::pow({a}, {b})"), "to": ("bifc", "{a}"), "where": ("bifc", "{a} ? {b} : {c}"),
}  # fmt: skip
#: What stands before each function.
PRELUDE = (files("jitlto.frameworks") / "fused.cuh").read_text("utf-8")
_PLACES = {"element": "row * columns + column", "row": "row", "column": "column", "one": "0"}
_PLACE = "unsigned long long row, unsigned long long column, unsigned long long columns"
_TEXT = """namespace fused {{
template <int V>
__device__ __forceinline__ void {head} {{
  {before}
#pragma unroll
  for (int i = 0; i < V; ++i) {{
    {lines}
  }}
  {after}
}}
}}
"""


class Value(NamedTuple):
    """A value within a function: an expression of C++, and the dtype as which PyTorch has it.

    What PyTorch takes for a number has no dimensions, and decides about a dtype only by its category.
    """

    text: str
    dtype: str
    has_dimensions: bool = True

    def as_type(self, type_: str) -> str:
        """Return an expression of a type of C++."""
        is_one = self.has_dimensions and STORED[self.dtype][1] == type_
        return self.text if is_one else f"fused::to<{type_}>({self.text})"


class Input(NamedTuple):
    """What a function reads, an argument of that name: a number, whose dtype is ``float``, or an array.

    It is accessed at each ``element``, ``row`` or ``column``, or as ``one`` for all; or an array is ``gathered``: the
    columns of the row whose number the input before it is, which is read at each row.
    """

    name: str
    dtype: str
    access: str


class Function(NamedTuple):
    """CUDA C++ that defines ``fused::load`` or ``fused::store``, what it reads, and the dtype of what it returns."""

    text: str
    inputs: Sequence[Input]
    dtype: str


class UnsupportedError(Exception):
    """An operation or a dtype is none that can be printed; the message says which."""


class Printer:
    """Prints one function, an operation a line."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self._lines: list[str] = []

    def read(self, item: Input, *, has_dimensions: bool = True) -> Value:
        """Have a further input read; one of a dtype that cannot be read is an UnsupportedError."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(item)
        if item.dtype == "float":
            return Value(name, "float32", has_dimensions=False)
        if item.dtype not in STORED:
            raise UnsupportedError(f"dtype {item.dtype}")
        return Value(f"{name}[{0 if item.access in ('row', 'one') else 'i'}]", item.dtype, has_dimensions)

    def apply(self, name: str, operands: Sequence[Value | complex], dtype: str | None = None) -> Value:
        """Print one of :data:`OPERATIONS`, of values and numbers of Python; of the result's dtype, if that is known.

        An operation that is not known, or not for such operands, is an UnsupportedError.
        """
        values = [each if isinstance(each, Value) else constant(each) for each in operands]
        if name == "pow" and list(operands[1:]) in ([2], [0.5]):  # as Inductor computes it
            return self.apply(*(("mul", values[:1] * 2) if operands[1] == 2 else ("sqrt", values[:1])), dtype)
        kinds, text = OPERATIONS.get(name, ("", ""))
        if not text or len(values) != sum(f"{{{letter}}}" in text for letter in "abc"):
            raise UnsupportedError(f"{name} of {len(values)} operands")
        inner = promote(values[1:] if name == "where" else values)
        if kinds == "f" and STORED[inner][2] in "bi" and name not in ("pow", *_TESTS):  # pow has integers of its own
            inner = "float32"
        result = "bool" if name in _TESTS else dtype or inner
        taken = inner if name in _TESTS else result
        is_small = name != "to" and any(value.dtype not in COMPUTED for value in values)  # they wrap
        if is_small or result not in COMPUTED or not {STORED[each][2] for each in (inner, taken)} <= set(kinds):
            raise UnsupportedError(f"{name} of {' and '.join(dict.fromkeys(value.dtype for value in values))}")
        type_ = STORED[taken][1]
        wraps = "unsigned " if STORED[taken][2] == "i" and name in ("add", "sub", "mul", "neg") else ""  # in PyTorch
        given = {letter: value.as_type(wraps + type_) for letter, value in zip("abc", values, strict=False)}
        if name == "where":
            given["a"] = values[0].as_type("bool")
        made = Value(f"t{len(self._lines)}", result, any(value.has_dimensions for value in values))
        self._lines.append(f"const {STORED[result][1]} {made.text} = {text.format(T=type_, **given)};")
        return made

    def finish(self, result: Value, value: str | None = None) -> Function:
        """Return ``fused::load``, which gives what was printed, not rounded to 16 bits.

        Or ``fused::store``, which writes what was printed of ``v``, if there is one: an element of the dtype ``value``.
        """
        stored, type_, _ = STORED[result.dtype]
        before = [self._read(number, item) for number, item in enumerate(self.inputs)]
        lines, after = [*self._lines, f"result[i] = {result.as_type(type_)};"], ""
        head = f"load({_PLACE}, {type_} (&result)[V], void* info)"
        if value:
            head = f"store(void* output, {_PLACE}, const {STORED[value][1]} (&value)[V], void* info)"
            before.append(f"{type_} result[V];")
            lines.insert(0, f"const {STORED[value][1]} v = {rounded('value[i]', value)};")
            after = f"fused::write(static_cast<{stored}*>(output) + row * columns + column, result);"
        text = _TEXT.format(head=head, before="\n  ".join(before), lines="\n    ".join(lines), after=after)
        return Function(text, self.inputs, result.dtype)

    def _read(self, number: int, item: Input) -> str:
        if item.dtype == "float":
            return f"const double x{number} = __ldg(static_cast<const double*>(info) + {2 * number});"
        stored, computed, _ = STORED[item.dtype]
        if item.access == "gathered":
            how = f"gather<{stored}>(info, {number}, x{number - 1}[0], column, columns, x{number})"
        else:
            base = f"fused::array<{stored}>(info, {number})"
            base = base if len(self.inputs) > 1 else f"static_cast<const {stored}*>(info)"
            how = f"read({base} + ({_PLACES[item.access]}), x{number})"
        return f"{computed} x{number}[{1 if item.access in ('row', 'one') else 'V'}]; fused::{how};"


def promote(values: Sequence[Value]) -> str:
    """Return the dtype in which PyTorch computes with some values: numbers decide only if their category is higher."""
    kinds = ["bifc".index(STORED[value.dtype][2]) for value in values]
    top = [value for value, kind in zip(values, kinds, strict=True) if kind == max(kinds)]
    found = {value.dtype for value in top if value.has_dimensions} or {value.dtype for value in top}
    if found == {"complex64"} and any(value.dtype == "float64" and value.has_dimensions for value in values):
        return "complex128"
    return "float32" if found == {"float16", "bfloat16"} else max(found, key=list(STORED).index)


def constant(number: complex) -> Value:
    """Return a number of Python as a value: printed exactly, of the dtype that PyTorch takes for it."""
    if isinstance(number, bool):
        return Value(str(number).lower(), "bool", has_dimensions=False)
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise UnsupportedError(f"the integer {number}")
        return Value(f"static_cast<long long>({number % 2**64}ULL)", "int64", has_dimensions=False)
    if isinstance(number, complex):
        return Value(f"double2{{{_real(number.real)}, {_real(number.imag)}}}", "complex64", has_dimensions=False)
    return Value(_real(number), "float32", has_dimensions=False)


def rounded(text: str, dtype: str) -> str:
    """Return an expression as the element that would be read from memory again."""
    stored, computed, _ = STORED[dtype]
    return f"fused::to<{computed}>(fused::to<{stored}>(fused::to<{computed}>({text})))"


def _real(number: float) -> str:
    bits = unpack("=q", pack("=d", number))[0]
    return repr(number) if isfinite(number) else f"__longlong_as_double({bits}LL)"
