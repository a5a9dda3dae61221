"""What an operator of PyTorch does with tensors that have memory: it launches the kernel."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import itemgetter
from struct import pack
from typing import Any

import torch
from torch.autograd.forward_ad import unpack_dual

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Case, Scalar
from jitlto.frameworks.tables import Tables

_MOST_CALLS = 4096  # bounds the memory of programs with new shapes in every call
_LEGACY_STREAM = 1  # CUDA's handle for the default stream, for which PyTorch says 0


class Cuda:
    """CUDA devices, as PyTorch handles them: what an operator asks of the kind of device that its tensors are on."""

    #: PyTorch's dispatch key.
    key = "CUDA"

    def __init__(self) -> None:
        # What PyTorch's own compiler calls in the code that it generates; a torch.cuda.Stream takes much longer. A
        # PyTorch without CUDA has neither, and calls neither: there it traces operators and runs none.
        #: Returns the handle of the current stream of a device; 0 for the default stream.
        self.stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", torch.cuda.current_stream)
        #: Returns the current device.
        self.device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        #: Returns a context in which a device is the current one.
        self.guard: Callable[[int], AbstractContextManager[object]] = torch.cuda.device
        self._tables: defaultdict[int, Tables] = defaultdict(Tables)

    def table(self, data: bytes, index: int) -> int:
        """Return the address of device memory that holds some bytes, for as long as work may read it."""
        return self._tables[index].find(data, torch.cuda.is_current_stream_capturing())

    def keep(self, tensors: Sequence[Any], index: int) -> None:
        """Have the allocator keep the memory of tensors until the work that is in the current stream now has ended.

        Called in every stream but the default one: PyTorch does not tell in which stream a tensor was allocated, and
        most are allocated in that. A captured graph keeps its memory itself.
        """
        if not torch.cuda.is_current_stream_capturing():
            stream = torch.cuda.current_stream(index)
            for tensor in tensors:
                tensor.record_stream(stream)


def is_float(argument: Argument) -> bool:
    """Return whether an argument is a number that is a float."""
    return isinstance(argument, Scalar) and argument.type == "float"


def is_left_out(argument: Argument) -> bool:
    """Return whether a schema holds None in the place of an argument's default: of every float.

    A schema has no notation for infinities and NaN, and reads no subnormal numbers; and PyTorch drops an argument that
    equals its default, as -0.0 equals 0.0.
    """
    return is_float(argument) and argument.default is not REQUIRED


def complete(operator: Operator, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call with the defaults of those that PyTorch leaves out."""
    for number, default in operator.defaults:  # which are those of the last arguments
        if number == len(args):
            args += (default,)
        elif args[number] is None:
            args = (*args[:number], default, *args[number + 1 :])
    return args


def refuse_tangents(operator: Operator, args: Sequence[Any]) -> None:
    """Refuse tensors that carry a tangent, since the kernel would drop it.

    Raises:
        OperatorError: If one does.
    """
    try:
        if unpack_dual(args[operator.first_array]).primal is args[operator.first_array]:  # not in forward mode
            return
        arrays = [
            value for argument, value in zip(operator.arguments, args, strict=True) if isinstance(argument, Array)
        ]
        has_one = any(isinstance(each, torch.Tensor) and unpack_dual(each).tangent is not None for each in arrays)
    except RuntimeError:  # in a trace of torch.func.linearize, which hides tangents from what is below autograd
        has_one = True
    if has_one:
        raise transform_error(operator)


def transform_error(operator: Operator) -> OperatorError:
    """Return the error of an argument that a transform of PyTorch has wrapped."""
    what = "an argument is transformed by torch.func or has a tangent, and operators have no rules for that"
    hint = "differentiate by torch.autograd, in reverse mode; in place of vmap, declare *batch in the shapes"
    return operator.error(what, hint, "forward")


