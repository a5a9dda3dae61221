"""What PyTorch's transforms have to know of an operator; what is not supported is an error that names the cause."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode  # PyTorch has no public name for it

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Output, Scalar

#: The overload of an operator that takes floats as tensors without dimensions.
TENSORS = "tensors"
# The dispatch key by which torch.func takes a call first.
_TAKING = "FuncTorchDynamicLayerFrontMode"


def float_scalars(operator: Operator) -> tuple[int, ...]:
    """Return the numbers of the arguments that are floats."""
    return tuple(number for number, argument in enumerate(operator.arguments) if is_float(argument))


def is_float(argument: Argument) -> bool:
    """Return whether an argument is a number that is a float."""
    return isinstance(argument, Scalar) and argument.type == "float"


def is_left_out(argument: Argument) -> bool:
    """Return whether a schema holds None in the place of an argument's default.

    It has no notation for infinities and NaN, and reads no subnormal numbers; and PyTorch drops an argument that equals
    its default, as -0.0 equals 0.0.
    """
    default: Any = argument.default
    if not is_float(argument) or default is REQUIRED:
        return False
    return not math.isfinite(default) or abs(default) < sys.float_info.min


def complete(operator: Operator, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a call with the defaults of those that PyTorch leaves out."""
    whole = (*args, *(argument.default for argument in operator.arguments[len(args) :]))
    return tuple(
        argument.default if value is None and is_left_out(argument) else value
        for argument, value in zip(operator.arguments, whole, strict=True)
    )


def register_varying_floats(operator: Operator, made: Any, overload: Any, library: Any) -> None:
    """Have compiled code pass floats that vary as tensors, to another overload.

    A float becomes a symbol in a graph when it has its second value. What is left of such symbols where a graph is
    optimised is replaced by the value that they have there, with a guard that may get lost (PyTorch issue 197889).
    Arithmetic with tensors is what they are turned into without that.
    """

    def rule(mode: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not any(isinstance(value, torch.SymFloat) for value in args):
            return mode.__torch_dispatch__(function, types, args, kwargs)
        passed = list(complete(operator, args))
        with mode:
            for number in float_scalars(operator):
                # A product and no sum, which would change the sign of -0.0.
                passed[number] = torch.ones((), dtype=torch.float64) * passed[number]
            return overload(*passed)

    torch.library.register_torch_dispatch(made.name(), FunctionalTensorMode, rule, lib=library)


def call_with_numbers(operator: Operator, call: Callable[..., Any], *args: Any) -> Any:
    """Call the operator with numbers, as the overload of tensors is called."""
    floats = float_scalars(operator)
    return call(*(value.item() if number in floats else value for number, value in enumerate(args)))


def has_tangent(operator: Operator) -> bool:
    """Return whether results of an operator may have derivatives: whether any is of real or complex numbers."""
    results: list[Array | Output] = [*operator.outputs, *(array for array in operator.arrays if array.mutated)]
    dtypes = [
        (operator.dtypes or {}).get(r.dtype, (r.dtype,)) if isinstance(r.dtype, str) else ("float",) for r in results
    ]
    return any(name.startswith(("float", "bfloat", "complex")) for names in dtypes for name in names)


def refuse_tangents(operator: Operator, arrays: Sequence[Any]) -> None:
    """Refuse tensors that carry a tangent, since the kernel would drop it.

    Raises:
        OperatorError: If one does.
    """
    unpack = torch.autograd.forward_ad.unpack_dual
    try:
        has_one = any(array is not None and unpack(array).tangent is not None for array in arrays)
    except RuntimeError:  # in a trace of torch.func.linearize, which hides tangents from what is below autograd
        has_one = True
    if has_one:
        raise _transform_error(operator)


def arrays_of(operator: Operator, args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call that are arrays."""
    return [value for a, value in zip(operator.arguments, args, strict=False) if isinstance(a, Array)]


def refuse_transforms(operator: Operator, made: Any, library: Any) -> None:
    """Have ``torch.func`` refuse an operator: without a rule of its own it would drop tangents, and gradients."""
    take, is_wrapped = torch.library.get_kernel(made, _TAKING), torch._C._functorch.is_functorch_wrapped_tensor

    def call(keys: Any, *args: Any) -> Any:
        if any(is_wrapped(value) for value in args if isinstance(value, torch.Tensor)):
            raise _transform_error(operator)
        return take.call_boxed(keys, *args)

    library.impl(operator.name, call, _TAKING, with_keyset=True)


def _transform_error(operator: Operator) -> OperatorError:
    return OperatorError(
        "an argument is transformed by torch.func or has a tangent, and operators have no rules for that",
        code="operator-forward",
        where=operator.qualname,
        hint="differentiate by torch.autograd, in reverse mode; in place of vmap, declare *batch in the shapes",
    )
