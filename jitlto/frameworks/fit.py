"""Whether a call of an operator fits the kernel that it chooses, found without a device: by plan and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from jitlto.base.errors import JitltoError, LaunchError, OperatorError
from jitlto.base.types import Parameter, find_scalar
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import Array, Call, Flag
from jitlto.launch.argument_errors import count_error
from jitlto.launch.arguments import pointed_type
from jitlto.launch.step import check_shape, make_packing
from jitlto.runtime.family import KernelFamily

if TYPE_CHECKING:
    from jitlto.plan.plan import Plan

#: Stands for the value of a scalar that is known to no one before the launch.
UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "unknown"})()
_EXAMPLES: Mapping[str, object] = {"int": 1, "float": 0.5, "bool": True}
_TYPESTR = {"bool": "|b1", "bfloat16": "<V2"}  # where NumPy does not say it
_MOST_THREADS = 1024  # of a block, on every architecture


def check_call(operator: Operator, values: Sequence[Any]) -> Plan | None:
    """Check a call against the kernel that it would launch, with no device.

    Args:
        operator: The declaration.
        values: As for :meth:`Operator.bind`, with sizes that are ints; of a scalar its value or :data:`UNKNOWN`.

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
        kernel, signature = plan.entry.key.text, plan.entry.signature
        arrays = {n: v[1] for n, v in enumerate(values) if isinstance(operator.arguments[n], Array) and v is not None}
        check_arguments(kernel, signature, call, arrays)
        _check_values(operator, signature, call, values)
        _check_written(operator, signature, call, arrays)
        launch = call.launch
        _, block, _ = check_shape(kernel, launch.grid, launch.block, launch.shared_memory, launch.cluster)
        if prod(block) > _MOST_THREADS:
            what = f"a block of {prod(block)} threads is larger than {_MOST_THREADS}"
            raise LaunchError(what, code="launch-config", where=kernel, hint="correct the function for the launch")
    except JitltoError as error:
        error.add_note(f"in the operator {operator.qualname}")
        raise
    return plan


def check_arguments(kernel: str, signature: Sequence[Parameter], call: Call, arrays: Mapping[int, str]) -> None:
    """Check that a kernel takes as many arguments as a call passes, and the arrays among them.

    Args:
        kernel: Its name in messages.
        signature: Its parameters.
        call: The call.
        arrays: For each argument that is an array and given, its dtype.

    Raises:
        ArgumentError: If it does not.
    """
    if len(call.parameters) != len(signature):
        raise count_error(kernel, signature, len(call.parameters))
    converters = make_packing(tuple(signature)).converters
    for (kind, place), parameter, convert in zip(call.parameters, signature, converters, strict=True):
        dtype = call.results[place][1] if kind == "output" else arrays.get(place) if kind == "input" else None
        if dtype is None:
            continue
        target, typestr = pointed_type(parameter), _TYPESTR.get(dtype)
        if target is not None and dtype.startswith("float8"):
            if find_scalar(target) is None:
                continue  # NumPy has no name for it
            typestr = "|V1"
        # Structures and numbers refuse every array.
        interface = {"typestr": typestr or np.dtype(dtype).str, "shape": (0,), "data": (0, False), "version": 3}
        convert(SimpleNamespace(__cuda_array_interface__=interface))


def _check_values(operator: Operator, signature: Sequence[Parameter], call: Call, values: Sequence[Any]) -> None:
    """Check the numbers that a kernel is passed: each as its type, and those that are known as they are."""
    parts = zip(operator.parameters, call.parameters, signature, strict=True)
    for (declared, (kind, value), parameter), convert in zip(
        parts, make_packing(tuple(signature)).converters, strict=True
    ):
        argument = operator.arguments[value] if kind == "input" else None
        if kind == "output" or isinstance(argument, Array):
            continue
        passed, is_address = [value], callable(declared)
        if argument is not None:
            passed = [] if isinstance(argument, Flag) else [_EXAMPLES[argument.type]]
            passed += [] if values[value] is UNKNOWN else [values[value]]
            is_address = argument.type == "int" and not isinstance(argument, Flag)
        for each in passed:
            if pointed_type(parameter) is None:
                convert(each)
            elif each is not None and not (each == 0 or is_address):
                what = f"the number {declared!r} is passed for {parameter}"
                hint = "name an array, or pass None"
                raise OperatorError(what, code="operator-parameter", where=operator.qualname, hint=hint)


def _check_written(operator: Operator, signature: Sequence[Parameter], call: Call, arrays: Mapping[int, str]) -> None:
    """Check that each output, and each array that is declared as mutated, is passed where the kernel may write."""
    written: dict[tuple[str, Any], str] = {("output", n): output.name for n, output in enumerate(operator.outputs)}
    for number in arrays:
        argument = operator.arguments[number]
        if isinstance(argument, Array) and argument.mutated:
            written["input", number] = argument.name
    taken: dict[tuple[str, Any], Parameter] = {}
    for place, parameter in zip(call.parameters, signature, strict=True):
        if place[0] != "value" and place in written:
            taken[place] = parameter
            if "const" not in (pointed_type(parameter) or "const").split():
                del written[place]
    for place, name in written.items():
        what = f"it takes {taken[place]}" if place in taken else "it is not passed"
        what = f"the kernel cannot write to {name}: {what}"
        hint = f"name {name} in parameters where the kernel takes a pointer to what it writes"
        raise OperatorError(what, code="operator-output", where=operator.qualname, hint=hint)
