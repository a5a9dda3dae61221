"""The plain way to launch: arguments and configuration are checked, packed, and handed to the driver.

It defines results and errors; what the compiled core launches it would launch the same.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import call, index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from jitlto.base.errors import LaunchError
from jitlto.base.frozen import Frozen
from jitlto.base.types import count_error
from jitlto.cuda.libraries import driver
from jitlto.launch.arguments import Converter, make_converter

if TYPE_CHECKING:
    from jitlto.base.types import Parameter

#: One to three extents, of a grid, a block or a cluster.
Extent: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
Extents: TypeAlias = tuple[int, int, int]
#: Grid, block and cluster; the grid counts blocks, with clusters too.
Shape: TypeAlias = tuple[Extents, Extents, Extents | None]

_ALIGNMENT = 16  # of each argument in memory


def parse_extent(name: str, value: Extent) -> Extents:
    """Return an extent in three dimensions; raise :class:`LaunchError` unless it is one to three positive integers."""
    if type(value) is int and value > 0:  # most are
        return value, 1, 1
    parts: Any = value if type(value) is tuple else tuple(value) if isinstance(value, tuple | list) else (value,)
    x, y, z = (*parts, 1, 1)[:3] if 1 <= len(parts) <= 3 else (0, 0, 0)
    if not type(x) is type(y) is type(z) is int:
        try:  # NumPy's integers are integers
            x, y, z = (0 if isinstance(part, bool) else index(part) for part in (x, y, z))
        except TypeError:
            x = 0
    if x > 0 and y > 0 and z > 0:
        return x, y, z
    raise LaunchError(f"invalid {name} {value!r}", code="launch-config", hint="pass one to three positive integers")


def check_shape(kernel: str, grid: Extent, block: Extent, shared_memory: int, cluster: Extent | None) -> Shape:
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


class Packing:
    """How the arguments of kernels with one signature are converted, and where their values lie in memory."""

    def __init__(self, signature: tuple[Parameter, ...]) -> None:
        self.signature = signature
        self.converters: tuple[Converter, ...] = tuple(map(make_converter, signature))
        # A table of pointers to the values, which the driver reads, and the values behind it.
        self._begin = end = 8 * len(signature)
        layout, places = "<", []
        for parameter in signature:
            places.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
            layout += f"{places[-1] - end}x{parameter.size}s"
            end = places[-1] + parameter.size
        self.places = tuple(places)
        self._layout = struct.Struct(layout)
        self._kind = ctypes.c_char * max(end, 1)
        self._spare: list[tuple[Any, int]] = []  # memory and its address
        #: Takes what :meth:`pack` has returned when nothing reads it any more.
        self.give_back = self._spare.append

    def pack(self, kernel: str, args: Sequence[Any]) -> tuple[Any, int]:
        """Return memory with the values of the arguments for a kernel, and its address.

        Raises:
            ArgumentError: If there are too many or too few, or one does not fit.
        """
        if len(args) != len(self.converters):
            raise count_error(kernel, self.signature, len(args))
        values = map(call, self.converters, args)
        try:
            memory, address = self._spare.pop()
        except IndexError:
            memory = self._kind()
            address = ctypes.addressof(memory)
            struct.pack_into(f"<{len(args)}Q", memory, 0, *[address + place for place in self.places])
        self._layout.pack_into(memory, self._begin, *values)
        return memory, address


make_packing = cache(Packing)


def start(
    launcher: Any, shape: Shape, shared_memory: int, cooperative: bool, programmatic: bool, stream: int, address: int
) -> None:
    """Launch a kernel with the values at an address.

    Raises:
        LaunchError: If the driver rejects the launch.
    """
    (x, y, z), (u, v, w), cluster = shape
    if cluster is None and not cooperative and not programmatic:
        (status,) = driver.cuLaunchKernel(launcher.handle, x, y, z, u, v, w, shared_memory, stream, address, 0)
    else:
        native = write_shape(driver.CUlaunchConfig(), shape, shared_memory)
        native.hStream, native.attrs = driver.CUstream(stream), []
        for name, value in make_attributes(driver.CUlaunchAttributeValue, cluster, cooperative, programmatic):
            attribute = driver.CUlaunchAttribute()
            attribute.id, attribute.value = getattr(driver.CUlaunchAttributeID, name), value
            native.attrs += [attribute]
        native.numAttrs = len(native.attrs)
        (status,) = driver.cuLaunchKernelEx(native, launcher.handle, address, 0)
    if status:
        what, where = f"the launch failed: {status.name}", launcher.chosen.kernel
        hint = f"grid {shape[0]}, block {shape[1]}, {shared_memory} bytes of dynamic shared memory"
        raise LaunchError(what, code="launch-failed", where=where, hint=hint)


def write_shape(native: Any, shape: Shape, shared_memory: int) -> Any:
    """Set grid, block and shared memory of a structure of the driver; return it."""
    (native.gridDimX, native.gridDimY, native.gridDimZ), block, _ = shape
    native.blockDimX, native.blockDimY, native.blockDimZ = block
    native.sharedMemBytes = shared_memory
    return native


def make_attributes(
    make: Callable[[], Any], cluster: Extents | None, cooperative: bool, programmatic: bool
) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a launch or a node: their names and values, which ``make`` creates."""
    if cluster is not None:
        value = make()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        yield "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", value
    if cooperative:
        value = make()
        value.cooperative = 1
        yield "CU_LAUNCH_ATTRIBUTE_COOPERATIVE", value
    if programmatic:
        value = make()
        value.programmaticStreamSerializationAllowed = 1
        yield "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", value
