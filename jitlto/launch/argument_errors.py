"""The errors of arguments that do not fit their parameters."""

from collections.abc import Sequence

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter


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
