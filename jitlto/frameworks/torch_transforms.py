"""What PyTorch's transforms need of an operator beside its kernel: numbers that vary in compiled code, ``torch.func``.

None costs an eager call anything: each is registered where only the transform looks.
"""

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
# The dispatch keys by which torch.func takes a call first, and takes tensors out of the wrappers with their tangents.
_TAKING, _UNWRAPPING = "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode"


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
        for array in arrays:
            if array is not None and unpack(array).tangent is not None:
                raise _forward_error(operator)
    except RuntimeError:  # in a trace of torch.func.linearize, which hides tangents from what is below autograd
        raise _forward_error(operator) from None


def arrays_of(operator: Operator, args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call that are arrays."""
    return [value for a, value in zip(operator.arguments, args, strict=False) if isinstance(a, Array)]


def _forward_error(operator: Operator) -> OperatorError:
    return OperatorError(
        "an argument has a tangent, and the operator has no derivative in forward mode",
        code="operator-forward",
        where=operator.qualname,
        hint="differentiate in reverse mode (torch.func.vjp, torch.func.jacrev), or pass tensor.detach()",
    )


def register_forward_mode(operator: Operator, made: Any, library: Any) -> None:
    """Have ``torch.func.jvp`` and what is built on it refuse an operator without gradients: it would return zeros."""
    unwrap = torch.library.get_kernel(made, _UNWRAPPING)

    def refuse(keys: Any, *args: Any) -> Any:
        refuse_tangents(operator, arrays_of(operator, args))
        return unwrap.call_boxed(keys, *args)

    library.impl(operator.name, refuse, _UNWRAPPING, with_keyset=True)


def make_function(
    operator: Operator, made: Any, backward: Callable[..., Any] | None, setup_context: Callable[..., None]
) -> Any:
    """Return an ``autograd.Function`` that calls an operator, which ``torch.func`` can transform.

    Args:
        operator: The declaration.
        made: The operator of PyTorch.
        backward: Returns the gradients; None if there are none, which is an error where they are asked for.
        setup_context: Saves what it needs.
    """

    def forward(*args: Any) -> Any:
        return made(*args)

    def refuse_backward(*_: Any) -> Any:
        what, hint = "the operator has no backward", "declare a Backward for it, or pass tensor.detach()"
        raise OperatorError(what, code="operator-backward", where=operator.qualname, hint=hint)

    def jvp(*_: Any) -> Any:
        raise _forward_error(operator)

    function: Any = None

    def vmap(info: Any, dimensions: Sequence[int | None], *args: Any) -> Any:
        if info.batch_size == 0:
            what, hint = "torch.vmap over a dimension of size 0", "leave the call out"
            raise OperatorError(what, code="operator-call", where=operator.qualname, hint=hint)
        calls = [
            function.apply(*(a if d is None else a.select(d, number) for a, d in zip(args, dimensions, strict=True)))
            for number in range(info.batch_size)
        ]
        if len(operator.outputs) == 1:
            return torch.stack(calls), 0
        return tuple(map(torch.stack, zip(*calls, strict=True))), (0,) * len(operator.outputs)

    methods = {"forward": forward, "setup_context": setup_context, "backward": backward or refuse_backward}
    members = {name: staticmethod(method) for name, method in {**methods, "jvp": jvp, "vmap": vmap}.items()}
    function = type(operator.name, (torch.autograd.Function,), members)
    return function


def register_function(operator: Operator, made: Any, function: Any, library: Any) -> None:
    """Have ``torch.func`` call an operator with gradients as a function of :func:`make_function`.

    What ``torch.library.register_autograd`` makes works with ``torch.autograd`` alone.
    """
    take = torch.library.get_kernel(made, _TAKING)

    def call(keys: Any, *args: Any) -> Any:
        if any(isinstance(value, torch.Tensor) and torch._is_functional_tensor(value) for value in args):
            return take.call_boxed(keys, *args)  # torch.func.functionalize has no rule for functions
        return function.apply(*complete(operator, args))

    library.impl(operator.name, call, _TAKING, with_keyset=True)
