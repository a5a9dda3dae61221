"""What an operator of PyTorch does with tensors that have memory: it launches the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import Array, Case, Flag, Launch
from jitlto.frameworks.shapes import DTYPES
from jitlto.frameworks.torch_transforms import complete, has_tangent, is_left_out, refuse_tangents
from jitlto.launch.launcher import Launcher

_MOST_CALLS = 4096  # bounds the memory of programs with new shapes in every call
_DTYPES: Mapping[str, Any] = {name: getattr(torch, name) for name in DTYPES if hasattr(torch, name)}
_LEGACY_STREAM = 1  # CUDA's handle for the default stream, for which PyTorch says 0


class Cuda:
    """CUDA devices, as PyTorch handles them: what an operator asks of the kind of device that its tensors are on."""

    #: PyTorch's dispatch key.
    key = "CUDA"

    def __init__(self) -> None:
        self._torch = torch.cuda
        # What PyTorch's own compiler calls in the code that it generates; a torch.cuda.Stream takes much longer. A
        # PyTorch without CUDA has neither, and calls neither: there it traces operators and runs none.
        #: Returns the handle of the current stream of a device; 0 for the default stream.
        self.stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", torch.cuda.current_stream)
        #: Returns the current device.
        self.device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

    def guard(self, index: int) -> AbstractContextManager[object]:
        """Return a context in which a device is the current one."""
        return self._torch.device(index)  # type: ignore[no-any-return]

    def keep(self, tensors: Sequence[Any], index: int) -> None:
        """Have the allocator keep the memory of tensors until the work that is in the current stream now has ended.

        Called in every stream but the default one: PyTorch does not tell in which stream a tensor was allocated, and
        most are allocated in that. A captured graph keeps its memory itself.
        """
        if not self._torch.is_current_stream_capturing():
            stream = self._torch.current_stream(index)
            for tensor in tensors:
                tensor.record_stream(stream)


def describe(operator: Operator, args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call as :meth:`Operator.bind` takes them."""
    return [
        (tuple(value.shape), str(value.dtype).rpartition(".")[2])
        if isinstance(argument, Array) and value is not None
        else value
        for argument, value in zip(operator.arguments, args, strict=True)
    ]


def bind(operator: Operator, args: Sequence[Any]) -> Case:
    """Bind the declaration to the arguments of a call.

    Raises:
        OperatorError: As :meth:`Operator.bind`; the hint mentions autocast if that may have chosen the dtype.
    """
    try:
        return operator.bind(describe(operator, args))
    except OperatorError as error:
        device = args[operator.first_array].device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            dtype = str(torch.get_autocast_dtype(device)).rpartition(".")[2]
            error.hint = f"{error.hint}; torch.autocast computes in {dtype}: convert the tensor (tensor.to)"
        raise


def make_outputs(call_results: Sequence[tuple[tuple[Any, ...], str]], device: Any) -> list[Any]:
    """Return new tensors of some shapes and dtypes."""
    return [torch.empty(shape, dtype=_DTYPES[dtype], device=device) for shape, dtype in call_results]


def returned(outputs: Sequence[Any]) -> Any:
    """Return the outputs of an operator as PyTorch has them."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs) if outputs else None


class _Known(NamedTuple):
    """What follows from the shapes, dtypes and flags of a call.

    Args:
        results: Shape and dtype of each output.
        launch: The launch configuration; None if there is nothing to launch.
        attributes: Those of it that are not the default ones.
        how: What the family is asked for.
        launchers: By device.
        sources: Where each of the kernel's arguments comes from: an argument's number, that of an output behind the
            arguments, or None and a value.
    """

    results: Sequence[tuple[tuple[Any, ...], str]]
    launch: Launch | None
    attributes: Mapping[str, Any]
    how: Mapping[str, Any]
    launchers: dict[int, Launcher]
    sources: Sequence[tuple[int | None, Any]]


class Implementation:
    """What an operator does with tensors that have memory."""

    def __init__(self, operator: Operator, backend: Any) -> None:
        self._operator, self._backend = operator, backend
        numbered = tuple(enumerate(operator.arguments))
        self._first = operator.first_array
        self._arrays = tuple(n for n, argument in numbered if isinstance(argument, Array))
        self._flags = tuple(n for n, argument in numbered if isinstance(argument, Flag))
        self._mutated = tuple(n for n, argument in numbered if isinstance(argument, Array) and argument.mutated)
        self._is_whole = not any(is_left_out(argument) for argument in operator.arguments)
        self._has_tangent = has_tangent(operator)
        self._calls: dict[tuple[Any, ...], _Known] = {}

    def call(self, *given: Any) -> Any:
        """Run the operator; PyTorch leaves out arguments at the end that have their default values."""
        whole = self._is_whole and len(given) == len(self._operator.arguments)
        args = given if whole else complete(self._operator, given)
        if self._has_tangent:
            refuse_tangents(self._operator, [args[number] for number in self._arrays])
        index: int = args[self._first].get_device()
        if self._backend.device() == index:
            return self._run(args, index)
        with self._backend.guard(index):
            return self._run(args, index)

    def _run(self, args: Sequence[Any], index: int) -> Any:
        """Run the operator on the current device: on contiguous copies, where tensors are not contiguous."""
        device, passed = args[self._first].device, list(args)
        key = [args[number] for number in self._flags]
        for number in self._arrays:
            tensor = args[number]
            if tensor is None:
                key.append(None)
                continue
            key += (tensor.shape, tensor.dtype)
            if tensor.device != device:
                what = f"{self._operator.arguments[number].name} is on {tensor.device}"
                hint = f"move it to {device}, where the others are"
                raise OperatorError(what, code="operator-call", where=self._operator.qualname, hint=hint)
            if not tensor.is_contiguous():
                passed[number] = tensor.contiguous()
        known = self._calls.get(tuple(key)) or self._learn(tuple(key), args)
        outputs = make_outputs(known.results, device)
        stream = self._backend.stream(index) or _LEGACY_STREAM
        launch = known.launch
        if launch is not None:
            launcher = known.launchers.get(index)
            if launcher is None:
                launcher = known.launchers[index] = self._operator.loaded.launcher(**known.how)
            every = (*passed, *outputs)
            values = [value if place is None else every[place] for place, value in known.sources]
            launcher(stream, launch.grid, launch.block, *values, **known.attributes)
        for number in self._mutated:
            if passed[number] is not args[number]:
                args[number].copy_(passed[number])
            elif args[number] is not None:
                torch.autograd.graph.increment_version(args[number])
        if stream != _LEGACY_STREAM:  # of copies the originals too, which are read in this stream
            kept = [passed[number] for number in self._arrays]
            kept += [args[number] for number in self._arrays if args[number] is not passed[number]]
            self._backend.keep([tensor for tensor in kept if tensor is not None], index)
        return returned(outputs)

    def _learn(self, key: tuple[Any, ...], args: Sequence[Any]) -> _Known:
        """Find what follows from a call of shapes, dtypes and flags that there was not before."""
        call = self._operator.resolve(bind(self._operator, args))
        begin = {"input": 0, "output": len(self._operator.arguments)}
        sources = [(None, value) if kind == "value" else (begin[kind] + value, None) for kind, value in call.parameters]
        attributes = call.launch.attributes if call.launch else {}
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        self._calls[key] = _Known(call.results, call.launch, attributes, self._operator.how(call), {}, sources)
        return self._calls[key]
