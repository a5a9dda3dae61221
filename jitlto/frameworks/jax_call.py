"""Functions of JAX, made from declarations: a primitive whose lowering is a call of XLA's foreign function interface.

Shapes are known when a call is lowered, so that everything which follows from them is computed there, once; an
execution runs no Python. It is described by words that ``jitlto/launch/_xla.c`` reads.
"""

import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jitlto.base.errors import OperatorError
from jitlto.cuda import device
from jitlto.frameworks.declaration import Backward, Operator
from jitlto.frameworks.fit import check_call
from jitlto.frameworks.parts import Array, Call, Launch
from jitlto.launch.core import extension
from jitlto.launch.signature import find_functions
from jitlto.launch.step import make_packing

#: The name under which XLA knows the handler.
TARGET = "jitlto_launch"
_VALUE, INPUT, OUTPUT = range(3)  # as in _xla.c
_MAJOR = 0  # the version of XLA's interface for which the handler is written
_lock = threading.Lock()
_registered: dict[str, ModuleType] = {}  # by platform: the module whose handler it is
_kept: dict[bytes, Any] = {}  # by digest: the launchers of all calls, which compiled programs may make at any time
_TYPES: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str}


class Cuda:
    """CUDA devices: the kind of device that calls are compiled for, as JAX names it for lowering and for handlers."""

    platform, handler_platform = "cuda", "CUDA"

    def functions(self) -> Sequence[int]:
        """Return the addresses of the driver's functions for ``make_xla_handler``."""
        return find_functions("cuLaunchKernelEx", "cuStreamGetCtx", "cuCtxPushCurrent", "cuCtxPopCurrent")

    def prepare(self, launcher: Any, launch: Launch) -> tuple[int, Sequence[int]]:
        """Check a launch configuration, and load the kernel: a capture may not be the first to use it.

        Returns:
            The kernel's handle, and grid, block, shared memory, cluster and whether it is cooperative.
        """
        shared_memory, cooperative = launch.shared_memory, launch.cooperative
        grid, block, cluster = launcher.check(launch.grid, launch.block, shared_memory, launch.cluster, cooperative)
        handle = int(launcher.kernel.handle)
        device.load_function(handle)
        return handle, (*grid, *block, shared_memory, *(cluster or (0, 0, 0)), int(cooperative))


#: The kinds of devices that calls are lowered for; a list that tests can add to where there is no GPU.
targets: list[Any] = [Cuda()]


