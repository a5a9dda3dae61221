"""Operators with a function in the place of a group: what the seams of a declaration are for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from jitlto.frameworks.functions import Function, Input, prelude
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Case, Flag, Output, Scalar, Seam, Table
from jitlto.frameworks.shapes import DTYPES, DType, bind_shape

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

    Flags take the argument's place: ``NAME_size0`` and so on, the sizes that it would have.

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
    flags = [Flag(f"{gone.name}_size{number}", "int") for number in range(rank)]
    dtype = {} if gone.dtype in DTYPES else {gone.dtype: DType(function.dtype)}

    def whole(case: Case) -> Case:
        """Bind the names of the argument's shape and dtype too."""
        names = {name: value for name, value in vars(case).items() if name not in ("given", "_where")} | dtype
        wrong = bind_shape(operator.patterns[gone.name], [names[flag.name] for flag in flags], names)
        if wrong:
            raise operator.error(f"{gone.name}, which is computed, {wrong}", "correct the shapes of what it is made of")
        return Case(names, case.given, operator.qualname)

    def whole_of(function: Any) -> Any:
        if function in operator.sizes:  # the name of one, which may be the argument's alone
            return lambda case: getattr(whole(case), function)
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
