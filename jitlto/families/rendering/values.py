"""Values of matrices in templates: text, which is neither taken for a number nor asked whether it is true.

Python would answer that ``"8" == 8`` is false, that ``"16" < "8"`` and ``"false"`` are true, and that ``"8" * 2`` is
``"88"``: each gives a kernel that was not meant, and no error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import jinja2

_NUMBER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*\s*")
_FALSE = re.compile(r"\s*(?:false|no|off|none|null|nullptr|[+-]?0+(?:\.0*)?[uUlLfF]*)\s*", re.I)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "lteq": operator.le, "gt": operator.gt,
    "gteq": operator.ge, "in": lambda one, other: one in other, "notin": lambda one, other: one not in other,
}  # fmt: skip
#: Jinja's names of tests that compare → the names of its operators.
TESTS = {
    "==": "eq", "eq": "eq", "equalto": "eq", "!=": "ne", "ne": "ne", "<": "lt", "lt": "lt", "lessthan": "lt",
    "<=": "lteq", "le": "lteq", ">": "gt", "gt": "gt", "greaterthan": "gt", ">=": "gteq", "ge": "gteq", "in": "in",
}  # fmt: skip
_NO_DEFAULT: Any = object()


class TextAsNumberError(TypeError):
    """Text is used where only a number or a truth value makes sense, or the other way round."""


class Value(str):
    """A value of a matrix: text, of which ``{% if flag %}`` must not take ``"false"`` for true."""

    __slots__ = ()

    def __bool__(self) -> bool:
        if _FALSE.fullmatch(self):
            raise TextAsNumberError(f"the condition is the text {str(self)!r}, which counts as true: compare it")
        return len(self) > 0


def as_value(result: Any) -> Any:
    """Treat text that is made from values, such as ``flag|lower``, like the values."""
    return Value(result) if type(result) is str else result


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)  # truth values too


def reads_as_number(value: object) -> bool:
    """Return whether a value is text that C++ would read as a number."""
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _differ_in_kind(one: object, other: object) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return any(map(_differ_in_kind, one, other))
    return (isinstance(one, str) and _is_number(other)) or (_is_number(one) and isinstance(other, str))


def _refuse_mix(one: object, other: object) -> None:
    if _differ_in_kind(one, other):
        raise TextAsNumberError(
            f"the text {one!r} is compared with the number {other!r}"
            if isinstance(one, str)
            else f"{one!r} is compared with {other!r}: one is text, the other is not"
        )


def refuse_mixes(one: object, others: Iterable[object]) -> None:
    """Check that a value which is not among others may be compared with them.

    Raises:
        TextAsNumberError: It is text and one of them is a number, or the other way round.
    """
    for other in others if not isinstance(others, range) else others[:1]:
        _refuse_mix(one, other)


def compare(name: str, left: Any, right: Any) -> bool:
    """Compare two values by the operator that Jinja calls ``name``.

    Raises:
        TextAsNumberError: They are a text and a number, or two texts that are meant as numbers are ordered.
    """
    if name in ("in", "notin"):
        if not isinstance(right, str | list | tuple | dict | range):
            right = list(right)  # an iterator, which can be read once
        if not isinstance(right, str) and left not in right:
            refuse_mixes(left, right)
    else:
        _refuse_mix(left, right)
        if name not in ("eq", "ne") and reads_as_number(left) and reads_as_number(right):
            raise TextAsNumberError(f"the texts {left!r} and {right!r} are ordered as text, not as numbers")
    return bool(_COMPARISONS[name](left, right))


def is_same(value: object, other: object) -> bool:
    """Jinja's test ``sameas``."""
    _refuse_mix(value, other)
    return value is other


def strict(convert: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Make a filter that converts, but has no default of its own for what cannot be converted."""

    def filter_(value: Any, default: Any = _NO_DEFAULT, *rest: Any) -> Any:
        result = convert(value, default, *rest)
        if result is _NO_DEFAULT:
            raise TextAsNumberError(f"{value!r} is not {what}")
        return result

    return filter_


def ordering(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter that orders elements refuse texts that are meant as numbers."""

    @wraps(filter_)
    def ordered(environment: jinja2.Environment, value: Any, *args: Any, **named: Any) -> Any:
        values = list(value)
        if len(values) > 1 and all(map(reads_as_number, values)):
            raise TextAsNumberError(f"{name!r} orders {values!r} as text, not as numbers")
        return filter_(environment, values, *args, **named)

    return ordered
