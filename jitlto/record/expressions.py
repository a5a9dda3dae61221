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
from itertools import pairwise
from typing import Any, TypeAlias

Value: TypeAlias = "int | str | tuple[int | str, ...]"

_LONGEST = 300  # characters
_LARGEST = 1 << 63  # products of a few numbers stay numbers of the machine
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}
_KNOWN = (
    ast.Name, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.Load, ast.And, ast.Or, ast.Not, ast.USub,
    *_OPERATORS,
)  # fmt: skip


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
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=value) if type(value) in (int, str):
                pass
            case ast.Call(func=ast.Name(id=name), args=[_, _, *more], keywords=[]) if name in _FUNCTIONS:
                if more and name == "cdiv":
                    raise ExpressionError("cdiv takes two numbers")
            case ast.Call():
                raise ExpressionError("the functions are cdiv(a, b), min(a, b, ...) and max(a, b, ...)")
            case _ if not isinstance(node, _KNOWN):
                raise ExpressionError(f"{type(node).__name__} is not understood")
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


def _value(node: ast.expr, values: Mapping[str, int | str]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in values:
                raise ExpressionError(f"{name} has no value")
            return values[name]
        case ast.Tuple(elts=parts):
            return tuple(_value(each, values) for each in parts)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_number(each, values) for each in arguments))
        case ast.BinOp(left=left, op=how, right=right):
            return _in_range(_OPERATORS[type(how)](_number(left, values), _number(right, values)))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return int(not _value(inner, values))
        case ast.UnaryOp(operand=inner):
            return -_number(inner, values)
        case ast.BoolOp(op=how, values=parts):
            return int(
                (all if isinstance(how, ast.And) else any)(_value(each, values) for each in parts)
            )  # no further than needed
        case ast.Compare(left=left, ops=hows, comparators=others):
            sides = [_value(each, values) for each in (left, *others)]
            return int(all(_OPERATORS[type(how)](*pair) for how, pair in zip(hows, pairwise(sides), strict=True)))
    raise ExpressionError(f"{type(node).__name__} is not understood")


def _number(node: ast.expr, values: Mapping[str, int | str]) -> int:
    value = _value(node, values)
    if type(value) is not int:
        raise TypeError
    return _in_range(value)


def _in_range(value: int) -> int:
    if abs(value) > _LARGEST:
        raise ExpressionError("a number leaves 64 bits")
    return value
