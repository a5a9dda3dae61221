"""Functions of JAX, made from declarations: a primitive whose lowering is a call of XLA's foreign function interface.

Shapes are known when a call is lowered, so that everything which follows from them is computed there, once; an
execution runs no Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jitlto.base.errors import OperatorError
from jitlto.frameworks.declaration import Backward, Operator
from jitlto.frameworks.fit import check_call
from jitlto.frameworks.jax_launch import TARGET, Cuda, Target, describe_call, register
from jitlto.frameworks.parts import REQUIRED, Argument, Array, Case, Flag

#: The kinds of devices that calls are lowered for; a list that tests can add to where there is no GPU.
targets: list[Target] = [Cuda()]
_TYPES: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class _Statics:
    """What a call is compiled for beside shapes and dtypes: for each argument whether it is given, or its value.

    A number is kept with its type and as text, because 0.0 equals -0.0, and 1 equals True.
    """

    operator: Operator
    values: tuple[tuple[str, str] | bool, ...]
    broadcasts: bool = False

    def value(self, number: int) -> Any:
        """Return the value of an argument that is no array."""
        kind, text = self.values[number]  # type: ignore[misc]
        if kind == "float":
            return float.fromhex(text)
        return text == "True" if kind == "bool" else _TYPES[kind](text)

    @property
    def given(self) -> list[int]:
        """The numbers of the arrays that are given."""
        return [number for number, value in enumerate(self.values) if value is True]

    @property
    def mutated(self) -> list[int]:
        """Those of them that the kernel writes to."""
        arguments: Sequence[Argument] = self.operator.arguments
        return [number for number in self.given if getattr(arguments[number], "mutated", False)]

    def describe(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments of a call of arrays, or what has their shapes and dtypes, for :meth:`Operator.bind`."""
        known = dict(zip(self.given, ((tuple(a.shape), a.dtype.name) for a in arrays), strict=True))
        return [
            known.get(number) if isinstance(argument, Array) else self.value(number)
            for number, argument in enumerate(self.operator.arguments)
        ]

    def bind(self, arrays: Sequence[Any]) -> Case:
        """Bind the declaration to arrays, or what has their shapes and dtypes."""
        return self.operator.bind(self.describe(arrays))


