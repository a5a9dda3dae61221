"""Operators of PyTorch, made from declarations.

They are registered with ``Library.define`` and ``impl``, which costs a call less than ``torch.library.custom_op`` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jitlto.errors import OperatorError
from jitlto.runtime.operators.declaration import Backward, Operator
from jitlto.runtime.operators.parts import REQUIRED, Argument, Array, Scalar
from jitlto.runtime.operators.torch_kernel import (
    Backend,
    Cuda,
    Implementation,
    defaults_of,
    describe,
    first_array,
    returned,
    torch_dtypes,
)

#: Makes the backend; a function that tests can replace where there is no GPU.
make_backend: Callable[[], Backend] = Cuda

_lock = threading.RLock()
_registered: dict[str, tuple[Operator, Any, Any]] = {}  # by qualified name: the declaration, its library, the operator


def torch_operator(operator: Operator) -> Any:
    """Register an operator with PyTorch and return it, which is ``torch.ops.<namespace>.<name>.default``.

    It runs on CUDA tensors, on their device and in its current stream; ``torch.compile`` and ``torch.export`` trace it
    without a graph break, and gradients flow if the declaration has a ``backward``. Tensors that are not contiguous are
    copied first. A second declaration of a name replaces the first, so that a cell of a notebook can be run again.

    Args:
        operator: The declaration.

    Raises:
        OperatorError: If PyTorch is not installed, or a library has defined an operator of this name.
    """
    try:
        import torch
    except ImportError as error:
        what = f"PyTorch cannot be imported: {error}"
        raise OperatorError(what, code="operator-framework", hint="install torch") from None

    with _lock:
        known = _registered.get(operator.qualname)
        if known is not None and known[0] is operator:
            return known[2]
        if known is not None:
            known[1]._destroy()
            del _registered[operator.qualname]
        # Registered first: nothing is left behind if it fails.
        second = torch_operator(operator.backward.operator) if operator.backward else None
        backend = make_backend()
        library = torch.library.Library(operator.namespace, "FRAGMENT")
        try:
            library.define(schema(operator), tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
        except RuntimeError as error:
            hint = "choose another name or namespace"
            what = f"PyTorch refuses the operator: {str(error).splitlines()[0]}"
            raise OperatorError(what, code="operator-framework", where=operator.qualname, hint=hint) from error
        library.impl(operator.name, Implementation(operator, backend).call, backend.key)
        torch.library.register_fake(operator.qualname, _fake(operator), lib=library)
        if operator.backward is not None:
            backward, setup_context = _gradients(operator, operator.backward, second)
            torch.library.register_autograd(operator.qualname, backward, setup_context=setup_context, lib=library)
        made = getattr(getattr(torch.ops, operator.namespace), operator.name).default
        _registered[operator.qualname] = operator, library, made
        return made


def schema(operator: Operator) -> str:
    """Return an operator's schema in PyTorch's notation, without its namespace."""
    arguments = ", ".join(_argument(number, argument) for number, argument in enumerate(operator.arguments))
    results = ", ".join("Tensor" for _ in operator.outputs)
    return f"{operator.name}({arguments}) -> {results if len(operator.outputs) == 1 else f'({results})'}"


def _argument(number: int, argument: Argument) -> str:
    if isinstance(argument, Array):
        alias = f"(a{number}!)" if argument.mutated else ""
        return f"Tensor{alias}{'?' if argument.optional else ''} {argument.name}{'=None' if argument.optional else ''}"
    # A scalar may be a symbol in a graph; a flag is a number of the graph.
    kind = "SymInt" if isinstance(argument, Scalar) and argument.type == "int" else argument.type
    if argument.default is REQUIRED:
        return f"{kind} {argument.name}"
    default = argument.default
    text = '"' + default.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(default, str) else str(default)
    return f"{kind} {argument.name}={text}"


def _fake(operator: Operator) -> Callable[..., Any]:
    """Return the function that makes the outputs of a call without memory."""
    import torch

    defaults, first, dtypes = defaults_of(operator), first_array(operator), torch_dtypes()

    def fake(*args: Any) -> Any:
        args += defaults[len(args) :]
        results = operator.results(operator.bind(describe(operator, args)))
        made = tuple(torch.empty(shape, dtype=dtypes[dtype], device=args[first].device) for shape, dtype in results)
        return returned(made)

    return fake


def _gradients(operator: Operator, backward: Backward, second: Any) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Return what PyTorch's autograd takes: a function for the gradients, and one that saves what that needs."""
    positions = {argument.name: number for number, argument in enumerate(operator.arguments)}
    outputs = {output.name: number for number, output in enumerate(operator.outputs)}
    arrays = {array.name for array in operator.arrays} | set(outputs)
    saved = [name for name in dict.fromkeys(backward.arguments) if name in arrays]
    others = [name for name in dict.fromkeys(backward.arguments) if name in positions and name not in arrays]

    def compute(_: Any, *values: Any) -> Any:
        return second(*values)

    if backward.operator.backward is None:  # second derivatives are an error, and not silently those of a constant
        from torch.autograd.function import once_differentiable

        compute = once_differentiable(compute)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        made = output if isinstance(output, tuple) else (output,)
        ctx.save_for_backward(
            *(inputs[positions[name]] if name in positions else made[outputs[name]] for name in saved)
        )
        ctx.others = {name: inputs[positions[name]] for name in others}

    def gradients(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        known = dict(zip(saved, ctx.saved_tensors, strict=True)) | ctx.others
        known |= {f"grad_{name}": grads[number] for name, number in outputs.items()}
        made = compute(ctx, *(known[name] for name in backward.arguments))
        found = dict(zip(backward.gradients, made if isinstance(made, tuple) else (made,), strict=True))
        return tuple(found.get(argument.name) for argument in operator.arguments)

    return gradients, setup_context
