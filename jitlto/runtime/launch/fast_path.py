"""Code made for one kernel's signature: a launch that does nothing which the signature has decided.

A launch that walks a list of converters costs a call a parameter. The function made here has the test of each parameter
written out: an array of the right dtype gives its address, a Python number in range goes as it is, and whatever else
comes is left to the parameter's converter (:mod:`jitlto.runtime.launch.arguments`), which knows all cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from jitlto.model.types import Parameter, scalar
from jitlto.runtime.launch.arguments import Converter, pointee

# Above this, cuda.core does not take a Python int: it sends it as 8 bytes, signed.
_LARGEST = (1 << 63) - 1

_CALL = """
def __call__(self, stream, grid, block, *args, shared_memory=0, cluster=None, cooperative=False, programmatic=False):
    try:
        {unpack}
    except ValueError:
        raise count_error(len(args)) from None
{convert}
    try:
        config = configs[grid, block, shared_memory, cluster, cooperative, programmatic]
    except (KeyError, TypeError):
        config = configure(grid, block, shared_memory, cluster, cooperative, programmatic)
    if type(stream) is not Stream:
        stream = as_stream(stream)
    try:
        launch(stream, config, kernel, {names})
    except Exception as error:
        raise failed(error, grid, block, shared_memory) from error
"""
_BIND = """
def bind(stream, config, {names} grid, block, shared_memory):
    def bound():
        try:
            launch(stream, config, kernel, {names})
        except Exception as error:
            raise failed(error, grid, block, shared_memory) from error
    return bound
"""


class _Nothing:
    """Stands for an array type that has not been seen yet."""


def specialise(signature: Sequence[Parameter], converters: Sequence[Converter]) -> dict[str, Any]:
    """Make the functions of a signature.

    Parameters
    ----------
    signature : sequence of Parameter
    converters : sequence of callable
        One for each parameter.

    Returns
    -------
    dict
        The namespace of the functions ``__call__`` and ``bind``, which has to be given what they use: ``launch``,
        ``kernel``, ``configs``, ``configure``, ``Stream``, ``as_stream``, ``count_error`` and ``failed``.
    """
    namespace: dict[str, Any] = {"Array": _Nothing}
    names = [f"a{number}" for number in range(len(signature))]
    lines: list[str] = []
    for number, (name, parameter, converter) in enumerate(zip(names, signature, converters, strict=True)):
        namespace[f"convert{number}"] = converter
        lines += [f"    {line}" for line in _conversion(number, name, parameter, converter, namespace)]
    listed = "".join(f"{name}, " for name in names)
    source = _CALL.format(
        unpack=f"{listed}= args" if names else "() = args", convert="\n".join(lines), names=listed
    ) + _BIND.format(names=listed)
    exec(_compiled(source), namespace)  # noqa: S102 - of nothing but the text above and numbers
    return namespace


def _compiled(source: str) -> CodeType:
    return compile(source, "<jitlto launch>", "exec")


def _conversion(
    number: int, name: str, parameter: Parameter, converter: Converter, namespace: dict[str, Any]
) -> list[str]:
    """The lines that convert one argument."""
    slow = f"{name} = convert{number}({name})"
    points_to = pointee(parameter)
    if points_to is not None:
        return _array(number, name, points_to, converter, namespace)
    known = scalar(parameter.type.strip())
    if known is None or known.typestr[0] == "c" or known.typestr == "bfloat16":
        return [slow]
    if known.typestr == "b1":
        namespace |= {"true": np.bool_(True), "false": np.bool_(False)}
        return [f"{name} = true if {name} is True else false if {name} is False else convert{number}({name})"]
    make = namespace[f"type{number}"] = np.dtype(known.typestr).type
    if known.typestr[0] in "iu":
        limits = np.iinfo(make)
        within = f"{int(limits.min)} <= {name} <= {min(int(limits.max), _LARGEST)}"
        # A Python int goes as 8 bytes, of which the kernel reads the lowest.
        return [
            f"if type({name}) is int:",
            f"    if not {within}:",
            f"        {slow}",
            f"elif type({name}) is not type{number}:",
            f"    {slow}",
        ]
    if known.typestr == "f8":
        return [f"if type({name}) is not float:", f"    {slow}"]
    high = float(np.finfo(make).max)
    return [
        f"if type({name}) is float and {-high!r} <= {name} <= {high!r}:",
        f"    {name} = type{number}({name})",
        f"elif type({name}) is not type{number}:",
        f"    {slow}",
    ]


def _array(number: int, name: str, points_to: str, converter: Converter, namespace: dict[str, Any]) -> list[str]:
    known = scalar(points_to)
    right = ""
    if known is not None:
        if known.typestr == "bfloat16":
            return [f"{name} = convert{number}({name})"]
        namespace[f"dtype{number}"] = np.dtype(known.typestr)
        right = f"{name}.dtype is dtype{number} and "

    def learn(argument: Any) -> Any:
        value = converter(argument)
        if namespace["Array"] is _Nothing and _is_cheap(type(argument)):
            namespace["Array"] = type(argument)
        return value

    namespace[f"convert{number}"] = learn
    return [
        f"if type({name}) is Array and {right}{name}._c_contiguous:",
        f"    {name} = {name}.data.ptr",
        "else:",
        f"    {name} = convert{number}({name})",
    ]


def _is_cheap(kind: type) -> bool:
    """Whether arrays of a type are CuPy's, whose address costs a tenth of what ``__cuda_array_interface__`` does."""
    return kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "ndarray" and hasattr(kind, "_c_contiguous")