def describe(operator: Operator, args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call as :meth:`Operator.bind` takes them."""
    return [
        (tuple(value.shape), str(value.dtype).rpartition(".")[2])
        if isinstance(value, torch.Tensor) and isinstance(argument, Array)
        else value
        for argument, value in zip(operator.arguments, args, strict=True)
    ]


def bind(operator: Operator, args: Sequence[Any]) -> Case:
    """Bind the declaration to the arguments of a call.

    Raises:
        OperatorError: As :meth:`Operator.bind`, where the hint mentions autocast if that may have chosen the dtype; or
            if an array is on another device than the first.
    """
    device = args[operator.first_array].device
    for argument, value in zip(operator.arguments, args, strict=True):
        if isinstance(argument, Array) and isinstance(value, torch.Tensor) and value.device != device:
            what, hint = f"{argument.name} is on {value.device}", f"move it to {device}, where the others are"
            raise operator.error(what, hint)
    try:
        return operator.bind(describe(operator, args))
    except OperatorError as error:
        if device.type != "meta" and torch.is_autocast_enabled(device.type):
            dtype = str(torch.get_autocast_dtype(device.type)).rpartition(".")[2]
            error.hint = f"{error.hint}; torch.autocast computes in {dtype}: convert the tensor (tensor.to)"
        raise


def make_outputs(call_results: Sequence[tuple[tuple[Any, ...], str]], device: Any) -> list[Any]:
    """Return new tensors of some shapes and dtypes."""
    return [torch.empty(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in call_results]


def returned(outputs: Sequence[Any]) -> Any:
    """Return the outputs of an operator as PyTorch has them."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs) if outputs else None


def _entry(value: Any) -> bytes:
    """Return what a table of a function's inputs holds: the address of an array and its rows, or a number."""
    if isinstance(value, torch.Tensor):
        return pack("=QQ", value.data_ptr(), value.shape[:1].numel())
    return pack("=dQ", value, 0)


class Implementation:
    """What an operator does with tensors that have memory."""

    def __init__(self, operator: Operator, backend: Any) -> None:
        self.operator, self._backend = operator, backend
        numbered = tuple(enumerate(operator.arguments))
        self._first = operator.first_array
        self._arrays = tuple(n for n, argument in numbered if isinstance(argument, Array))
        self._keyed = tuple(n for n, argument in numbered if not isinstance(argument, Scalar))
        self._mutated = tuple(n for n, argument in numbered if isinstance(argument, Array) and argument.mutated)
        self._is_fused = bool(operator.sources)
        # By flags, shapes, dtypes and devices: functions that make the outputs; one that launches the kernel, or None;
        # what that takes beside the call's own, the grid, the block and numbers; and one that chooses what it takes of
        # the stream, these, the arguments and the outputs.
        self._calls: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def call(self, *given: Any) -> Any:
        """Run the operator; PyTorch leaves out arguments at the end that have their default values."""
        if torch.compiler.is_dynamo_compiling():  # called by a frame that it gave up: it would trace this one
            return torch.compiler.disable(self.call)(*given)
        args = complete(self.operator, given)
        refuse_tangents(self.operator, args)
        index: int = args[self._first].get_device()
        if self._backend.device() == index:
            return self._run(args, index)
        with self._backend.guard(index):
            return self._run(args, index)

    def _run(self, args: tuple[Any, ...], index: int) -> Any:
        """Run the operator on the current device: on contiguous copies, where tensors are not contiguous."""
        passed = args
        key: tuple[Any, ...] = ()
        for number in self._keyed:
            value = args[number]
            if not isinstance(value, torch.Tensor):  # a flag, or an array that is not given
                key += (value,)
            else:
                key += (value.shape, value.dtype, value.device)
                if not value.is_contiguous() or (self._is_fused and value.data_ptr() % 16):  # as Inductor does
                    copied = value.clone(memory_format=torch.contiguous_format)
                    passed = (*passed[:number], copied, *passed[number + 1 :])
        makers, launch, values, choose = self._calls.get(key) or self._learn(key, args)
        outputs = [make() for make in makers]
        stream = self._backend.stream(index) or _LEGACY_STREAM
        if launch is not None:
            launch(*choose((stream, *values, *passed, *outputs)))
        for number in self._mutated:
            if passed[number] is not args[number]:
                args[number].copy_(passed[number])
            elif args[number] is not None:
                torch.autograd.graph.increment_version(args[number])
        if stream != _LEGACY_STREAM:  # of copies the originals too, which are read in this stream
            kept = [passed[number] for number in self._arrays]
            kept += [args[number] for number in self._arrays if args[number] is not passed[number]]
            self._backend.keep([each for each in kept if isinstance(each, torch.Tensor)], index)
        return outputs[0] if len(outputs) == 1 else returned(outputs)

    def _choose(self, parameters: Sequence[tuple[Any, Any]], first: int, given: tuple[Any, ...]) -> list[Any]:
        """Choose what a kernel with functions takes: addresses of outputs, of any dtype, and of tables of inputs."""
        args, taken = given[first:], list(given[:3])
        for place, value in parameters:
            if isinstance(place, tuple):
                table = b"".join(_entry(args[number]) for number in place)
                taken.append(self._backend.table(table, args[self._first].get_device()))
            elif place is None:
                taken.append(value)
            else:
                taken.append(args[place].data_ptr() if place >= len(self.operator.arguments) else args[place])
        return taken

    def _learn(self, key: tuple[Any, ...], args: Sequence[Any]) -> tuple[Any, ...]:
        """Find what follows from a call that there was not before."""
        operator, device = self.operator, args[self._first].device
        made = operator.resolve(bind(operator, args))
        makers = [  # torch.empty takes longer: shapes are given in many ways
            partial(torch.empty_strided, tuple(each.shape), each.stride(), dtype=each.dtype, device=device)
            for each in make_outputs(made.results, "meta")
        ]
        known: tuple[Any, ...] = makers, None, (), None
        if made.launch is not None:
            how = dict(vars(made.launch))
            extents = how.pop("grid"), how.pop("block")
            launch = partial(operator.launcher(made), **{name: value for name, value in how.items() if value})
            values = (*extents, *(value for _, value in made.parameters))
            first, numbered = 1 + len(values), enumerate(made.parameters, 3)
            choose: Callable[[tuple[Any, ...]], Any] = partial(self._choose, made.parameters, first)
            if not made.sources:
                choose = itemgetter(0, 1, 2, *(n if place is None else first + place for n, (place, _) in numbered))
            known = makers, launch, values, choose
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        self._calls[key] = known
        return known
