"""The fast path of launches: a function generated for one signature, equivalent to ``launcher.bind(...)()``.

A list of converters costs one call per parameter. The generated function tests each argument inline: an array of the
right dtype gives its address, a Python number in range is passed as it is, and everything else goes to the parameter's
converter (:mod:`jitlto.runtime.launch.arguments`), which handles all cases. Launch configurations are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from jitlto.model.types import Parameter, find_scalar
from jitlto.runtime.launch.arguments import ArgumentConverter, pointed_type
from jitlto.runtime.launch.streams import as_stream

# The largest Python int that cuda.core takes: it sends all of them as 8 bytes, signed.
_LARGEST = (1 << 63) - 1

_TEMPLATE = """
def make({constants}):
    Array = None  # the first type of argument that has a cheap address
    seen = None  # the type of the last argument that was converted

    def convert_array(convert, argument):
        nonlocal Array, seen
        value = convert(argument)
        kind = type(argument)
        if kind is not seen:
            seen = kind
            if Array is None and has_cheap_address(kind):
                Array = kind
        return value

    def __call__(
        self, stream, grid, block, *args, shared_memory=0, cluster=None, cooperative=False, programmatic=False
    ):
        try:
            {unpacked} = args
        except ValueError:
            raise self._convert.count_error(len(args)) from None
{conversions}
        try:
            config = self._configs[grid, block, shared_memory, cluster, cooperative, programmatic]
        except (KeyError, TypeError):
            config = self._configure(grid, block, shared_memory, cluster, cooperative, programmatic)
        if type(stream) is not Stream:
            stream = as_stream(stream)
        try:
            launch(stream, config, self.kernel, {arguments})
        except JitltoError:
            raise
        except Exception as error:
            raise self._launch_error(error, grid, block, shared_memory) from error

    return __call__
"""


def compile_call(
    signature: Sequence[Parameter], convert: ArgumentConverter, namespace: dict[str, Any]
) -> Callable[..., None]:
    """Generate the method ``__call__`` of launchers whose kernels have a signature.

    The generated code looks up ``launch``, ``Stream`` and ``JitltoError`` in ``namespace``.
    """
    constants: dict[str, Any] = {"has_cheap_address": _has_cheap_address, "as_stream": as_stream}
    lines: list[str] = []
    for number, (parameter, converter) in enumerate(zip(signature, convert.converters, strict=True)):
        constants[f"convert{number}"] = converter
        lines += [f"        {line}" for line in _conversion(number, parameter, constants)]
    arguments = "".join(f"a{number}, " for number in range(len(signature)))
    source = _TEMPLATE.format(
        constants=", ".join(constants), unpacked=arguments or "()", conversions="\n".join(lines), arguments=arguments
    )
    made: dict[str, Any] = {}
    exec(_compile(source), namespace, made)  # noqa: S102 - the text above, with numbers
    call: Callable[..., None] = made["make"](**constants)
    return call


def _compile(source: str) -> CodeType:
    return compile(source, "<jitlto launch>", "exec")


def _conversion(number: int, parameter: Parameter, constants: dict[str, Any]) -> list[str]:
    """Return the lines that convert one argument, and add the objects that they use to ``constants``."""
    name = f"a{number}"
    slow = f"{name} = convert{number}({name})"
    target = pointed_type(parameter)
    known = find_scalar(parameter.type.strip() if target is None else target)
    if known is not None and known.typestr == "bfloat16":
        return [slow]
    if target is not None:
        fits = ""
        if known is not None:
            constants[f"dtype{number}"] = np.dtype(known.typestr)
            fits = f"{name}.dtype is dtype{number} and "
        return [
            f"if type({name}) is Array and {fits}{name}._c_contiguous:",
            f"    {name} = {name}.data.ptr",
            "else:",
            f"    {name} = convert_array(convert{number}, {name})",
        ]
    if known is None or known.typestr[0] == "c":
        return [slow]
    if known.typestr == "b1":
        constants |= {"true": np.bool_(True), "false": np.bool_(False)}
        return [f"{name} = true if {name} is True else false if {name} is False else convert{number}({name})"]
    if known.typestr == "f8":
        return [f"if type({name}) is not float:", f"    {slow}"]
    make = constants[f"type{number}"] = np.dtype(known.typestr).type
    if known.typestr[0] in "iu":
        limits = np.iinfo(make)
        # A Python int is sent as 8 bytes; the kernel reads only as many of the lowest as its type has.
        return [
            f"if type({name}) is int:",
            f"    if not {int(limits.min)} <= {name} <= {min(int(limits.max), _LARGEST)}:",
            f"        {slow}",
            f"elif type({name}) is not type{number}:",
            f"    {slow}",
        ]
    high = float(np.finfo(make).max)
    return [
        f"if type({name}) is float and {-high!r} <= {name} <= {high!r}:",
        f"    {name} = type{number}({name})",
        f"elif type({name}) is not type{number}:",
        f"    {slow}",
    ]


def _has_cheap_address(kind: type) -> bool:
    """Return whether a type is CuPy's array: ``data.ptr`` takes a tenth of the time of ``__cuda_array_interface__``."""
    return kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "ndarray" and hasattr(kind, "_c_contiguous")
