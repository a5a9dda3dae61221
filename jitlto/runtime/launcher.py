"""Launchers: linked, loaded kernels, ready to launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.core import Kernel, LaunchConfig, ObjectCode, Stream, launch

from jitlto import toolkit
from jitlto.errors import ArgumentError, LaunchError
from jitlto.fragment import Parameter
from jitlto.runtime import device
from jitlto.runtime.arguments import converter
from jitlto.runtime.linked import LinkedKernel
from jitlto.runtime.plan import Plan

Extent = int | tuple[int, ...]

# Above this, the driver wants to be told before it grants dynamic shared memory (CUDA C++ Programming Guide).
_SHARED_WITHOUT_OPT_IN = 48 * 1024


class Launcher:
    """A kernel that is linked and loaded.

    Parameters
    ----------
    plan : Plan
        What it was made from.
    linked : LinkedKernel
        Its machine code.

    Raises
    ------
    NoDeviceError
        If there is no device to load it on.
    LaunchError
        If the driver refuses the code.
    """

    def __init__(self, plan: Plan, linked: LinkedKernel) -> None:
        device.current()
        self.plan = plan
        self.linked = linked
        try:
            self._code = ObjectCode.from_cubin(linked.cubin, name=str(plan.entry.key))
            self.kernel: Kernel = self._code.get_kernel(linked.entry)
        except Exception as error:
            raise LaunchError(
                f"the driver cannot load the kernel: {error}",
                where=str(plan.entry.key),
                hint=f"it was linked for {linked.architecture.sm}; `jitlto doctor` shows the device",
            ) from error
        self._converters = [converter(parameter) for parameter in plan.entry.signature]
        self._configs: dict[object, LaunchConfig] = {}

    @property
    def signature(self) -> Sequence[Parameter]:
        """The kernel's parameters."""
        return self.plan.entry.signature

    def __call__(
        self,
        stream: Any,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared_memory: int = 0,
        cluster: Extent | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        """Launch the kernel.

        Parameters
        ----------
        stream : object
            A ``cuda.core`` stream or graph builder, anything with ``__cuda_stream__``, or a stream handle as an int;
            None for the device's default stream.
        grid : int or tuple of int
            Blocks, in one to three dimensions; always blocks, with clusters too.
        block : int or tuple of int
            Threads of a block, in one to three dimensions.
        *args
            One for each of the kernel's parameters. For a pointer: a C-contiguous device array of the declared dtype
            (``__cuda_array_interface__`` or DLPack), a buffer, a device address as an int, or None.
        shared_memory : int
            Dynamic shared memory of a block, in bytes.
        cluster : int or tuple of int, optional
            Blocks of a thread block cluster; divides ``grid``.
        cooperative : bool
            Launch so that all blocks run at once and can synchronise.
        programmatic : bool
            Allow programmatic dependent launch: begin before the kernel before it in the stream has ended.

        Raises
        ------
        ArgumentError
            (a TypeError) If an argument is missing or does not fit its parameter.
        LaunchError
            If the launch configuration is impossible or the driver refuses the launch.
        """
        converters = self._converters
        if len(args) != len(converters):
            raise self._count_error(len(args))
        values = [convert(argument) for convert, argument in zip(converters, args, strict=True)]
        key = (grid, block, shared_memory, cluster, cooperative, programmatic)
        try:
            config = self._configs[key]
        except (KeyError, TypeError):
            config = self._configure(*key)
        if type(stream) is not Stream:
            stream = _stream(stream)
        try:
            launch(stream, config, self.kernel, *values)
        except Exception as error:
            raise LaunchError(
                f"the launch failed: {error}",
                where=str(self.plan.entry.key),
                hint=f"grid {grid}, block {block}, {shared_memory} bytes of dynamic shared memory",
            ) from error

    def _configure(
        self,
        grid: Extent,
        block: Extent,
        shared_memory: int,
        cluster: Extent | None,
        cooperative: bool,
        programmatic: bool,
    ) -> LaunchConfig:
        blocks, threads = _extent("grid", grid), _extent("block", block)
        clusters = None
        if cluster is not None:
            clusters = _extent("cluster", cluster)
            # cuda.core counts a grid with clusters in clusters; CUDA and we count it in blocks.
            if any(extent % part for extent, part in zip(blocks, clusters, strict=True)):
                raise LaunchError(
                    f"grid {grid} is no multiple of cluster {cluster}", hint="the grid counts blocks, with clusters too"
                )
            blocks = (blocks[0] // clusters[0], blocks[1] // clusters[1], blocks[2] // clusters[2])
        if shared_memory < 0:
            raise LaunchError(f"shared_memory is {shared_memory}", hint="give a number of bytes")
        try:
            if shared_memory > _SHARED_WITHOUT_OPT_IN:
                self._allow_shared_memory(shared_memory)
            config = LaunchConfig(
                grid=blocks,
                block=threads,
                cluster=clusters,
                shmem_size=shared_memory,
                is_cooperative=cooperative,
                programmatic_stream_serialization=programmatic,
            )
        except Exception as error:
            raise LaunchError(
                f"impossible launch configuration: {error}",
                where=str(self.plan.entry.key),
                hint=f"grid {grid}, block {block}, cluster {cluster}, {shared_memory} bytes of shared memory",
            ) from error
        if len(self._configs) < 4096:  # a caller with ever new grids must not fill the memory
            self._configs[(grid, block, shared_memory, cluster, cooperative, programmatic)] = config
        return config

    def _allow_shared_memory(self, size: int) -> None:
        driver = toolkit.bindings("driver")
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(attribute, size, int(self.kernel.handle), device.ordinal())
        if status != driver.CUresult.CUDA_SUCCESS:
            raise LaunchError(
                f"the device does not grant a block {size} bytes of dynamic shared memory ({status.name})"
            )

    def _count_error(self, given: int) -> ArgumentError:
        signature = ", ".join(str(parameter) for parameter in self.signature)
        if given < len(self.signature):
            missing = self.signature[given]
            return ArgumentError(
                f"argument {missing.name!r} ({missing.type}) is missing: {given} of {len(self.signature)} given",
                where=str(self.plan.entry.key),
                hint=f"the kernel takes ({signature})",
            )
        return ArgumentError(
            f"{given} arguments given, the kernel takes {len(self.signature)}",
            where=str(self.plan.entry.key),
            hint=f"the kernel takes ({signature})",
        )


def _stream(stream: Any) -> Any:
    """A stream of another library, a handle or None, as ``cuda.core`` takes it; what it may take is left to it."""
    if stream is None or (type(stream) is int and stream == 0):
        return device.current().default_stream
    if type(stream) is int:
        return Stream.from_handle(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    # The second field of the protocol is the handle; cuda.core wants foreign streams converted outright.
    return stream if protocol is None else Stream.from_handle(int(protocol()[1]))


def _extent(name: str, value: Extent) -> tuple[int, int, int]:
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, int) and not isinstance(p, bool) and p > 0 for p in parts):
        raise LaunchError(f"{name} is {value!r}", hint="give one to three positive integers")
    padded = (*parts, 1, 1)
    return (padded[0], padded[1], padded[2])
