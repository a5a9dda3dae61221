"""Operators of PyTorch, made from declarations.

They are registered with ``Library.define`` and ``impl``, which costs a call less than ``torch.library.custom_op`` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor  # PyTorch has no public name for it
from torch.autograd.function import once_differentiable

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Backward, Operator
from jitlto.frameworks.fit import UNKNOWN, check_call
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Scalar
from jitlto.frameworks.torch_kernel import (
    Cuda,
    Implementation,
    bind,
    describe,
    make_outputs,
    returned,
)
from jitlto.frameworks.torch_transforms import (
    TENSORS,
    arrays_of,
    complete,
    float_scalars,
    has_tangent,
    is_left_out,
    make_function,
    refuse_tangents,
    register_forward_mode,
    register_function,
    register_varying_floats,
    without_tensors,
)

#: Makes the backend; a function that tests can replace where there is no GPU.
make_backend: Callable[[], Any] = Cuda

_lock = threading.RLock()
_registered: dict[str, tuple[Operator, Any, Any]] = {}  # by qualified name: the declaration, its library, the operator


def register(operator: Operator) -> Any:
    """Register an operator and return it; see :func:`jitlto.torch_operator`."""
    with _lock:
        known = _registered.get(operator.qualname)
        if known is not None and known[0] is operator:
            return known[2]
        if known is not None:
            known[1]._destroy()
            del _registered[operator.qualname]
        # Registered first: nothing is left behind if it fails.
        second = register(operator.backward.operator) if operator.backward else None
        backend = make_backend()
        library = torch.library.Library(operator.namespace, "FRAGMENT")
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
        varying = bool(float_scalars(operator))
        try:
            library.define(schema(operator), tags=tags)
            if varying:
                # The kernel gets a number that varies by value, and a captured graph would keep the first.
                library.define(schema(operator, TENSORS), tags=(*tags, torch.Tag.cudagraph_unsafe))
        except RuntimeError as error:
            hint = "choose another name or namespace"
            what = f"PyTorch refuses the operator: {str(error).splitlines()[0]}"
            raise OperatorError(what, code="operator-framework", where=operator.qualname, hint=hint) from error
        packet = getattr(getattr(torch.ops, operator.namespace), operator.name)
        made, call, fake = packet.default, Implementation(operator, backend).call, _fake(operator)
        calls = {"CPU": _refuse_cpu(operator), backend.key: call}
        for key, implementation in calls.items():
            library.impl(operator.name, implementation, key)
        torch.library.register_fake(operator.qualname, fake, lib=library)
        if varying:
            for key, implementation in calls.items():
                library.impl(f"{operator.name}.{TENSORS}", without_tensors(operator, implementation), key)
            torch.library.register_fake(f"{operator.qualname}.{TENSORS}", fake, lib=library)
            register_varying_floats(operator, made, getattr(packet, TENSORS), library)
        if operator.backward is not None:
            _register_gradients(operator, operator.backward, made, second, library)
        elif has_tangent(operator):
            register_forward_mode(operator, made, library)
        _registered[operator.qualname] = operator, library, made
        return made


def _refuse_cpu(operator: Operator) -> Callable[..., Any]:
    """Return what a call does whose tensors are all on the CPU, in place of PyTorch's list of what is registered."""

    def refuse(*_: Any) -> Any:
        what, hint = "the tensors are on the CPU", "move them to a CUDA device: tensor.cuda()"
        raise OperatorError(what, code="operator-call", where=operator.qualname, hint=hint)

    return refuse


def schema(operator: Operator, overload: str = "") -> str:
    """Return an operator's schema in PyTorch's notation, without its namespace.

    Args:
        operator: The declaration.
        overload: Empty, or that which takes floats as tensors.
    """
    make = _argument_of_tensors if overload else _argument
    arguments = ", ".join(make(number, argument) for number, argument in enumerate(operator.arguments))
    results = ", ".join("Tensor" for _ in operator.outputs)
    name = f"{operator.name}.{overload}" if overload else operator.name
    return f"{name}({arguments}) -> {results if len(operator.outputs) == 1 else f'({results})'}"


def _argument(number: int, argument: Argument) -> str:
    if isinstance(argument, Array):
        return f"{_type(number, argument)} {argument.name}{'=None' if argument.optional else ''}"
    default, kind = argument.default, _type(number, argument)
    if default is REQUIRED:
        return f"{kind} {argument.name}"
    if is_left_out(argument):
        return f"{kind}? {argument.name}=None"
    if isinstance(default, str):
        escaped = default.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{kind} {argument.name}="{escaped}"'
    return f"{kind} {argument.name}={float(default) if kind == 'Scalar' else default}"  # type: ignore[arg-type]


