"""Operators of PyTorch, made from declarations.

They are registered with ``Library.define`` and ``impl``, which costs a call less than ``torch.library.custom_op`` does.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor  # PyTorch has no public name for it
from torch._subclasses.functional_tensor import FunctionalTensorMode  # nor for this
from torch.autograd.function import once_differentiable

from jitlto.frameworks.declaration import Backward, Operator
from jitlto.frameworks.fit import check_call
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Flag
from jitlto.frameworks.torch_kernel import (
    Cuda,
    Implementation,
    bind,
    complete,
    describe,
    is_float,
    is_left_out,
    make_outputs,
    refuse_tangents,
    returned,
    transform_error,
)

#: The overload of an operator that takes floats as tensors without dimensions.
TENSORS = "tensors"
# The dispatch key by which torch.func takes a call first.
_TAKING = "FuncTorchDynamicLayerFrontMode"
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
        faked, call = partial(fake, operator), Implementation(operator, backend).call
        overloads: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {"": (tags, call)}
        if any(map(is_float, operator.arguments)):
            # The kernel gets a number that varies by value, and a captured graph would keep the first.
            numbers = partial(_call_with_numbers, operator, call)
            overloads[f".{TENSORS}"] = (*tags, torch.Tag.cudagraph_unsafe), numbers
        try:
            for overload, (marks, run) in overloads.items():
                library.define(schema(operator, overload), tags=marks)
                library.impl(f"{operator.name}{overload}", run, backend.key)
                torch.library.register_fake(f"{operator.qualname}{overload}", faked, lib=library)
        except RuntimeError as error:
            hint = "choose another name or namespace"
            what = f"PyTorch refuses the operator: {str(error).splitlines()[0]}"
            raise operator.error(what, hint, "framework") from error
        packet = getattr(getattr(torch.ops, operator.namespace), operator.name)
        made = packet.default
        if len(overloads) > 1:
            _register_varying_floats(operator, made, getattr(packet, TENSORS), library)
        _refuse_transforms(operator, made, library)
        if operator.backward is not None:
            _register_gradients(operator, operator.backward, second, library)
        _registered[operator.qualname] = operator, library, made
        return made


def declared(qualname: str) -> Operator | None:
    """Return the declaration of a registered operator."""
    known = _registered.get(qualname)
    return known[0] if known else None


def schema(operator: Operator, overload: str = "") -> str:
    """Return an operator's schema in PyTorch's notation, without its namespace; the overload's name has a dot."""
    texts = []
    for number, argument in enumerate(operator.arguments):
        text = f"{_type(number, argument, overload)} {argument.name}"
        texts.append(text if overload or argument.default is REQUIRED else f"{text}={_default(argument)}")
    results = ", ".join("Tensor" for _ in operator.outputs)
    results = results if len(operator.outputs) == 1 else f"({results})"
    return f"{operator.name}{overload}({', '.join(texts)}) -> {results}"


def _type(number: int, argument: Argument, overload: str) -> str:
    if isinstance(argument, Array):
        return f"Tensor{f'(a{number}!)' if argument.mutated else ''}{'?' if argument.optional else ''}"
    if isinstance(argument, Flag) or argument.type == "bool":
        return argument.type
    # It may be a symbol in a graph, of which C++ would make a number if it was declared as float.
    kind = "SymInt" if argument.type == "int" else "Tensor" if overload else "Scalar"
    return f"{kind}?" if is_left_out(argument) and not overload else kind


def _default(argument: Argument) -> str:
    default: Any = argument.default
    if isinstance(default, str):
        return '"' + default.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if default is None or is_left_out(argument):
        return "None"
    return str(default)


def fake(operator: Operator, *given: Any) -> Any:
    """Make the outputs of a call without memory, and check that the kernel takes it."""
    args = complete(operator, given)
    first = args[operator.first_array]
    if not isinstance(first, FakeTensor):  # in a trace, torch.func has seen to it before
        refuse_tangents(operator, args)
    results = operator.results(bind(operator, args))
    known = [(tuple(map(_example, v[0])), v[1]) if isinstance(v, tuple) else v for v in describe(operator, args)]
    if not any(isinstance(value, tuple) and None in value[0] for value in known):
        check_call(operator, known)
    return returned(make_outputs(results, first.device))


def _example(size: Any) -> int | None:
    """Return a size, of a symbol that which it had when the graph was made, without a guard on it; None without one."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _register_varying_floats(operator: Operator, made: Any, overload: Any, library: Any) -> None:
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
            for number, argument in enumerate(operator.arguments):
                if is_float(argument):  # a product and no sum, which would change the sign of -0.0
                    passed[number] = torch.ones((), dtype=torch.float64) * passed[number]
            return overload(*passed)

    torch.library.register_torch_dispatch(made.name(), FunctionalTensorMode, rule, lib=library)


def _call_with_numbers(operator: Operator, call: Callable[..., Any], *args: Any) -> Any:
    """Call the operator with numbers, as the overload of tensors is called."""
    return call(*(v.item() if is_float(a) else v for a, v in zip(operator.arguments, args, strict=True)))


def _refuse_transforms(operator: Operator, made: Any, library: Any) -> None:
    """Have ``torch.func`` refuse an operator: without a rule of its own it would drop tangents, and gradients."""
    take, is_wrapped = torch.library.get_kernel(made, _TAKING), torch._C._functorch.is_functorch_wrapped_tensor

    def call(keys: Any, *args: Any) -> Any:
        if any(is_wrapped(value) for value in args if isinstance(value, torch.Tensor)):
            raise transform_error(operator)
        return take.call_boxed(keys, *args)

    library.impl(operator.name, call, _TAKING, with_keyset=True)


def _register_gradients(operator: Operator, backward: Backward, second: Any, library: Any) -> None:
    """Register the gradients of an operator."""
    names = [argument.name for argument in operator.arguments]
    outputs = [output.name for output in operator.outputs]
    arrays = {*outputs, *(array.name for array in operator.arrays)}
    used = [name for name in dict.fromkeys(backward.arguments) if name in (*names, *outputs)]
    saved = [name for name in used if name in arrays]
    if backward.operator.backward is None:  # second derivatives are an error, and not silently those of a constant
        second = partial(once_differentiable(lambda _, *values, second=second: second(*values)), None)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        known = dict(zip(names, complete(operator, inputs), strict=True))
        known |= dict(zip(outputs, output if isinstance(output, tuple) else (output,), strict=True))
        ctx.save_for_backward(*(known[name] for name in saved))
        ctx.others = {name: known[name] for name in used if name not in arrays}

    def gradients(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        known = dict(zip(saved, ctx.saved_tensors, strict=True)) | ctx.others
        known |= {f"grad_{name}": grad for name, grad in zip(outputs, grads, strict=True)}
        results = second(*(known[name] for name in backward.arguments))
        found = dict(zip(backward.gradients, results if isinstance(results, tuple) else (results,), strict=True))
        return tuple(found.get(name) for name in names)

    torch.library.register_autograd(operator.qualname, gradients, setup_context=setup_context, lib=library)
