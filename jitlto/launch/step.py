"""The plain way to launch: arguments and configuration are checked, packed, and handed to the driver.

It defines results and errors; what the compiled core launches it would launch the same.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from jitlto.base.errors import LaunchError
from jitlto.base.frozen import Frozen
from jitlto.cuda.libraries import driver
from jitlto.launch.argument_errors import count_error
from jitlto.launch.arguments import Converter, make_converter

if TYPE_CHECKING:
    from jitlto.base.types import Parameter

#: One to three extents, of a grid, a block or a cluster.
Extent: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
Extents: TypeAlias = tuple[int, int, int]

_ALIGNMENT = 16  # of each argument in memory


def parse_extent(name: str, value: Extent) -> Extents:
    """Return an extent in three dimensions; raise :class:`LaunchError` unless it is one to three positive integers."""
    if type(value) is int and value > 0:  # most are
        return value, 1, 1
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    try:  # NumPy's integers are integers
        numbers = tuple(0 if isinstance(part, bool) else index(part) for part in parts)
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise LaunchError(f"invalid {name} {value!r}", code="launch-config", hint="pass one to three positive integers")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def check_shape(
    kernel: str, grid: Extent, block: Extent, shared_memory: int, cluster: Extent | None
) -> tuple[Extents, Extents, Extents | None]:
    """Return grid, block and cluster of a launch of a kernel in three dimensions.

    Raises:
        LaunchError: If one is invalid, or they contradict each other.
    """
    whole, threads = parse_extent("grid", grid), parse_extent("block", block)
    part = None if cluster is None else parse_extent("cluster", cluster)
    if part and any(blocks % each for blocks, each in zip(whole, part, strict=True)):
        what, hint = f"grid {grid} is not divisible by cluster {cluster}", "the grid counts blocks, with clusters too"
        raise LaunchError(what, code="launch-config", where=kernel, hint=hint)
    if shared_memory < 0:
        what = f"invalid shared_memory {shared_memory}"
        raise LaunchError(what, code="launch-config", where=kernel, hint="pass a number of bytes")
    return whole, threads, part


class Slot(Frozen):
    """A named place for an argument that a sequence's calls can replace.

    Args:
        name: A Python identifier. Slots of one name, in one launch or in several, get the same argument.
    """

    name: str


class Step(Frozen):
    """One launch; of a sequence it is made by :meth:`Launcher.step <jitlto.Launcher.step>`.

    Args:
        launcher (Launcher): The kernel.
        grid, block, args, shared_memory, cluster, cooperative, programmatic: As for ``launcher(...)``; each of ``args``
            may be a :class:`Slot`.
    """

    launcher: Any  # a Launcher, whose module imports this one
    grid: Extent
    block: Extent
    args: tuple[Any, ...]
    shared_memory: int = 0
    cluster: Extent | None = None
    cooperative: bool = False
    programmatic: bool = False

    def check(self) -> tuple[Extents, Extents, Extents | None]:
        """Check the launch configuration, and prepare the kernel for it.

        Returns:
            Grid, block and cluster; the grid counts blocks, with clusters too.

        Raises:
            LaunchError: If it is invalid, or more than the device has.
        """
        kernel = self.launcher.chosen.kernel
        grid, block, cluster = check_shape(kernel, self.grid, self.block, self.shared_memory, self.cluster)
        self.launcher.grant(self.shared_memory)
        if self.cooperative and math.prod(grid) > self.launcher.max_blocks(self.block, self.shared_memory):
            what = f"grid {self.grid} is too large for a cooperative launch"
            hint = "at most launcher.max_blocks(block, shared_memory) blocks run at the same time"
            raise LaunchError(what, code="launch-failed", where=kernel, hint=hint)
        return grid, block, cluster

    def failure(self, status: Any) -> LaunchError:
        """Return the error of a launch that the driver has rejected."""
        shape = f"grid {self.grid}, block {self.block}, {self.shared_memory} bytes of dynamic shared memory"
        what = f"the launch failed: {status.name}"
        return LaunchError(what, code="launch-failed", where=self.launcher.chosen.kernel, hint=shape)


class Packing:
    """How the arguments of kernels with one signature are converted, and where they lie in memory.

    Args:
        signature: The parameters.
    """

    def __init__(self, signature: tuple[Parameter, ...]) -> None:
        self.signature = signature
        self.converters: tuple[Converter, ...] = tuple(map(make_converter, signature))
        # A table of pointers to the values, which the driver reads, and the values behind it.
        count, end = len(signature), 8 * len(signature)
        places, layout = [], "<"
        for parameter in signature:
            places.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
            layout += f"{places[-1] - end}x{parameter.size}s"
            end = places[-1] + parameter.size
        self.places = tuple(places)
        self._table, self._values = struct.Struct(f"<{count}Q"), struct.Struct(layout)
        self._kind = ctypes.c_char * max(end, 1)

    def pack(self, values: Sequence[bytes]) -> tuple[Any, int]:
        """Return memory with some values, and its address."""
        buffer = self._kind()
        address = ctypes.addressof(buffer)
        self._table.pack_into(buffer, 0, *(address + place for place in self.places))
        self._values.pack_into(buffer, self._table.size, *values)
        return buffer, address


make_packing = cache(Packing)


class Launch:
    """A launch as the driver takes it: a configuration, and memory with the values of the arguments.

    Args:
        step: The launch.

    Raises:
        ArgumentError, LaunchError: As :meth:`Launcher.__call__ <jitlto.Launcher.__call__>`.
    """

    def __init__(self, step: Step) -> None:
        launcher, args = step.launcher, step.args
        packing: Packing = launcher.packing
        if len(args) != len(packing.converters):
            raise count_error(launcher.chosen.kernel, packing.signature, len(args))
        values = [
            bytes(parameter.size) if type(argument) is Slot else convert(argument)
            for parameter, convert, argument in zip(packing.signature, packing.converters, args, strict=True)
        ]
        self.step, self.kernel = step, launcher.handle
        self._grid, self._block, self._cluster = step.check()
        self.memory = packing.pack(values)
        self._native = self.write(driver.CUlaunchConfig())
        attributes = [_make_attribute(*each) for each in self.attributes(driver.CUlaunchAttributeValue)]
        self._native.attrs, self._native.numAttrs = attributes, len(attributes)

    def write(self, native: Any) -> Any:
        """Set grid, block and shared memory of a structure of the driver; return it."""
        native.gridDimX, native.gridDimY, native.gridDimZ = self._grid
        native.blockDimX, native.blockDimY, native.blockDimZ = self._block
        native.sharedMemBytes = self.step.shared_memory
        return native

    def attributes(self, make: Callable[[], Any], *, with_programmatic: bool = True) -> list[tuple[str, Any]]:
        """Return the attributes of a launch or a node: the ends of their names and values, which ``make`` creates."""
        found: list[tuple[str, Any]] = []
        if self._cluster is not None:
            found.append(("CLUSTER_DIMENSION", make()))
            extent = found[-1][1].clusterDim
            extent.x, extent.y, extent.z = self._cluster
        if self.step.cooperative:
            found.append(("COOPERATIVE", make()))
            found[-1][1].cooperative = 1
        if self.step.programmatic and with_programmatic:
            found.append(("PROGRAMMATIC_STREAM_SERIALIZATION", make()))
            found[-1][1].programmaticStreamSerializationAllowed = 1
        return found

    def place(self, number: int) -> memoryview:
        """Return where the value of an argument is written."""
        packing = self.step.launcher.packing
        begin = packing.places[number]
        return memoryview(self.memory[0]).cast("B")[begin : begin + packing.signature[number].size]

    def issue(self, stream: int) -> None:
        """Launch the kernel in a stream with the present values.

        Raises:
            LaunchError: If the driver rejects the launch.
        """
        self._native.hStream = driver.CUstream(stream)
        (status,) = driver.cuLaunchKernelEx(self._native, self.kernel, self.memory[1], 0)
        if status:
            raise self.step.failure(status)


def _make_attribute(name: str, value: Any) -> Any:
    made = driver.CUlaunchAttribute()
    made.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    made.value = value
    return made
