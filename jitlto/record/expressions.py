"""Arithmetic with whole numbers, as launch choices and conditions in ``family.toml`` are written.

An expression has names, whole numbers, texts in quotes, ``+ - * // %``, comparisons, ``and``, ``or``, ``not``, commas
and the functions ``cdiv(a, b)`` (a quotient rounded up), ``min`` and ``max``. It may come from a database, so nothing
else is understood.

>>> evaluate("cdiv(rows, block)", {"rows": 1000, "block": 256})
4
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

Value: TypeAlias = "int | str | tuple[int | str, ...]"

_LONGEST = 300  # characters
_LARGEST = 1 << 63  # products of a few numbers stay numbers of the machine
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}


class ExpressionError(ValueError):
    """An expression that cannot be read, or has no value; the message says why."""


def number_or_text(value: str) -> int | str:
    """Return a parameter's value as expressions see it: a number if it is spelled like one."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else value


@lru_cache(1024)
def parse(text: str) -> ast.expr:
    """Parse an expression.

    Raises:
        ExpressionError: If it is not one.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"longer than {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(getattr(error, "msg", None) or "cannot be read") from None
    _check(tree)
    return tree


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression refers to.

    Raises:
        ExpressionError: If it is not one.
    """
    tree = parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


def evaluate(text: str, values: Mapping[str, int | str]) -> Value:
    """Return the value of an expression; truth is 1 or 0.

    Raises:
        ExpressionError: If it is not one, a name has no value, or it divides by zero or leaves 64 bits.
    """
    try:
        found: Value = _value(parse(text), values)
        return found
    except ZeroDivisionError:
        raise ExpressionError("division by zero") from None
    except TypeError:
        raise ExpressionError("a text where a number is needed") from None


def _check(node: ast.AST) -> None:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant):
            if type(each.value) not in (int, str):
                raise ExpressionError(f"{each.value!r:.40} is neither a whole number nor a text")
        elif isinstance(each, ast.Call):
            arguments = len(each.args)
            if not isinstance(each.func, ast.Name) or each.func.id not in _FUNCTIONS or each.keywords:
                raise ExpressionError(f"the functions are {', '.join(sorted(_FUNCTIONS))}")
            if arguments < 2 or (each.func.id == "cdiv" and arguments != 2):
                raise ExpressionError(f"{each.func.id} takes {'two' if each.func.id == 'cdiv' else 'several'} numbers")
        elif not isinstance(each, _KNOWN):
            raise ExpressionError(f"{type(each).__name__} is not understood")


_KNOWN = (
    ast.Name, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.Load, ast.And, ast.Or, ast.Not, ast.USub,
    *_ARITHMETIC, *_COMPARISONS,
)  # fmt: skip


def _value(node: ast.expr, values: Mapping[str, int | str]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id not in values:
                raise ExpressionError(f"{node.id} has no value")
            return values[node.id]
        case ast.Tuple():
            return tuple(_value(each, values) for each in node.elts)
        case ast.Call(func=ast.Name(id=name)):
            return _number(_FUNCTIONS[name](*(_number(_value(each, values)) for each in node.args)))
        case ast.BinOp():
            sides = (_number(_value(side, values)) for side in (node.left, node.right))
            return _number(_ARITHMETIC[type(node.op)](*sides))
        case ast.UnaryOp():
            inner = _value(node.operand, values)
            return int(not inner) if isinstance(node.op, ast.Not) else -_number(inner)
        case ast.BoolOp():
            truths = (bool(_value(each, values)) for each in node.values)
            return int(all(truths) if isinstance(node.op, ast.And) else any(truths))
        case ast.Compare():
            sides_of = [_value(each, values) for each in (node.left, *node.comparators)]
            pairs = zip(sides_of, sides_of[1:], node.ops, strict=False)
            return int(all(_COMPARISONS[type(how)](one, other) for one, other, how in pairs))
    raise ExpressionError(f"{type(node).__name__} is not understood")


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    if abs(value) > _LARGEST:
        raise ExpressionError("a number leaves 64 bits")
    return value
