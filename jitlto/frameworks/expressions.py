"""Epilogues written by hand, as expressions: ``gelu(v * scale + bias[col])``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn, TypeAlias

from jitlto.base.text import suggest
from jitlto.frameworks.functions import (
    COMPUTED,
    OPERATIONS,
    STORED,
    Function,
    Input,
    Number,
    Printer,
    UnsupportedError,
    Value,
)
from jitlto.frameworks.fusion import fuse_epilogue

#: An operator of ``declaration``, which imports this module.
Operator: TypeAlias = Any

_ACCESSES = {("row",): "row", ("col",): "column", ("row", "col"): "element"}
_NAMES: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Mod: "remainder", ast.Pow: "pow",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.USub: "neg",
}  # fmt: skip
_FUNCTIONS = (*OPERATIONS, "gelu", "silu")


def with_epilogue(operator: Operator, expression: str, dtype: str | None, given: Mapping[str, str | float]) -> Operator:
    """Return an operator with an expression as its epilogue; see :meth:`Operator.with_epilogue`."""
    parsed = _Expression(operator, expression, given)
    if dtype is not None and (not isinstance(dtype, str) or dtype not in COMPUTED):
        parsed.refuse(f"dtype {dtype!r}", suggest(str(dtype), COMPUTED) or f"the dtypes are {', '.join(COMPUTED)}")

    @cache
    def make(value: str) -> Function:
        printer = Printer()
        known = {"v": Value("v", value)}
        known |= {each.name: printer.read(each, has_dimensions=each.access != "one") for each in parsed.inputs}
        known |= {name: printer.number(name) for name in parsed.numbers}
        try:
            result = printer.apply("to", [parsed.print(printer, known)], dtype or value)
        except UnsupportedError as error:
            parsed.refuse(f"{error} cannot be computed", "convert the inputs, or use another operation")
        except RecursionError:
            parsed.refuse("is nested too deep", "write it in fewer parts")
        return printer.store(result, value)

    return fuse_epilogue(operator, parsed.inputs, parsed.numbers, make, f"{expression} {dtype} {dict(given)}")


class _Expression:
    """An expression, with what it reads."""

    def __init__(self, operator: Operator, text: str, given: Mapping[str, str | float]) -> None:
        self._operator, self._text, self._given = operator, text, given
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            self.refuse(f"is no expression: {error}", "write one such as gelu(v * scale + bias[col])")
        accesses: dict[str, str] = {}
        subscripted = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                subscripted |= {node.value, *parts}
                access = _ACCESSES.get(tuple(getattr(part, "id", "") for part in parts))
                if access is None:
                    self.refuse(f"{ast.unparse(node)!r} is no input", "write x[row], x[col] or x[row, col]")
                self._note(accesses, node.value.id, access)
            elif isinstance(node, ast.Call):
                subscripted.add(node.func)
            elif isinstance(node, ast.Name) and node not in subscripted and node.id != "v":
                self._note(accesses, node.id, "one")
        for name in given:
            if name not in accesses:
                self.refuse(f"does not use {name}", "use it, or leave it out")
        for name, what in given.items():
            if name in ("row", "col", "prologue", "epilogue") or (name == "v" and isinstance(what, str)):
                self.refuse(f"{name} has a meaning of its own", "give the input another name")
            if not isinstance(what, str | int | float | complex):
                self.refuse(f"{name}={what!r} is neither a dtype nor a number", f'write {name}="float32"')
        arrays = [name for name, what in given.items() if isinstance(what, str) and what != "float"]
        for name in arrays:
            if given[name] not in STORED:
                self.refuse(f"{name} has an unknown dtype {given[name]!r}", f"the dtypes are {', '.join(STORED)}")
        self.inputs = [Input(name, str(given[name]), accesses[name]) for name in arrays]
        self.numbers = [name for name, what in given.items() if what == "float"]

    def _note(self, accesses: dict[str, str], name: str, access: str) -> None:
        if name not in self._given:
            hint = suggest(name, [*self._given, "v"]) or f'say what it is: {name}="float32", or "float" for a number'
            self.refuse(f"{name} is not known", hint)
        if accesses.setdefault(name, access) != access:
            self.refuse(f"{name} is read in two ways", "give it two names")
        if access != "one" and (not isinstance(self._given[name], str) or self._given[name] == "float"):
            self.refuse(f"{name} is a number", "write it without brackets")

    def print(self, printer: Printer, known: Mapping[str, Value]) -> Value | Number:
        """Print the expression and return its value."""
        return self._print(printer, known, self._tree)

    def _print(self, printer: Printer, known: Mapping[str, Value], node: ast.AST) -> Value | Number:
        def apply(name: str, *operands: ast.AST) -> Value:
            return printer.apply(name, [self._print(printer, known, operand) for operand in operands])

        match node:
            case ast.Constant(value=bool() | int() | float() | complex() as number):
                return number
            case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
                value = self._given.get(name)
                return value if isinstance(value, int | float | complex) else known[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _NAMES:
                return apply(_NAMES[type(op)], left, right)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return apply("neg", operand)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _NAMES:
                return apply(_NAMES[type(op)], left, right)
            case ast.IfExp(test=test, body=body, orelse=other):
                return apply("where", test, body, other)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return apply(name, *args)
        text = ast.unparse(node)
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        hint = suggest(called, _FUNCTIONS) if called else None
        return self.refuse(f"{text!r} cannot be computed", hint or f"the functions are {', '.join(_FUNCTIONS)}")

    def refuse(self, what: str, hint: str) -> NoReturn:
        """Raise an error about the expression."""
        raise self._operator.error(f"the epilogue {self._text!r}: {what}", hint, "epilogue")