def _argument_of_tensors(number: int, argument: Argument) -> str:
    kind = _type(number, argument)
    return f"{'Tensor' if kind == 'Scalar' else kind} {argument.name}"


def _type(number: int, argument: Argument) -> str:
    if isinstance(argument, Array):
        return f"Tensor{f'(a{number}!)' if argument.mutated else ''}{'?' if argument.optional else ''}"
    # A scalar may be a symbol in a graph, of which C++ would make a number if it was declared as float; a flag is a
    # number of the graph.
    symbolic = {"int": "SymInt", "float": "Scalar"} if isinstance(argument, Scalar) else {}
    return symbolic.get(argument.type, argument.type)


def _fake(operator: Operator) -> Callable[..., Any]:
    """Return the function that makes the outputs of a call without memory, and checks that the kernel takes it."""

    def fake(*args: Any) -> Any:
        args = complete(operator, args)
        first = args[operator.first_array]
        if has_tangent(operator) and not isinstance(first, FakeTensor):  # in a trace, torch.func has seen to it before
            refuse_tangents(operator, arrays_of(operator, args))
        results = operator.results(bind(operator, args))
        known = _without_symbols(operator, describe(operator, args))
        if known is not None:
            check_call(operator, known)
        return returned(make_outputs(results, first.device))

    return fake


def _without_symbols(operator: Operator, described: Sequence[Any]) -> list[Any] | None:
    """Return the arguments of a call with the example's sizes for symbols; None if a size has no example."""
    values: list[Any] = []
    for argument, value in zip(operator.arguments, described, strict=True):
        if isinstance(argument, Array) and value is not None:
            sizes = [size if isinstance(size, int) else _example(size) for size in value[0]]
            if None in sizes:
                return None
            values.append((tuple(sizes), value[1]))
        else:
            unknown = (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)
            values.append(UNKNOWN if isinstance(argument, Scalar) and isinstance(value, unknown) else value)
    return values


def _example(size: Any) -> int | None:
    """Return the size that a symbol had when the graph was made, without a guard on it."""
    return int(size.node.hint) if size.node.has_hint() else None


def _register_gradients(operator: Operator, backward: Backward, made: Any, second: Any, library: Any) -> None:
    """Register the gradients of an operator, for ``torch.autograd`` and for ``torch.func``."""
    setup_context = _saving(operator, backward)
    first, transformed = second, second
    if backward.operator.backward is None:  # second derivatives are an error, and not silently those of a constant
        first = partial(once_differentiable(lambda _, *values: second(*values)), None)
        transformed = make_function(backward.operator, second, None, lambda *_: None).apply
    compute, transformed = (_gradients(operator, backward, each) for each in (first, transformed))
    torch.library.register_autograd(operator.qualname, compute, setup_context=setup_context, lib=library)
    register_function(operator, made, make_function(operator, made, transformed, setup_context), library)


def _saved(operator: Operator, backward: Backward) -> list[str]:
    """Return the names of the arrays that the gradients are computed from."""
    arrays = {array.name for array in operator.arrays} | {output.name for output in operator.outputs}
    return [name for name in dict.fromkeys(backward.arguments) if name in arrays]


def _saving(operator: Operator, backward: Backward) -> Callable[..., None]:
    """Return what PyTorch calls ``setup_context``: a function that saves what the gradients are computed from."""
    saved = _saved(operator, backward)
    names = [argument.name for argument in operator.arguments]
    outputs = [output.name for output in operator.outputs]
    others = [name for name in dict.fromkeys(backward.arguments) if name in names and name not in saved]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        known = dict(zip(names, complete(operator, inputs), strict=True))
        known |= dict(zip(outputs, output if isinstance(output, tuple) else (output,), strict=True))
        ctx.save_for_backward(*(known[name] for name in saved))
        ctx.others = {name: known[name] for name in others}

    return setup_context


def _gradients(operator: Operator, backward: Backward, second: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that computes the gradients of an operator's arguments by calling the second operator."""
    saved = _saved(operator, backward)

    def gradients(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        known = dict(zip(saved, ctx.saved_tensors, strict=True)) | ctx.others
        known |= {f"grad_{output.name}": grad for output, grad in zip(operator.outputs, grads, strict=True)}
        made = second(*(known[name] for name in backward.arguments))
        found = dict(zip(backward.gradients, made if isinstance(made, tuple) else (made,), strict=True))
        return tuple(found.get(argument.name) for argument in operator.arguments)

    return gradients
