"""Epilogues written by hand, as expressions: ``gelu(v * scale + bias[col])``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn, TypeAlias

from jitlto.base.text import suggest
from jitlto.frameworks.functions import COMPUTED, OPERATIONS, STORED, Function, Input, Printer, UnsupportedError, Value
from jitlto.frameworks.fusion import fuse

#: An operator of ``declaration``, which imports this module.
Operator: TypeAlias = Any

_ACCESSES = {("row",): "row", ("col",): "column", ("row", "col"): "element"}
_NAMES: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Mod: "remainder", ast.Pow: "pow",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.USub: "neg",
}  # fmt: skip


def with_epilogue(operator: Operator, expression: str, dtype: str | None, given: Mapping[str, str | float]) -> Operator:
    """Return an operator with an expression as its epilogue; see :meth:`Operator.with_epilogue`."""
    parsed = _Expression(operator, expression, given)
    if dtype is not None and (not isinstance(dtype, str) or dtype not in COMPUTED):
        parsed.refuse(f"dtype {dtype!r}", suggest(str(dtype), COMPUTED, f"the dtypes are {', '.join(COMPUTED)}"))

    @cache
    def make(value: str) -> Function:
        printer = Printer()
        known: dict[str, Any] = {**given, "v": Value("v", value)}
        known |= {each.name: printer.read(each, has_dimensions=each.access != "one") for each in parsed.inputs}
        try:
            result = parsed.read(parsed.tree, lambda name, _: known[name], printer.apply)
            return printer.store(printer.apply("to", [result], dtype or value), value)
        except UnsupportedError as error:
            parsed.refuse(f"{error} cannot be computed", "convert the inputs, or use another operation")

    return fuse(operator, "epilogue", parsed.inputs, make, f"{expression} {dtype} {dict(given)}")


class _Expression:
    """An expression, checked, with what it reads."""

    def __init__(self, operator: Operator, text: str, given: Mapping[str, str | float]) -> None:
        self._operator, self._text, self._given = operator, text, given
        self._accesses: dict[str, str] = {}
        for name, what in given.items():
            if name in ("v", "row", "col", "prologue", "epilogue"):
                self.refuse(f"{name} has a meaning of its own", "give the input another name")
            if not isinstance(what, str | int | float | complex):
                self.refuse(f"{name}={what!r} is neither a dtype nor a number", f'write {name}="float32"')
            if isinstance(what, str) and what not in ("float", *STORED):
                self.refuse(f"{name} has an unknown dtype {what!r}", f"the dtypes are {', '.join(STORED)}")
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
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                access = _ACCESSES.get(tuple(getattr(part, "id", "") for part in parts))
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
        if name not in self._given:
            hint = f'say what it is: {name}="float32", or "float" for a number'
            self.refuse(f"{name} is not known", suggest(name, [*self._given, "v"], hint))
        if access != "one" and self._given[name] not in STORED:
            self.refuse(f"{name} is a number", "write it without brackets")
        if self._accesses.setdefault(name, access) != access:
            self.refuse(f"{name} is read in two ways", "give it two names")

    def refuse(self, what: str, hint: str) -> NoReturn:
        """Raise an error about the expression."""
        raise self._operator.error(f"the epilogue {self._text!r}: {what}", hint, "epilogue")
