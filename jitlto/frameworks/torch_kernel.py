"""What an operator of PyTorch does with tensors that have memory: it launches the kernel.

The function for calls whose device, shapes, dtypes and flags are known is generated for each operator, because a loop
over a declaration takes as long as the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Operator
from jitlto.frameworks.parts import REQUIRED, Array, Call, Case, Flag, Source
from jitlto.frameworks.shapes import DTYPES
from jitlto.frameworks.torch_transforms import has_tangent, is_left_out, refuse_tangents

_MOST_CALLS = 4096  # bounds the memory of programs with new shapes in every call
_LEGACY_STREAM = 1  # CUDA's handle for the default stream, for which PyTorch says 0


class Backend(Protocol):
    """What an operator asks of the kind of device that its tensors are on."""

    #: PyTorch's dispatch key.
    key: str
    #: Returns the handle of the current stream of a device; 0 for the default stream.
    stream: Callable[[int], int]
    #: Returns the current device.
    device: Callable[[], int]

    def guard(self, index: int) -> AbstractContextManager[object]:
        """Return a context in which a device is the current one."""

    def keep(self, tensors: Sequence[Any], index: int) -> None:
        """Have the allocator keep the memory of tensors until the work that is in the current stream now has ended."""


class Cuda:
    """CUDA devices, as PyTorch handles them."""

    key = "CUDA"

    def __init__(self) -> None:
        import torch

        self._torch = torch.cuda
        # What PyTorch's own compiler calls in the code that it generates; a torch.cuda.Stream takes much longer. A
        # PyTorch without CUDA has neither, and calls neither: there it traces operators and runs none.
        self.stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", torch.cuda.current_stream)
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
                if tensor is not None:
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
    import torch

    try:
        return operator.bind(describe(operator, args))
    except OperatorError as error:
        device = args[first_array(operator)].device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            dtype = str(torch.get_autocast_dtype(device)).rpartition(".")[2]
            error.hint = f"{error.hint}; torch.autocast computes in {dtype}: convert the tensor (tensor.to)"
        raise


def torch_dtypes() -> Mapping[str, Any]:
    import torch

    return {name: getattr(torch, name) for name in DTYPES if hasattr(torch, name)}


def first_array(operator: Operator) -> int:
    """Return the position of an array that is always given, which says where the kernel runs."""
    return next(
        number
        for number, argument in enumerate(operator.arguments)
        if isinstance(argument, Array) and not argument.optional
    )


def returned(outputs: Sequence[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs) if outputs else None


class Implementation:
    """What an operator does with tensors that have memory.

    Attributes:
        call: The operator itself. PyTorch leaves out arguments at the end that have their default values.
    """

    def __init__(self, operator: Operator, backend: Backend) -> None:
        import torch

        self._operator = operator
        self._backend = backend
        self._dtypes = torch_dtypes()
        self._first = first_array(operator)
        arguments = tuple(enumerate(operator.arguments))
        self._arrays = tuple(n for n, argument in arguments if isinstance(argument, Array))
        self._mutated = tuple(n for n, argument in arguments if isinstance(argument, Array) and argument.mutated)
        passed = enumerate(_passed(operator, place) for place in range(len(operator.parameters)))
        self._places = tuple(place for place, code in passed if code.startswith("v"))
        self._empty = torch.empty
        self._increment_version = torch.autograd.graph.increment_version
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        namespace: dict[str, Any] = {
            "known": self._known,
            "otherwise": self._otherwise,
            "empty": self._empty,
            "stream_of": backend.stream,
            "current_device": backend.device,
            "keep": backend.keep,
            "bump": self._bump,
            "forward_ad": torch.autograd.forward_ad,
            "refuse_tangents": self._refuse_tangents,
            **{f"default{n}": argument.default for n, argument in arguments},
        }
        exec(compile(fast_source(operator), f"<jitlto {operator.qualname}>", "exec"), namespace)  # noqa: S102 - our own text
        self.call: Callable[..., Any] = namespace["call"]
        self._key: Callable[..., tuple[Any, ...]] = namespace["key"]

    def _bump(self, *mutated: Any) -> None:
        """Tell autograd that tensors have new values."""
        self._increment_version([tensor for tensor in mutated if tensor is not None])

    def _refuse_tangents(self, *args: Any) -> None:
        refuse_tangents(self._operator, args)

    def _otherwise(self, *args: Any) -> Any:
        """Run the operator where the generated function does not know how."""
        index: int = args[self._first].get_device()
        if self._backend.device() != index:
            with self._backend.guard(index):
                return self.call(*args)
        tensors = {n: args[n] for n in self._arrays if args[n] is not None}
        for number, tensor in tensors.items():
            if tensor.device != args[self._first].device:
                what = f"{self._operator.arguments[number].name} is on {tensor.device}"
                hint = f"move it to {args[self._first].device}, where the others are"
                raise OperatorError(what, code="operator-call", where=self._operator.qualname, hint=hint)
        if not all(tensor.is_contiguous() for tensor in tensors.values()):
            copies = {n: tensor.contiguous() for n, tensor in tensors.items()}
            result = self.call(*(copies.get(n, value) for n, value in enumerate(args)))
            for number in self._mutated:
                if copies.get(number) is not args[number]:
                    args[number].copy_(copies[number])
            if self._backend.stream(index):
                self._backend.keep(list(tensors.values()), index)  # the copying reads them in this stream too
            return result
        return self._first_call(args, index)

    def _first_call(self, args: tuple[Any, ...], index: int) -> Any:
        """Run the operator with a new device, shape, dtype or flag, and remember what follows from it."""
        operator = self._operator
        call = operator.resolve(bind(operator, args))
        outputs = [self._empty(s, dtype=self._dtypes[d], device=args[self._first].device) for s, d in call.results]
        choose: Callable[..., Callable[..., None]] = _choose_nothing
        if call.launch is not None:
            choose = operator.dispatcher(tuple(call.configuration))
            values = [_tensor_or_value(source, args, outputs) for source in call.parameters]
            launch, attributes = call.launch, _attributes(call)
            stream = self._backend.stream(index) or _LEGACY_STREAM
            choose(*call.configuration.values())(stream, launch.grid, launch.block, *values, **attributes)
            if stream != _LEGACY_STREAM:
                self._backend.keep([args[n] for n in self._arrays], index)
            if self._mutated:
                self._bump(*(args[n] for n in self._mutated))
        if len(self._known) >= _MOST_CALLS:
            self._known.clear()
        self._known[self._key(*args)] = _entry(call, choose, self._dtypes, self._places)
        return returned(outputs)


def fast_source(operator: Operator) -> str:
    """Return the Python code of two functions: the ``key`` of a call, and the ``call`` where its key is known.

    Arguments are called ``a`` and their number, outputs ``o``, and places among the kernel's arguments ``v``.
    """
    numbers = range(len(operator.arguments))
    first = first_array(operator)
    parts, contiguous = [f"a{first}.get_device()"], []
    for number, argument in enumerate(operator.arguments):
        name = f"a{number}"
        if isinstance(argument, Array):
            unless = f"{name} is None or " if argument.optional else ""
            device = "" if number == first else f"{name}.get_device(), "
            described = f"{device}{name}.shape, {name}.dtype"
            parts.append(f"{unless}({described})" if unless else described)
            contiguous.append(f"({unless}{name}.is_contiguous())" if unless else f"{name}.is_contiguous()")
        elif isinstance(argument, Flag):
            parts.append(name)
    made = [f"o{number}" for number in range(len(operator.outputs))]
    passed = [_passed(operator, place) for place in range(len(operator.parameters))]
    entry = [f"shape{n}, dtype{n}" for n in range(len(made))] + ["choose, chosen, grid, block, attributes"]
    entry += [value for value in passed if value.startswith("v")]
    arrays = [f"a{n}" for n in numbers if isinstance(operator.arguments[n], Array)]
    mutated = [f"a{n}" for n, a in enumerate(operator.arguments) if isinstance(a, Array) and a.mutated]
    names = ", ".join(f"a{n}" for n in numbers)
    return "\n".join((
        f"def key({names}):",
        f"    return ({', '.join(parts)},)",
        f"def call({', '.join(_declared(n, argument.default) for n, argument in enumerate(operator.arguments))}):",
        *(
            ["    if forward_ad._current_level >= 0:", f"        refuse_tangents({names})"]
            if has_tangent(operator)
            else []
        ),
        *(f"    if a{n} is None: a{n} = default{n}" for n in numbers if is_left_out(operator.arguments[n])),
        f"    index = a{first}.get_device()",
        f"    if current_device() == index and {' and '.join(contiguous)}:",
        f"        entry = known.get((index, {', '.join(parts[1:])}))",
        "        if entry is not None:",
        f"            {', '.join(entry)} = entry",
        f"            device = a{first}.device",
        *(f"            o{n} = empty(shape{n}, dtype=dtype{n}, device=device)" for n in range(len(made))),
        f"            stream = stream_of(index) or {_LEGACY_STREAM}",
        "            if attributes:",
        f"                choose(*chosen)({', '.join(('stream, grid, block', *passed))}, **attributes)",
        "            else:",  # without a dict for each call
        f"                choose(*chosen)({', '.join(('stream, grid, block', *passed))})",
        f"            if stream != {_LEGACY_STREAM}:",
        f"                keep(({', '.join(arrays)},), index)",
        *([f"            bump({', '.join(mutated)})"] if mutated else []),
        f"            return {', '.join(made)}",
        f"    return otherwise({names})",
    ))  # fmt: skip


def _declared(number: int, default: object) -> str:
    return f"a{number}" if default is REQUIRED else f"a{number}=default{number}"


def _passed(operator: Operator, place: int) -> str:
    """Return the code for what the kernel gets as its argument number ``place``."""
    name = operator.parameters[place]
    for number, argument in enumerate(operator.arguments):
        if name == argument.name:
            return f"a{number}"
    for number, output in enumerate(operator.outputs):
        if name == output.name:
            return f"o{number}"
    return f"v{place}"


def _entry(call: Call, choose: Callable[..., Any], dtypes: Mapping[str, Any], places: Sequence[int]) -> tuple[Any, ...]:
    """Return what the generated function knows of a call; ``places`` are those where the kernel gets a value."""
    launch = call.launch
    return (
        *(part for shape, dtype in call.results for part in (shape, dtypes[dtype])),
        choose,
        tuple(call.configuration.values()) if launch else (),
        launch and launch.grid,
        launch and launch.block,
        _attributes(call),
        *(call.parameters[place].value for place in places),
    )


def _attributes(call: Call) -> dict[str, Any]:
    """Return the attributes of a call's launch that are not the default ones."""
    if call.launch is None:
        return {}
    given = {name: getattr(call.launch, name) for name in ("shared_memory", "cluster", "cooperative")}
    return {name: value for name, value in given.items() if value}


def _tensor_or_value(source: Source, args: Sequence[Any], outputs: Sequence[Any]) -> Any:
    if source.kind == "value":
        return source.value
    return outputs[source.value] if source.kind == "output" else args[source.value]


def _choose_nothing(*_: object) -> Callable[..., None]:
    return _launch_nothing


def _launch_nothing(*_: object, **__: object) -> None:
    """Take the place of a launcher where a grid is empty."""
