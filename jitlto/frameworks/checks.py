"""Checks of a declaration, when it is made; names that a call lacks are found where the call is bound."""

import re
from collections.abc import Collection, Mapping
from keyword import iskeyword
from typing import Any

from jitlto.base.text import check_type, suggest
from jitlto.frameworks.parts import REQUIRED, Array, Flag, Output, Scalar
from jitlto.frameworks.shapes import DTYPES

_SCALARS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
_FLAGS: Mapping[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "str": (str,)}  # no float: -0.0 equals 0.0


def check_declaration(operator: Any) -> None:
    """Check a declaration, an :class:`Operator`, whose module imports this one.

    Raises:
        OperatorError: If its parts contradict each other.
    """
    check_type(operator.qualname, str, "an operator's name must be text")
    for argument in operator.arguments:
        check_type(argument, (Array, Scalar, Flag), "an argument must be an Array, a Scalar or a Flag")
    for output in operator.outputs:
        check_type(output, Output, "an output must be an Output")
    _check_names(operator)
    _check_arguments(operator)
    if not any(not array.optional for array in operator.arrays):
        what = "no argument is an array that is always given, which says on which device the kernel runs"
        raise operator.error(what, "declare one", case="argument")
    if not operator.outputs and not any(array.mutated for array in operator.arrays):
        what = "an operator without outputs and mutated arguments has no effect"
        raise operator.error(what, "declare what the kernel writes to", case="output")
    for parameter in operator.parameters:
        if not isinstance(parameter, str | int | float | None) and not callable(parameter):
            what = f"parameter {parameter!r} is neither a name nor a number, None or a function"
            raise operator.error(what, "name what the kernel is passed", case="parameter")
    if operator.backward is not None:
        _check_backward(operator, operator.backward)


def _check_known(operator: Any, what: str, name: object, known: Collection[str], case: str = "argument") -> None:
    if name not in known:
        hint = suggest(str(name), sorted(known)) or f"the names are {', '.join(sorted(known))}"
        raise operator.error(f"{what} {name!r}", hint, case)


def _check_names(operator: Any) -> None:
    """Check that each name is one, stands for one thing, and is used where there are examples of it."""
    dtypes = operator.dtypes or {}
    if not re.fullmatch(r"[^\W\d]\w*::[^\W\d]\w*", operator.qualname):
        what = f"invalid name {operator.qualname!r}"
        raise operator.error(what, "write namespace::name, each a Python identifier", case="name")
    for variable, several in dtypes.items():
        if not several or variable in DTYPES:
            raise operator.error(f"dtypes[{variable!r}] is empty, or has the name of a dtype", case="argument")
        for name in several:
            _check_known(operator, f"dtypes[{variable!r}]: unknown dtype", name, DTYPES)
    sizes = [size.removeprefix("*") for size in operator.sizes]
    parts = [part.name for part in (*operator.arguments, *operator.outputs)]
    for name in (names := [*parts, *sizes, *dtypes]):
        if not name.isidentifier() or iskeyword(name) or names.count(name) > 1 or name == "given":
            what = f"the name {name!r} is not a Python identifier, is taken, or stands for two things"
            raise operator.error(what, "give each its own name", case="name")
    chosen = {*sizes, *dtypes, *(flag.name for flag in operator.flags)}
    for name, values in (item for example in operator.examples for item in example.items()):
        _check_known(operator, "examples: no flag, size or name of dtypes is", name, chosen)
        if not isinstance(values, tuple | list) or not values:
            raise operator.error(f"examples: {name} has no tuple of values", case="argument")


def _check_arguments(operator: Any) -> None:
    """Check types, defaults and their order."""
    optional = ""
    for argument in operator.arguments:
        name, default = argument.name, argument.default
        if isinstance(argument, Array):
            _check_known(operator, f"{name}: unknown dtype", argument.dtype, {*(operator.dtypes or {}), *DTYPES})
        else:
            types = _FLAGS if isinstance(argument, Flag) else _SCALARS
            _check_known(operator, f"{name}: unknown type", argument.type, types)
            if default is not REQUIRED and type(default) not in types[argument.type]:
                raise operator.error(f"{name}: the default {default!r} is not of type {argument.type}", case="argument")
            if type(default) is int and not -(2**63) <= default < 2**63:
                raise operator.error(f"{name}: the default {default} does not fit in 64 bits", case="argument")
        if default is not REQUIRED:
            optional = name
        elif optional:
            what = f"{name} has no default, but follows {optional}, which has one"
            raise operator.error(what, "put it before the other", case="argument")


def _check_backward(operator: Any, backward: Any) -> None:
    """Check that gradients are computed from what there is, and mutate nothing."""
    second, arrays = backward.operator, {array.name for array in operator.arrays}
    if any(array.mutated for array in (*operator.arrays, *second.arrays)):
        raise operator.error("backward: an operator with gradients mutates nothing", case="backward")
    allowed = {part.name for part in (*operator.arguments, *operator.outputs)}
    allowed |= {f"grad_{output.name}" for output in operator.outputs}
    for given, known, made in (
        (backward.arguments, allowed, second.arguments),
        (backward.gradients, arrays, second.outputs),
    ):
        for name in given:
            _check_known(operator, "backward: unknown name", name, known, "backward")
        if len(given) != len(made):
            what = f"backward: {len(given)} names given for {len(made)} arguments or outputs of {second.qualname}"
            raise operator.error(what, f"the names are {', '.join(sorted(known))}", case="backward")
