"""Whether a call of an operator fits the kernel that it chooses, found without a device: by plan and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from jitlto.base.errors import JitltoError, LaunchError
from jitlto.base.types import Parameter, argument_error, count_error, find_scalar
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import Array, Call, Output, Scalar
from jitlto.frameworks.shapes import DType
from jitlto.launch.arguments import pointed_type
from jitlto.launch.step import check_shape, make_packing
from jitlto.runtime.family import KernelFamily

if TYPE_CHECKING:
    from jitlto.plan.plan import Plan

_EXAMPLES: Mapping[str, object] = {"int": 1, "float": 0.5, "bool": True}
_MOST_THREADS = 1024  # of a block, on every architecture


def check_call(operator: Operator, values: Sequence[Any]) -> Plan | None:
    """Check a call against the kernel that it would launch, with no device.

    Args:
        operator: The declaration.
        values: As for :meth:`Operator.bind`, with sizes that are ints; of a scalar its value, or anything that is no
            number where that is known to no one before the launch.

    Returns:
        The kernel's plan; None if there is nothing to launch, or the family is no family of a database.

    Raises:
        JitltoError: As the first launch would: the call does not fit the declaration, chooses no kernel, or passes what
            that does not take.
        OperatorError: If the kernel cannot write to an output.
    """
    call = operator.resolve(operator.bind(values))
    if call.launch is None or not isinstance(operator.loaded, KernelFamily):
        return None
    try:
        plan = operator.plan(call)
        kernel = plan.entry.key.text
        _check_arguments(operator, kernel, plan.entry.signature, call, values)
        launch = call.launch
        _, block, _ = check_shape(kernel, launch.grid, launch.block, launch.shared_memory, launch.cluster)
        if prod(block) > _MOST_THREADS:
            what = f"a block of {prod(block)} threads is larger than {_MOST_THREADS}"
            raise LaunchError(what, code="launch-config", where=kernel, hint="correct the function for the launch")
    except JitltoError as error:
        error.add_note(f"in the operator {operator.qualname}")
        raise
    return plan


def _check_arguments(
    operator: Operator, kernel: str, signature: Sequence[Parameter], call: Call, values: Sequence[Any]
) -> None:
    """Check that a kernel takes what a call passes, and may write to what is declared as written."""
    if len(call.parameters) != len(signature):
        raise count_error(kernel, signature, len(call.parameters))
    parts = (*operator.arguments, *operator.outputs)
    given = (*values, *call.results)
    written = {
        place: part.name
        for place, part in enumerate(parts)
        if getattr(part, "mutated", isinstance(part, Output)) and given[place] is not None
    }
    taken: dict[int, Parameter] = {}
    converters = make_packing(tuple(signature)).converters
    for declared, (place, value), parameter, convert in zip(
        operator.parameters, call.parameters, signature, converters, strict=True
    ):
        if isinstance(place, tuple):  # a table, for a seam's own source
            continue
        target, part = pointed_type(parameter), None if place is None else parts[place]
        if place is not None and isinstance(part, Array | Output):
            if isinstance(part, Array) or not call.sources:  # what a function writes has a dtype of its own
                _check_array(parameter, target, given[place][1])
            if place in written:
                taken[place] = parameter
                if "const" not in (target or "const").split():
                    del written[place]
            continue
        is_address = callable(declared)
        if place is not None and isinstance(part, Scalar):
            value, is_address = given[place], part.type == "int"
            value = value if isinstance(value, int | float | complex) else _EXAMPLES[part.type]
        if target is None:
            convert(value)
        elif value is not None and not (value == 0 or is_address):
            what = f"the number {declared!r} is passed for {parameter}"
            raise operator.error(what, "name an array, or pass None", "parameter")
    for place, name in written.items():
        what = f"it takes {taken[place]}" if place in taken else "it is not passed"
        hint = f"name {name} in parameters where the kernel takes a pointer to what it writes"
        raise operator.error(f"the kernel cannot write to {name}: {what}", hint, "output")


def _check_array(parameter: Parameter, target: str | None, dtype: str) -> None:
    """Check that a parameter takes an array of a dtype; structures and numbers refuse every array."""
    known = None if target is None else find_scalar(target)
    if target is None or (known is not None and known.name != DType(dtype).cpp):
        case = "type" if target is None else "dtype"
        hint = "name in parameters what the kernel takes, in its order"
        raise argument_error(parameter, case, f"it is passed an array of {dtype}", hint)
