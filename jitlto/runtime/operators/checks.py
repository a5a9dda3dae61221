"""Checks of a declaration, when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitlto.errors import OperatorError
from jitlto.model.text import suggest
from jitlto.runtime.operators.parts import REQUIRED, Argument, Array, Flag, Output
from jitlto.runtime.operators.shapes import DTYPES, parse_shape

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
    sizes = _check_arguments(qualname, arguments, dtypes)
    plain = {size.removeprefix("*") for size in sizes}
    if clash := sorted((plain & {*names, *dtypes}) or (plain if len(plain) < len(sizes) else ())):
        what = f"{clash[0]!r} names a size and something else"
        raise OperatorError(what, code="operator-name", where=qualname, hint="rename one of them")
    for output in outputs:
        _check_dtype(qualname, output, dtypes)
        if isinstance(output.shape, str):
            for size in parse_shape(output.shape, qualname):
                if isinstance(size, str) and size not in sizes:
                    raise _error(qualname, f"output {output.name}: no argument has a size {size!r}", sizes)
    if not outputs and not any(isinstance(a, Array) and a.mutated for a in arguments):
        what = "an operator without outputs and mutated arguments has no effect"
        raise OperatorError(what, code="operator-output", where=qualname, hint="declare what the kernel writes to")
    texts = {argument.name for argument in arguments if not isinstance(argument, Array) and argument.type == "str"}
    _check_parameters(qualname, parameters, {*(sizes & plain), *names} - texts)


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


def _check_arguments(qualname: str, arguments: Sequence[Argument], dtypes: Mapping[str, Sequence[str]]) -> set[str]:
    """Check the arguments, and return the names of their sizes."""
    sizes: set[str] = set()
    optional = ""
    for argument in arguments:
        if isinstance(argument, Array):
            _check_dtype(qualname, argument, dtypes)
            parsed = parse_shape(argument.shape, qualname)
            sizes.update(size for size in parsed if isinstance(size, str))
        else:
            types: Mapping[str, tuple[type, ...]] = _FLAGS if isinstance(argument, Flag) else _SCALARS
            if argument.type not in types:
                raise _error(qualname, f"{argument.name}: unknown type {argument.type!r}", types)
            if argument.default is not REQUIRED and type(argument.default) not in types[argument.type]:
                what = f"{argument.name}: the default {argument.default!r} is not of type {argument.type}"
                raise OperatorError(what, code="operator-argument", where=qualname, hint="correct the default")
        if argument.default is not REQUIRED:
            optional = argument.name
        elif optional:
            what = f"{argument.name} has no default, but follows {optional}, which has one"
            raise OperatorError(what, code="operator-argument", where=qualname, hint="put it before the other")
    if not any(isinstance(argument, Array) and not argument.optional for argument in arguments):
        what = "no argument is an array that is always given, which says on which device the kernel runs"
        raise OperatorError(what, code="operator-argument", where=qualname, hint="declare one")
    return sizes


def _check_dtype(qualname: str, part: Array | Output, dtypes: Mapping[str, Sequence[str]]) -> None:
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
