"""Checks of a declaration, when it is made."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from keyword import iskeyword
from typing import Any

from jitlto.base.errors import OperatorError
from jitlto.base.text import check_type, suggest
from jitlto.frameworks.parts import REQUIRED, Array, Flag, Output, Scalar
from jitlto.frameworks.shapes import DTYPES, parse_shape

_SCALARS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
_FLAGS: Mapping[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "str": (str,)}  # no float: -0.0 equals 0.0


def check_declaration(operator: Any) -> None:
    """Check a declaration, an :class:`Operator`, whose module imports this one.

    Raises:
        OperatorError: If its parts contradict each other.
    """
    where, dtypes, backward = operator.qualname, operator.dtypes or {}, operator.backward
    check_type(where, str, "an operator's name must be text")
    for argument in operator.arguments:
        check_type(argument, (Array, Scalar, Flag), "an argument must be an Array, a Scalar or a Flag")
    for output in operator.outputs:
        check_type(output, Output, "an output must be an Output")

    def error(case: str, what: str, hint: str | None = None) -> OperatorError:
        return OperatorError(what, code=f"operator-{case}", where=where, hint=hint)

    def check_known(what: str, name: object, known: Collection[str], case: str = "argument") -> None:
        if name not in known:
            hint = suggest(str(name), sorted(known)) or f"the names are {', '.join(sorted(known))}"
            raise error(case, f"{what} {name!r}", hint)

    if not re.fullmatch(r"[^\W\d]\w*::[^\W\d]\w*", where):
        raise error("name", f"invalid name {where!r}", "write namespace::name, each a Python identifier")
    for variable, several in dtypes.items():
        if not several or variable in DTYPES:
            raise error("argument", f"dtypes[{variable!r}] is empty, or has the name of a dtype")
        for name in several:
            check_known(f"dtypes[{variable!r}]: unknown dtype", name, DTYPES)
    shapes = {array.name: parse_shape(array.shape, where) for array in operator.arrays}
    sizes = {size for shape in shapes.values() for size in shape if isinstance(size, str)}
    plain = [size.removeprefix("*") for size in sizes]
    names = [part.name for part in (*operator.arguments, *operator.outputs)]
    for name in (several := [*names, *plain, *dtypes]):
        if not name.isidentifier() or iskeyword(name) or several.count(name) > 1 or name == "given":
            what = f"the name {name!r} is not a Python identifier, is taken, or stands for two things"
            raise error("name", what, "give each its own name")

    optional = ""
    for argument in operator.arguments:
        name, default = argument.name, argument.default
        if isinstance(argument, Array):
            check_known(f"{name}: unknown dtype", argument.dtype, {*dtypes, *DTYPES})
        else:
            types = _FLAGS if isinstance(argument, Flag) else _SCALARS
            check_known(f"{name}: unknown type", argument.type, types)
            if default is not REQUIRED and type(default) not in types[argument.type]:
                raise error("argument", f"{name}: the default {default!r} is not of type {argument.type}")
            if type(default) is int and not -(2**63) <= default < 2**63:
                raise error("argument", f"{name}: the default {default} does not fit in 64 bits")
        if default is not REQUIRED:
            optional = name
        elif optional:
            what = f"{name} has no default, but follows {optional}, which has one"
            raise error("argument", what, "put it before the other")

    # What an optional array alone has is unknown to a call without it.
    always = [array for array in operator.arrays if not array.optional]
    if not always:
        what = "no argument is an array that is always given, which says on which device the kernel runs"
        raise error("argument", what, "declare one")
    known_sizes = {size for array in always for size in shapes[array.name] if isinstance(size, str)}
    for output in operator.outputs:
        if not callable(output.dtype):
            check_known(f"{output.name}: unknown dtype", output.dtype, {*(a.dtype for a in always), *DTYPES})
        for size in parse_shape(output.shape, where) if isinstance(output.shape, str) else ():
            if isinstance(size, str):
                check_known(f"output {output.name}: no array that is always given has a size", size, known_sizes)
    if not operator.outputs and not any(array.mutated for array in operator.arrays):
        what = "an operator without outputs and mutated arguments has no effect"
        raise error("output", what, "declare what the kernel writes to")

    texts = {flag.name for flag in operator.flags if flag.type == "str"}
    for parameter in operator.parameters:
        if isinstance(parameter, str):
            passed = {*(size for size in known_sizes if size[0] != "*"), *names} - texts
            check_known("no array, output, number or size is named", parameter, passed, "parameter")
        elif not isinstance(parameter, int | float | None) and not callable(parameter):
            what = f"parameter {parameter!r} is neither a name nor a number, None or a function"
            raise error("parameter", what, "name what the kernel is passed")

    for example in operator.examples:
        check_type(example, Mapping, "examples must be dicts of values by name")
        for name, values in example.items():
            chosen = {*plain, *dtypes, *(flag.name for flag in operator.flags)}
            check_known("examples: no flag, size or name of dtypes is", name, chosen)
            check_type(values, (tuple, list), "an example must be a tuple of values")
            if not values:
                raise error("argument", f"examples: {name} has no values")

    if backward is None:
        return
    second = backward.operator
    for array in (*operator.arrays, *second.arrays):
        if array.mutated:
            what = f"backward: {array.name} is mutated, and an operator with gradients mutates nothing"
            raise error("backward", what)
    allowed = {*names, *(f"grad_{output.name}" for output in operator.outputs)}
    for given, known, made in (
        (backward.arguments, allowed, second.arguments),
        (backward.gradients, set(shapes), second.outputs),
    ):
        for name in given:
            check_known("backward: unknown name", name, known, "backward")
        if len(given) != len(made):
            what = f"backward: {len(given)} names given for {len(made)} arguments or outputs of {second.qualname}"
            raise error("backward", what, f"the names are {', '.join(sorted(known))}")