def jax_call(operator: Operator, *, vmap_method: str = "sequential") -> Callable[..., Any]:
    """Return a function of JAX that calls an operator on arrays on a GPU.

    It works under ``jax.jit``, ``jax.vmap`` and, if the declaration has a ``backward``, ``jax.grad``, and does not keep
    a program out of command buffers. Flags and scalars are numbers or texts, not arrays: a program is compiled for
    them. Arrays that the kernel writes to are not changed: their new contents are returned after the outputs.

    Args:
        operator: The declaration.
        vmap_method: What ``jax.vmap`` does. ``sequential``: one call after the other. ``broadcast_all``: one call with
            one dimension more, if all shapes begin with the same ``*name``, and what is computed for each element of
            these dimensions depends on that alone.

    Raises:
        OperatorError: If JAX is not installed, or the shapes do not fit the method.
    """
    if vmap_method not in ("sequential", "broadcast_all") or (
        vmap_method == "broadcast_all" and not has_free_dimensions(operator)
    ):
        what = f"{vmap_method!r} is no method for vmap here"
        hint = "use sequential; for broadcast_all, begin all shapes with the same *name"
        raise OperatorError(what, code="operator-argument", where=operator.qualname, hint=hint)
    try:
        import jax
    except ImportError as error:
        what = f"JAX cannot be imported: {error}"
        raise OperatorError(what, code="operator-framework", hint="install jax[cuda12] or jax[cuda13]") from None
    names = [argument.name for argument in operator.arguments]

    def function(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(operator, names, args, kwargs)
        arrays, values = [], []  # type: list[Any], list[tuple[str, str] | bool]
        for argument, value in zip(operator.arguments, given, strict=True):
            if isinstance(argument, Array):
                values.append(value is not None)
                if value is not None:
                    arrays.append(jax.numpy.asarray(value))
            else:
                values.append(_static(operator, argument, value))
        statics = _Statics(operator, tuple(values), vmap_method == "broadcast_all")
        if operator.backward is None:
            return _returned(_bind(statics, arrays))
        return _differentiable(statics, operator.backward)(*arrays)

    function.__name__ = function.__qualname__ = operator.name
    function.__doc__ = f"{operator.qualname}({', '.join(names)})"
    return function


def _arguments(operator: Operator, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return one value for each argument of an operator.

    Raises:
        TypeError: As Python does for other functions.
    """
    taken = names[: len(args)]
    wrong = [name for name in kwargs if name not in names or name in taken]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    values = [given.get(argument.name, argument.default) for argument in operator.arguments]
    missing = [name for name, value in zip(names, values, strict=True) if value is REQUIRED]
    if len(args) > len(names) or wrong or missing:
        raise TypeError(f"{operator.name}() takes {', '.join(names)}; wrong: {', '.join(wrong or missing) or 'count'}")
    return values


def _static(operator: Operator, argument: Any, value: Any) -> tuple[str, str]:
    """Return a number or a text with its type.

    Raises:
        OperatorError: If it is traced, or of another type.
    """
    try:
        if isinstance(value, str) != (argument.type == "str"):
            raise TypeError(f"it is {value!r}")
        made = _TYPES[argument.type](value)
        if made != value and made == made:
            raise TypeError(f"it is {value!r}")
    except Exception as error:  # JAX's own for what is traced, among others
        raise OperatorError(
            f"argument {argument.name} is no {argument.type} that is known when the call is compiled",
            code="operator-call",
            where=operator.qualname,
            hint="pass a number or a text of Python; under jit, name it in static_argnames",
        ) from error
    return argument.type, made.hex() if argument.type == "float" else str(made)


def _returned(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _bind(statics: _Statics, arrays: Sequence[Any]) -> list[Any]:
    """Call the primitive, if the kernel takes the call; without anything to launch, return zeros."""
    import jax

    case = statics.bind(arrays)
    results = statics.operator.results(case)
    if not all(isinstance(size, int) for array in arrays for size in array.shape):
        what, hint = "a size is a symbol, and a kernel is chosen for numbers", "export with shapes that are numbers"
        raise OperatorError(what, code="operator-call", where=statics.operator.qualname, hint=hint)
    check_call(statics.operator, statics.describe(arrays))
    for output, (_, dtype) in zip(statics.operator.outputs, results, strict=True):
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise OperatorError(
                f"output {output.name} is an array of {dtype}, which JAX makes only with 64-bit types enabled",
                code="operator-call",
                where=statics.operator.qualname,
                hint='jax.config.update("jax_enable_x64", True)',
            )
    if statics.operator.resolve(case).launch is None:
        places = dict(zip(statics.given, arrays, strict=True))
        made = [jax.numpy.zeros(shape, dtype) for shape, dtype in results]
        return [*made, *(places[number] for number in statics.mutated)]
    return list(_primitive().bind(*arrays, statics=statics))


@cache
def _primitive() -> Any:
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import batching, mlir

    primitive = Primitive("jitlto_call")
    primitive.multiple_results = True

    def abstract(*avals: Any, statics: _Statics) -> list[Any]:
        places = dict(zip(statics.given, avals, strict=True))
        results = statics.operator.results(statics.bind(avals))
        made = [jax.core.ShapedArray(shape, jax.numpy.dtype(dtype)) for shape, dtype in results]
        return [*made, *(places[number].update(weak_type=False) for number in statics.mutated)]

    @cache
    def jitted(statics: _Statics) -> Any:
        return jax.jit(lambda *arrays: primitive.bind(*arrays, statics=statics))

    primitive.def_abstract_eval(abstract)
    primitive.def_impl(lambda *arrays, statics: jitted(statics)(*arrays))
    batching.primitive_batchers[primitive] = _batch
    for target in targets:
        mlir.register_lowering(primitive, _lowering(target), platform=target.platform)
    mlir.register_lowering(primitive, _refuse)
    return primitive


def _refuse(ctx: Any, *_: Any, statics: _Statics) -> Any:
    """Refuse a call on any other platform.

    Raises:
        OperatorError: Always.
    """
    platforms = ", ".join(ctx.module_context.platforms)
    raise OperatorError(
        f"there is no call for {platforms}: it launches kernels on NVIDIA GPUs",
        code="operator-framework",
        where=statics.operator.qualname,
        hint="install jax[cuda12] or jax[cuda13] where there is a GPU, and have the arrays on it",
    )


def _lowering(target: Target) -> Callable[..., Any]:
    """Return the rule that makes a call of the handler: it chooses and links the kernel."""

    def lower(ctx: Any, *operands: Any, statics: _Statics) -> Any:
        import jax

        register(target)
        operator = statics.operator
        call = operator.resolve(statics.bind(ctx.avals_in))
        places = {number: place for place, number in enumerate(statics.given)}
        inputs = {number: (place, ctx.avals_in[place].dtype.name) for number, place in places.items()}
        scalars = {
            number: statics.value(number)
            for number, argument in enumerate(operator.arguments)
            if not isinstance(argument, Array) and not (isinstance(argument, Flag) and argument.type == "str")
        }
        written = {number: len(operator.outputs) + place for place, number in enumerate(statics.mutated)}
        words = describe_call(target, operator.launcher(call), call, inputs, scalars, written)
        aliases = {places[number]: result for number, result in written.items()}
        return jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases)(ctx, *operands, call=words)

    return lower


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, statics: _Statics) -> tuple[list[Any], list[int]]:
    """Add a dimension to a call, or make one call after the other."""
    import jax

    numpy = jax.numpy
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    moved = [a if axis is None else numpy.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes, strict=True)]
    if statics.broadcasts:
        whole = [
            numpy.broadcast_to(array, (size, *array.shape)) if axis is None else array
            for array, axis in zip(moved, axes, strict=True)
        ]
        results = _bind(statics, whole)
        return results, [0] * len(results)

    def one(mapped: Sequence[Any]) -> list[Any]:
        following = iter(mapped)
        return _bind(statics, [a if axis is None else next(following) for a, axis in zip(moved, axes, strict=True)])

    results = jax.lax.map(one, [array for array, axis in zip(moved, axes, strict=True) if axis is not None])
    return results, [0] * len(results)


def has_free_dimensions(operator: Operator) -> bool:
    """Return whether the shapes of all arrays and outputs begin with the same ``*name``."""
    parts: tuple[Any, ...] = (*operator.arrays, *operator.outputs)
    shapes = [part.shape for part in parts]
    starts = {"" if callable(shape) else f"{shape} ".split(" ")[0] for shape in shapes}
    return len(starts) == 1 and starts.pop().startswith("*")


def _differentiable(statics: _Statics, backward: Backward) -> Callable[..., Any]:
    """Return the call of an operator with gradients, as a function of its arrays."""
    import jax

    custom_vjp: Any = jax.custom_vjp
    operator, broadcasts = statics.operator, statics.broadcasts and has_free_dimensions(backward.operator)
    second = jax_call(backward.operator, vmap_method="broadcast_all" if broadcasts else "sequential")
    given = {operator.arguments[number].name: place for place, number in enumerate(statics.given)}
    outputs = {output.name: number for number, output in enumerate(operator.outputs)}
    positions = {argument.name: number for number, argument in enumerate(operator.arguments)}

    function = custom_vjp(lambda *arrays: _returned(_bind(statics, arrays)))

    def forward(*arrays: Any) -> tuple[Any, Any]:
        results = _bind(statics, arrays)
        return _returned(results), (arrays, results)

    def gradients(saved: Any, cotangents: Any) -> tuple[Any, ...]:
        arrays, results = saved
        grads = tuple(map(_conjugated, cotangents if isinstance(cotangents, tuple) else (cotangents,)))

        def find(name: str) -> Any:
            if name in given:
                return arrays[given[name]]
            if name in outputs:
                return results[outputs[name]]
            if name in positions:
                number = positions[name]
                return None if isinstance(operator.arguments[number], Array) else statics.value(number)
            number = outputs[name.removeprefix("grad_")]
            # Integers have no gradient; the second operator may still be declared to take it.
            floating = jax.numpy.issubdtype(results[number].dtype, jax.numpy.inexact)
            return grads[number] if floating else jax.numpy.zeros_like(results[number])

        made = second(*map(find, backward.arguments))
        made = map(_conjugated, made if isinstance(made, tuple) else (made,))
        found = dict(zip(backward.gradients, made, strict=True))
        return tuple(found.get(name) for name in given)

    function.defvjp(forward, gradients)
    return function  # type: ignore[no-any-return]


def _conjugated(gradient: Any) -> Any:
    """Return a complex gradient as JAX has it, if it is one of PyTorch's, or the other way round."""
    import jax

    return jax.numpy.conj(gradient) if jax.numpy.iscomplexobj(gradient) else gradient
