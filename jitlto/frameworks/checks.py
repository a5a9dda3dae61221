"""Checks of a declaration, when it is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jitlto.base.errors import OperatorError
from jitlto.base.text import check_type, suggest
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Flag, Output, Scalar
from jitlto.frameworks.shapes import DTYPES, parse_shape

_SCALARS = {"int": (int,), "float": (int, float), "bool": (bool,)}
_FLAGS = {"int": (int,), "bool": (bool,), "str": (str,)}  # no float: -0.0 equals 0.0


def check_parts(
    qualname: str,
    arguments: Sequence[Argument],
    outputs: Sequence[Output],
    parameters: Sequence[Any],
    dtypes: Mapping[str, Sequence[str]],
) -> None:
    """Check that the parts of a declaration fit each other.

    Raises:
        OperatorError: If they do not.
    """
    check_type(qualname, str, "an operator's name must be text")
    for argument in arguments:
        check_type(argument, (Array, Scalar, Flag), "an argument must be an Array, a Scalar or a Flag")
    for output in outputs:
        check_type(output, Output, "an output must be an Output")
    parts = qualname.split("::")
    if len(parts) != 2 or not all(part.isidentifier() for part in parts):
        hint = "write namespace::name, each a Python identifier"
        raise OperatorError(f"invalid name {qualname!r}", code="operator-name", hint=hint)
    for variable, names in dtypes.items():
        unknown = [name for name in names if name not in DTYPES]
        if unknown or not names or variable in DTYPES:
            what = f"dtypes[{variable!r}] has the unknown dtype {unknown[0]!r}" if unknown else f"dtypes[{variable!r}]"
            raise _error(qualname, what if unknown else f"{what} is empty, or has the name of a dtype", DTYPES)
    names = [part.name for part in (*arguments, *outputs)]
    for name in names:
        if not name.isidentifier() or names.count(name) > 1 or name == "given":
            what = f"the name {name!r} is not a Python identifier, is taken, or occurs twice"
            raise OperatorError(what, code="operator-name", where=qualname, hint="give each its own name")
    _check_arguments(qualname, arguments, dtypes)
    shapes = {a.name: parse_shape(a.shape, qualname) for a in arguments if isinstance(a, Array)}
    sizes = {size for shape in shapes.values() for size in shape if isinstance(size, str)}
    plain = {size.removeprefix("*") for size in sizes}
    if clash := sorted((plain & {*names, *dtypes}) or (plain if len(plain) < len(sizes) else ())):
        what = f"{clash[0]!r} names a size and something else"
        raise OperatorError(what, code="operator-name", where=qualname, hint="rename one of them")
    # What an optional array alone has is unknown to a call without it.
    always = [a for a in arguments if isinstance(a, Array) and not a.optional]
    sizes = {size for array in always for size in shapes[array.name] if isinstance(size, str)}
    bound = {array.dtype for array in always} & set(dtypes)
    for output in outputs:
        _check_dtype(qualname, output, bound)
        for size in parse_shape(output.shape, qualname) if isinstance(output.shape, str) else ():
            if isinstance(size, str) and size not in sizes:
                raise _error(
                    qualname, f"output {output.name}: no array that is always given has a size {size!r}", sizes
                )
    if not outputs and not any(isinstance(a, Array) and a.mutated for a in arguments):
        what = "an operator without outputs and mutated arguments has no effect"
        raise OperatorError(what, code="operator-output", where=qualname, hint="declare what the kernel writes to")
    texts = {argument.name for argument in arguments if not isinstance(argument, Array) and argument.type == "str"}
    _check_parameters(qualname, parameters, {*(sizes & plain), *names} - texts)


def check_examples(
    qualname: str,
    arguments: Sequence[Argument],
    examples: Sequence[Mapping[str, Sequence[object]]],
    dtypes: Mapping[str, Sequence[str]],
) -> None:
    """Check that examples are values of flags, sizes and names of dtypes.

    Raises:
        OperatorError: If they are not.
    """
    types: dict[str, tuple[type, ...]] = {a.name: _FLAGS[a.type] for a in arguments if isinstance(a, Flag)}
    for array in arguments:
        for size in parse_shape(array.shape, qualname) if isinstance(array, Array) else ():
            if isinstance(size, str):
                types[size.removeprefix("*")] = (tuple,) if size[0] == "*" else (int,)
    for alternative in examples:
        check_type(alternative, Mapping, "examples must be dicts of values by name")
        for name, values in alternative.items():
            if name not in types and name not in dtypes:
                raise _error(qualname, f"examples: {name!r} is no flag, size or name of dtypes", [*types, *dtypes])
            check_type(values, (tuple, list), "an example must be a tuple of values")
            fits = [v in dtypes[name] if name in dtypes else type(v) in types[name] for v in values]
            if not fits or not all(fits):
                what = (
                    f"examples: {name} has no values"
                    if not fits
                    else f"examples: {values[fits.index(False)]!r} is no {name}"
                )
                raise OperatorError(what, code="operator-argument", where=qualname, hint="correct the example")


def check_backward(
    qualname: str,
    arguments: Sequence[Argument],
    outputs: Sequence[Output],
    backward: Any,
    called: Sequence[Argument],
    second: Any,
) -> None:
    """Check how gradients are computed.

    Args:
        qualname, arguments, outputs: Of the operator.
        backward: Its :class:`~jitlto.Backward`.
        called: The arguments of the second operator.
        second: The second operator.

    Raises:
        OperatorError: If it does not fit the operator.
    """
    known = {part.name for part in (*arguments, *outputs)} | {f"grad_{output.name}" for output in outputs}
    arrays = {argument.name for argument in arguments if isinstance(argument, Array)}
    made = getattr(second, "outputs", ())
    mutated = [a.name for a in (*arguments, *called) if isinstance(a, Array) and a.mutated]
    unknown = [name for name in backward.arguments if name not in known]
    others = [name for name in backward.gradients if name not in arrays]
    what = ""
    if mutated:
        what = f"{mutated[0]} is mutated, and an operator with gradients mutates nothing"
    elif unknown or others:
        what = f"unknown name {(unknown or others)[0]!r}"
    elif len(backward.arguments) != len(called):
        what = f"{len(backward.arguments)} arguments given for the {len(called)} of the second operator"
    elif len(backward.gradients) != len(made):
        what = f"{len(backward.gradients)} gradients named for the {len(made)} outputs of the second operator"
    if what:
        hint = f"arguments may be {', '.join(sorted(known))}; gradients {', '.join(sorted(arrays))}"
        raise OperatorError(f"backward: {what}", code="operator-backward", where=qualname, hint=hint)


def _check_arguments(qualname: str, arguments: Sequence[Argument], dtypes: Mapping[str, Sequence[str]]) -> None:
    optional = ""
    for argument in arguments:
        if isinstance(argument, Array):
            _check_dtype(qualname, argument, dtypes)
        else:
            types: Mapping[str, tuple[type, ...]] = _FLAGS if isinstance(argument, Flag) else _SCALARS
            if argument.type not in types:
                raise _error(qualname, f"{argument.name}: unknown type {argument.type!r}", types)
            if argument.default is not REQUIRED and type(argument.default) not in types[argument.type]:
                what = f"{argument.name}: the default {argument.default!r} is not of type {argument.type}"
                raise OperatorError(what, code="operator-argument", where=qualname, hint="correct the default")
            if type(argument.default) is int and not -(2**63) <= argument.default < 2**63:
                what = f"{argument.name}: the default {argument.default} does not fit in 64 bits"
                raise OperatorError(what, code="operator-argument", where=qualname, hint="correct the default")
        if argument.default is not REQUIRED:
            optional = argument.name
        elif optional:
            what = f"{argument.name} has no default, but follows {optional}, which has one"
            raise OperatorError(what, code="operator-argument", where=qualname, hint="put it before the other")
    if not any(isinstance(argument, Array) and not argument.optional for argument in arguments):
        what = "no argument is an array that is always given, which says on which device the kernel runs"
        raise OperatorError(what, code="operator-argument", where=qualname, hint="declare one")


def _check_dtype(qualname: str, part: Array | Output, dtypes: Collection[str]) -> None:
    if not callable(part.dtype) and part.dtype not in DTYPES and part.dtype not in dtypes:
        raise _error(qualname, f"{part.name}: unknown dtype {part.dtype!r}", [*dtypes, *DTYPES])


def _check_parameters(qualname: str, parameters: Sequence[Any], known: set[str]) -> None:
    for parameter in parameters:
        if isinstance(parameter, str) and parameter not in known:
            what = f"parameter {parameter!r} is no array, output, number or size"
            hint = suggest(parameter, sorted(known)) or f"the names are {', '.join(sorted(known))}"
            raise OperatorError(what, code="operator-parameter", where=qualname, hint=hint)
        if not isinstance(parameter, str | int | float | None) and not isinstance(parameter, Callable):  # type: ignore[arg-type]
            what = f"parameter {parameter!r} is neither a name nor a number, None or a function"
            raise OperatorError(what, code="operator-parameter", where=qualname, hint="name what the kernel is passed")


def _error(qualname: str, what: str, known: Any) -> OperatorError:
    hint = f"the names are {', '.join(sorted(known))}" if known else None
    return OperatorError(what, code="operator-argument", where=qualname, hint=hint)