class _Statics(NamedTuple):
    """What a call is compiled for beside shapes and dtypes.

    Args:
        operator: The declaration.
        values: For each argument that is an array, whether it is given; of the others their values.
        spelled: The same as texts, because 0.0 equals -0.0, and 1 equals True.
    """

    operator: Operator
    values: tuple[Any, ...]
    spelled: tuple[str, ...]

    @property
    def given(self) -> dict[int, Array]:
        """The arrays that are given, by number."""
        arguments = enumerate(zip(self.operator.arguments, self.values, strict=True))
        return {number: argument for number, (argument, value) in arguments if isinstance(argument, Array) and value}

    @property
    def mutated(self) -> list[int]:
        """The numbers of those that the kernel writes to."""
        return [number for number, array in self.given.items() if array.mutated]

    def describe(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments of a call of arrays, or what has their shapes and dtypes, for :meth:`Operator.bind`."""
        known = dict(zip(self.given, ((tuple(a.shape), a.dtype.name) for a in arrays), strict=True))
        return [
            known.get(number) if isinstance(argument, Array) else value
            for number, (argument, value) in enumerate(zip(self.operator.arguments, self.values, strict=True))
        ]


def make_function(operator: Operator) -> Callable[..., Any]:
    """Return a function that calls an operator; see :func:`jitlto.jax_call`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(a.name, kind, default=a.default) for a in operator.arguments])

    def function(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        pairs = list(zip(operator.arguments, given.arguments.values(), strict=True))
        arrays = [jax.numpy.asarray(value) for a, value in pairs if isinstance(a, Array) and value is not None]
        values = [value is not None if isinstance(a, Array) else _static(operator, a, value) for a, value in pairs]
        statics = _Statics(operator, tuple(values), tuple(map(repr, values)))
        call = jax.custom_batching.sequential_vmap(partial(_bind, statics))
        if operator.backward is not None:
            return _differentiable(statics, call, operator.backward)(*arrays)
        return _returned(call(*arrays))

    function.__name__ = function.__qualname__ = operator.name
    function.__doc__ = f"{operator.qualname}{signature}"
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _static(operator: Operator, argument: Any, value: Any) -> Any:
    """Return a number or a text of the declared type.

    Raises:
        OperatorError: If it is traced, or of another type.
    """
    made = None
    with suppress(Exception):  # JAX's own for what is traced, among others
        made = _TYPES[argument.type](value)
        if isinstance(value, str) == (argument.type == "str") and (made == value or made != made):
            return made
    what = f"argument {argument.name} is no {argument.type} that is known when the call is compiled"
    raise operator.error(what, "pass a number or a text of Python; under jit, name it in static_argnames")


def _returned(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _bind(statics: _Statics, *arrays: Any) -> list[Any]:
    """Call the primitive, if the kernel takes the call; without anything to launch, return zeros."""
    operator, described = statics.operator, statics.describe(arrays)
    case = operator.bind(described)
    results = operator.results(case)
    if not all(isinstance(size, int) for array in arrays for size in array.shape):
        hint = "export with shapes that are numbers"
        raise operator.error("a size is a symbol, and a kernel is chosen for numbers", hint)
    check_call(operator, described)
    for output, (_, dtype) in zip(operator.outputs, results, strict=True):
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            what = f"output {output.name} is an array of {dtype}, which JAX makes only with 64-bit types enabled"
            raise operator.error(what, 'jax.config.update("jax_enable_x64", True)')
    if operator.resolve(case).launch is None:
        places = dict(zip(statics.given, arrays, strict=True))
        made = [jax.numpy.zeros(shape, dtype) for shape, dtype in results]
        return [*made, *(places[number] for number in statics.mutated)]
    return list(_primitive().bind(*arrays, statics=statics))


@cache
def _primitive() -> Any:
    primitive = Primitive("jitlto_call")
    primitive.multiple_results = True

    def abstract(*avals: Any, statics: _Statics) -> list[Any]:
        places = dict(zip(statics.given, avals, strict=True))
        results = statics.operator.results(statics.operator.bind(statics.describe(avals)))
        made = [jax.core.ShapedArray(shape, jax.numpy.dtype(dtype)) for shape, dtype in results]
        return [*made, *(places[number].update(weak_type=False) for number in statics.mutated)]

    primitive.def_abstract_eval(abstract)
    primitive.def_impl(jax.jit(primitive.bind, static_argnames="statics"))
    for target in targets:
        mlir.register_lowering(primitive, partial(_lower, target), platform=target.platform)
    return primitive


def _lower(target: Cuda, ctx: Any, *operands: Any, statics: _Statics) -> Any:
    """Make a call of the handler: choose and link the kernel."""
    operator = statics.operator
    call = operator.resolve(operator.bind(statics.describe(ctx.avals_in)))
    places: dict[int | None, tuple[int, int]] = {number: (INPUT, n) for n, number in enumerate(statics.given)}
    aliases = {places[n][1]: len(operator.outputs) + place for place, n in enumerate(statics.mutated)}
    # A result that has an argument's memory is what the kernel writes to.
    places |= {number: (OUTPUT, aliases[places[number][1]]) for number in statics.mutated}
    places |= {len(operator.arguments) + n: (OUTPUT, n) for n, _ in enumerate(operator.outputs)}
    if any(isinstance(place, tuple) for place, _ in call.parameters):
        hint = "give one array, and numbers by their values"
        raise operator.error("a fused function has several inputs or a number, for which JAX has no table", hint)
    launcher = operator.launcher(call)
    register(target)  # asks the driver, so behind what says that there is none
    words = describe_call(target, launcher, call, places, statics.values)
    return jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases)(ctx, *operands, call=words)


def _differentiable(statics: _Statics, call: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """Return the call of an operator with gradients, as a function of its arrays."""
    second, given = make_function(backward.operator), [array.name for array in statics.given.values()]
    outputs = [output.name for output in statics.operator.outputs]
    others = {
        argument.name: None if isinstance(argument, Array) else value
        for argument, value in zip(statics.operator.arguments, statics.values, strict=True)
    }
    function: Any = jax.custom_vjp(lambda *arrays: _returned(call(*arrays)))

    def forward(*arrays: Any) -> tuple[Any, Any]:
        results = call(*arrays)
        return _returned(results), (arrays, results)

    def gradients(saved: Any, cotangents: Any) -> tuple[Any, ...]:
        arrays, results = saved
        grads = cotangents if isinstance(cotangents, tuple) else (cotangents,)
        known = others | dict(zip(given, arrays, strict=True)) | dict(zip(outputs, results, strict=True))
        for name, grad, result in zip(outputs, grads, results, strict=True):
            # Integers have no gradient; the second operator may still be declared to take it.
            floating = jax.numpy.issubdtype(result.dtype, jax.numpy.inexact)
            known[f"grad_{name}"] = _conjugated(grad) if floating else jax.numpy.zeros_like(result)
        made = second(*(known[name] for name in backward.arguments))
        made = map(_conjugated, made if isinstance(made, tuple) else (made,))
        found = dict(zip(backward.gradients, made, strict=True))
        return tuple(found.get(name) for name in given)

    function.defvjp(forward, gradients)
    return function  # type: ignore[no-any-return]


def _conjugated(gradient: Any) -> Any:
    """Return a complex gradient as JAX has it, if it is one of PyTorch's, or the other way round."""
    return jax.numpy.conj(gradient) if jax.numpy.iscomplexobj(gradient) else gradient


def register(target: Cuda) -> None:
    """Register the handler with XLA, once for each platform.

    Raises:
        OperatorError: If the compiled core is missing.
    """
    with _lock:
        core = extension()
        if core is None:
            what, hint = "calls from JAX need the compiled core of launches", "install jitlto from a wheel"
            raise OperatorError(what, code="operator-framework", hint=hint)
        if _registered.get(target.platform) is core:
            return
        text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text("utf-8")
        minor = re.search(r"#define XLA_FFI_API_MINOR (\d+)", text)  # XLA refuses a handler of another major version
        handler = core.make_xla_handler(tuple(target.functions()), _MAJOR, int(minor[1]) if minor else 0)
        jax.ffi.register_ffi_target(TARGET, handler, platform=target.handler_platform)
        _registered[target.platform] = core


def describe_call(
    target: Cuda,
    launcher: Any,
    call: Call,
    places: Mapping[Any, tuple[int, int]],
    scalars: Sequence[Any],
) -> np.ndarray[Any, Any]:
    """Return the words of a call that launches something, and let XLA find its kernel.

    Args:
        places: For each array of the call where it is found: among inputs or results, and its place there.
        scalars: The value of each argument that is a number.

    Raises:
        ArgumentError: If an argument does not fit the kernel.
    """
    assert call.launch is not None  # noqa: S101 - the caller checks it
    handle, shape = target.prepare(launcher, call.launch)
    digest = bytes.fromhex(launcher.chosen.digest)
    words: list[int] = [*np.frombuffer(digest, np.int64).tolist(), *shape, len(call.parameters)]
    begin, data = len(words) + 2 * len(call.parameters), b""
    packing = make_packing(tuple(launcher.signature))
    for (place, value), parameter, convert in zip(call.parameters, packing.signature, packing.converters, strict=True):
        if place in places:
            words += places[place]
        else:
            words += [_VALUE | parameter.size << 8, begin + len(data) // 8]
            data += convert(value if place is None else scalars[place])
            data += bytes(-len(data) % 8)
    with _lock:
        if _kept.get(digest) is not launcher:
            _registered[target.platform].add_xla_kernel(digest, handle)
            _kept[digest] = launcher
    return np.concatenate([np.array(words, np.int64), np.frombuffer(data, np.int64)])
