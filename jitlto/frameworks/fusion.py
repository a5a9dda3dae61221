"""Operators with a function in the place of a group: what the seams of a declaration are for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from jitlto.frameworks.functions import Function, Input, prelude
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Case, Flag, Output, Scalar, Seam, Table
from jitlto.frameworks.shapes import DTYPES, DType

#: An operator of ``declaration``, which imports this module.
Operator: TypeAlias = Any

_MOST_INPUTS = 8
Make = Callable[[str], Function]


def fuse_epilogue(
    operator: Operator, inputs: Sequence[Input], numbers: Sequence[str], make: Make, name: str
) -> Operator:
    """Return an operator that applies a function to its output.

    Args:
        operator: It has an epilogue.
        inputs: The arrays that the function reads.
        numbers: The names of its numbers.
        make: Returns the function for elements of a dtype, which is a ``fused::store``.
        name: What tells it from other functions.

    Raises:
        OperatorError: If there is no seam, or it takes too many inputs.
    """
    seam, output = _seam(operator, "epilogue", inputs, numbers), operator.outputs[0]

    def dtype(case: Case) -> str:
        return str(operator.resolve_dtype(output.dtype, case))

    made = Output(
        output.name,
        lambda case: make(dtype(case)).dtype,
        lambda case: operator.results(case)[0][0],
        taken_as=output.taken_as or output.dtype,
    )

    def configuration(case: Case) -> Mapping[str, object]:
        _check_inputs(operator, inputs, operator.results(case)[0][0], case)
        return dict(operator.configuration(case))

    return replace(
        operator,
        qualname=_qualname(operator, "epilogue", name),
        arguments=_with_inputs(operator.arguments, inputs, numbers),
        outputs=(made,),
        configuration=configuration,
        parameters=_with_table(operator.parameters, "epilogue", inputs, numbers),
        backward=None,
        epilogue=None,
        sources=_sources(operator, seam, lambda case: make(dtype(case)), lambda case: case),
    )


def fuse_prologue(operator: Operator, function: Function, rank: int, name: str) -> Operator:
    """Return an operator whose kernel computes the elements of an argument.

    The argument goes; its sizes that no other array has are flags in its place.

    Args:
        operator: It has a prologue.
        function: A ``fused::load``.
        rank: The number of dimensions that the argument would have.
        name: What tells it from other functions.

    Raises:
        OperatorError: If there is no seam, or it takes too many inputs.
    """
    seam = _seam(operator, "prologue", function.inputs, function.numbers)
    gone = next(array for array in operator.arrays if array.name == seam.array)
    flags = [Flag(name, "int") for name in sizes_by_name(operator, (0,) * rank)]
    star = next((str(size)[1:] for size in operator.patterns[gone.name] if str(size)[0] == "*"), None)
    parts = [flag.name for flag in flags if star and flag.name.removeprefix(star).isdecimal()]
    dtype = {} if gone.dtype in DTYPES else {gone.dtype: DType(function.dtype)}

    def whole(case: Case) -> Case:
        names = {name: value for name, value in vars(case).items() if name not in ("given", "_where")}
        several = {str(star): tuple(names[part] for part in parts)} if parts else {}
        return Case({**names, **several, **dtype}, case.given, operator.qualname)

    def whole_of(function: Any) -> Any:
        return (lambda case: function(whole(case))) if callable(function) else function

    def results(case: Case) -> tuple[tuple[Any, ...], str]:
        shape, name = operator.results(whole(case))[0]
        return shape, name

    output = operator.outputs[0]
    made = Output(
        output.name,
        lambda case: results(case)[1],
        lambda case: results(case)[0],
        taken_as=lambda case: operator.resolve_dtype(output.taken_as or output.dtype, whole(case)),
    )
    arguments = [argument for argument in operator.arguments if argument is not gone]
    parameters = [None if each == gone.name else whole_of(each) for each in operator.parameters]
    return replace(
        operator,
        qualname=_qualname(operator, "prologue", name),
        arguments=_with_inputs(arguments, function.inputs, function.numbers, flags),
        outputs=(made,),
        configuration=whole_of(operator.configuration),
        launch=whole_of(operator.launch),
        parameters=_with_table(parameters, "prologue", function.inputs, function.numbers),
        backward=None,
        prologue=None,
        sources=_sources(operator, seam, lambda _: function, whole),
        examples=({},),
    )


def sizes_by_name(operator: Operator, shape: Sequence[Any]) -> dict[str, Any]:
    """Return the sizes that only the argument of a prologue has, by the names of the flags that take their place."""
    assert operator.prologue is not None  # noqa: S101 - the caller has asked
    name = operator.prologue.array
    bound = {size for array in operator.arrays if array.name != name for size in operator.patterns[array.name]}
    names: list[str | int] = []
    pattern = operator.patterns[name]
    for size in pattern:
        is_star = isinstance(size, str) and size[0] == "*"
        names += [f"{str(size)[1:]}{n}" for n in range(len(shape) - len(pattern) + 1)] if is_star else [size]
    return {
        str(name): size for name, size in zip(names, shape, strict=True) if name not in bound and isinstance(name, str)
    }


def _seam(operator: Operator, side: str, inputs: Sequence[Input], numbers: Sequence[str]) -> Seam:
    seam: Seam | None = getattr(operator, side)
    if seam is None:
        raise operator.error(f"the operator declares no {side}", f"declare one: Operator(..., {side}=Seam(...))", side)
    if len(inputs) > _MOST_INPUTS or len(numbers) > _MOST_INPUTS:
        what = f"a function of {len(inputs)} arrays and {len(numbers)} numbers"
        raise operator.error(what, f"use {_MOST_INPUTS} of each at most", side)
    return seam


def _qualname(operator: Operator, side: str, name: str) -> str:
    digest = hashlib.sha256(f"{operator.qualname} {side} {name}".encode()).hexdigest()
    return f"{operator.qualname}_{digest[:16]}"


def _with_inputs(
    arguments: Sequence[Argument], inputs: Sequence[Input], numbers: Sequence[str], flags: Sequence[Flag] = ()
) -> tuple[Argument, ...]:
    """Return arguments with further ones, before the first that has a default."""
    place = next((n for n, each in enumerate(arguments) if each.default is not REQUIRED), len(arguments))
    added: list[Argument] = [Array(e.name, e.dtype, f"*{e.name}_sizes", aligned=True) for e in inputs]
    added += [Scalar(number, "float") for number in numbers]
    return (*arguments[:place], *added, *flags, *arguments[place:])


def _with_table(
    parameters: Sequence[Any], side: str, inputs: Sequence[Input], numbers: Sequence[str]
) -> tuple[Any, ...]:
    """Return a kernel's parameters with what leads to a function's inputs: a table only if there are several."""
    names = (*(each.name for each in inputs), *numbers)
    passed = Table(names) if len(names) > 1 or numbers else names[0] if names else None
    return tuple(passed if each == side else each for each in parameters)


def _sources(
    operator: Operator, seam: Seam, function: Callable[[Case], Function], whole: Callable[[Case], Case]
) -> Callable[[Case], Mapping[str, str]]:
    def sources(case: Case) -> Mapping[str, str]:
        case = whole(case)
        text = seam.source(case) if callable(seam.source) else seam.source
        before = operator.sources(case) if operator.sources else {}
        return {**before, f"{seam.group}.cu": f"{prelude()}{function(case).text}{text}"}

    return sources


def _check_inputs(operator: Operator, inputs: Sequence[Input], shape: Sequence[Any], case: Case) -> None:
    """Check that a function's arrays have the shapes that it reads."""
    whole = tuple(shape)
    for each in inputs:
        sizes = tuple(getattr(case, f"{each.name}_sizes"))
        fits = {
            "element": sizes == whole,
            "row": sizes in (whole[:-1], (*whole[:-1], 1)),
            "column": sizes[-1:] == whole[-1:] and all(size == 1 for size in sizes[:-1]),
            "one": all(size == 1 for size in sizes),
        }
        if not fits.get(each.access, True):
            what = f"{each.name} has the shape {sizes}, but is read by {each.access}"
            raise operator.error(what, f"the output has the shape {whole}")
