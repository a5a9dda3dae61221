"""Functions at the seams of operators: how one is put there, and those that are written by hand."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import eq
from typing import Any, NoReturn

from jitlto.base.text import suggest
from jitlto.frameworks import functions
from jitlto.frameworks.functions import COMPUTED, OPERATIONS, STORED, Function, Input, Printer, UnsupportedError, Value
from jitlto.frameworks.parts import REQUIRED, Array, Case, Scalar

#: How many inputs a function has at most, and how many of them are arrays.
MOST_INPUTS, _MOST_ARRAYS = 16, 8
_ACCESSES = {"row": "row", "col": "column", "row, col": "element"}
_NAMES: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Mod: "remainder", ast.Pow: "pow",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.USub: "neg",
}  # fmt: skip


def is_read(access: str, sizes: Sequence[Any], whole: Sequence[Any], same: Callable[[Any, Any], bool] = eq) -> bool:
    """Return whether an array of some sizes can be read so, for elements of a whole."""
    rows, ones = whole[:-1], (1,) * len(whole[:-1])
    wanted = {"element": whole, "row": (*rows, 1), "column": (*ones, *whole[-1:]), "one": (*ones, 1)}.get(access, sizes)
    missing = (1,) * (len(wanted) - len(sizes))
    sizes = (*sizes, *missing) if access == "row" else (*missing, *sizes)
    return len(sizes) == len(wanted) and all(map(same, sizes, wanted))


def fuse(operator: Any, side: str, inputs: Sequence[Input], make: Callable[[str], Function], name: str) -> Any:
    """Return an operator with a function at a seam, the ``prologue`` or the ``epilogue``.

    The function's inputs become arguments, before those that have a default. Of the argument that a prologue makes, a
    call is given shape and dtype. ``make`` prints the function for elements of a dtype, ``name`` tells it from others.
    """
    seam = getattr(operator, side)
    if seam is None:
        raise operator.error(f"the operator declares no {side}", f"declare one: Operator(..., {side}=Seam(...))", side)
    count = sum(each.dtype != "float" for each in inputs)
    if count > _MOST_ARRAYS or len(inputs) > MOST_INPUTS:
        what = f"a function of {len(inputs)} inputs, {count} of them arrays"
        raise operator.error(what, f"use {MOST_INPUTS} at most, {_MOST_ARRAYS} of them arrays", side)

    def source(case: Case) -> tuple[str, str]:
        ((shape, dtype),) = operator.results(case)
        for item, kind, access in inputs if side == "epilogue" else ():
            sizes = () if kind == "float" else getattr(case, f"{item}_sizes")
            if not is_read(access, sizes, shape):
                what = f"{item} has the shape {sizes}, but is read by {access}"
                raise operator.error(what, f"the output has the shape {shape}")
        text = seam.source(case) if callable(seam.source) else seam.source
        return f"{seam.group}.cu", f"{functions.PRELUDE}{make(dtype).text}{text}"

    made = seam.array if side == "prologue" else None
    output = replace(operator.outputs[0], dtype=lambda case: make(operator.results(case)[0][1]).dtype)
    arguments = [replace(each, optional=True) if each.name == made else each for each in operator.arguments]
    for item, dtype, _ in inputs:
        arguments.append(Scalar(item, "float") if dtype == "float" else Array(item, dtype, f"*{item}_sizes"))
    names = tuple(each.name for each in inputs)
    passed = {side: names[0] if len(names) == count == 1 else names or None, made: None}
    digest = hashlib.sha256(f"{operator.qualname} {side} {name}".encode()).hexdigest()
    return replace(
        operator,
        qualname=f"{operator.qualname}_{digest[:16]}",
        arguments=sorted(arguments, key=lambda argument: argument.default is not REQUIRED),
        outputs=[output] if side == "epilogue" else operator.outputs,
        parameters=[passed.get(each, each) for each in operator.parameters],
        backward=None,
        sources=(*operator.sources, source),
        **{side: None},
    )


def with_epilogue(operator: Any, expression: str, dtype: str | None, given: Mapping[str, str | float]) -> Any:
    """Return an operator with an expression as its epilogue; see :meth:`Operator.with_epilogue`."""
    parsed = _Expression(operator, expression, given)
    if dtype is not None and dtype not in COMPUTED:
        parsed.refuse(f"dtype {dtype!r}", suggest(str(dtype), COMPUTED, f"the dtypes are {', '.join(COMPUTED)}"))

    @cache
    def make(value: str) -> Function:
        printer = Printer()
        known: dict[str, Any] = {**given, "v": Value("v", value)}
        known |= {each.name: printer.read(each, has_dimensions=each.access != "one") for each in parsed.inputs}
        try:
            result = parsed.read(parsed.tree, lambda name, _: known[name], printer.apply)
            return printer.finish(printer.apply("to", [result], dtype or value), value)
        except UnsupportedError as error:
            parsed.refuse(f"{error} cannot be computed", "convert the inputs, or use another operation")

    return fuse(operator, "epilogue", parsed.inputs, make, f"{expression} {dtype} {dict(given)}")


class _Expression:
    """An expression such as ``gelu(v * scale + bias[col])``, checked, with what it reads."""

    def __init__(self, operator: Any, text: str, given: Mapping[str, str | float]) -> None:
        self._operator, self._text, self._given = operator, text, given
        self._accesses: dict[str, str] = {}
        for name, what in given.items():
            if name in ("v", "row", "col", "prologue", "epilogue"):
                self.refuse(f"{name} has a meaning of its own", "give the input another name")
            if not isinstance(what, int | float | complex) and what not in ("float", *STORED):
                self.refuse(f"{name}={what!r} is neither a dtype nor a number", f"the dtypes are {', '.join(STORED)}")
        try:
            self.tree = ast.parse(text, mode="eval").body
            self.read(self.tree, self._find, lambda *_: None)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            self.refuse(f"is no expression: {error}", "write one such as gelu(v * scale + bias[col])")
        for name in given.keys() - self._accesses.keys():
            self.refuse(f"does not use {name}", "use it, or leave it out")
        self.inputs = [Input(name, what, self._accesses[name]) for name, what in given.items() if isinstance(what, str)]

    def read(self, node: ast.AST, find: Callable[[str, str], Any], apply: Callable[[str, list[Any]], Any]) -> Any:
        """Return what a part is: a number, or what is found of a name and an access, or applied by a name."""
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() as number):
                return number
            case ast.Name(id=name):
                return find(name, "one")
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                access = _ACCESSES.get(ast.unparse(index).strip("()"))
                if access is None:
                    self.refuse(f"{ast.unparse(node)!r} is no input", "write x[row], x[col] or x[row, col]")
                return find(name, access)
            case ast.BinOp(op=op, left=one, right=other) | ast.Compare(ops=[op], left=one, comparators=[other]):
                name, operands = _NAMES.get(type(op), ""), [one, other]
            case ast.UnaryOp(op=op, operand=operand):
                name, operands = _NAMES.get(type(op), ""), [operand]
            case ast.IfExp(test=test, body=body, orelse=other):
                name, operands = "where", [test, body, other]
            case ast.Call(func=ast.Name(id=name), args=operands, keywords=[]):
                pass
            case _:
                name, operands = "", []
        if name not in OPERATIONS:
            hint = suggest(name, OPERATIONS, f"the functions are {', '.join(OPERATIONS)}")
            self.refuse(f"{ast.unparse(node)!r} cannot be computed", hint)
        return apply(name, [self.read(operand, find, apply) for operand in operands])

    def _find(self, name: str, access: str) -> None:
        """Note an input, which is read so."""
        if (name, access) == ("v", "one"):
            return
        if name not in (*self._given, "v"):
            hint = f'say what it is: {name}="float32", or "float" for a number'
            self.refuse(f"{name} is not known", suggest(name, [*self._given, "v"], hint))
        if access != "one" and self._given.get(name) not in STORED:
            self.refuse(f"{name} is a number", "write it without brackets")
        if self._accesses.setdefault(name, access) != access:
            self.refuse(f"{name} is read in two ways", "give it two names")

    def refuse(self, what: str, hint: str) -> NoReturn:
        """Raise an error about the expression."""
        raise self._operator.error(f"the epilogue {self._text!r}: {what}", hint, "epilogue")
