"""Launchers: linked, loaded kernels, ready to launch."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver
from cuda.core import Device, Kernel, LaunchConfig, ObjectCode, Stream, launch

from jitlto.cuda import device
from jitlto.errors import ArgumentError, JitltoError, LaunchError, NoDeviceError
from jitlto.model.types import Parameter
from jitlto.runtime import events
from jitlto.runtime.discovery.lookup_cache import Chosen
from jitlto.runtime.events import Kind
from jitlto.runtime.launch.arguments import converter
from jitlto.runtime.linking.kernel_cache import LinkedKernel

if TYPE_CHECKING:  # what a launch does not need
    from jitlto.runtime.launch.explain import Resources
    from jitlto.runtime.planning.plan import Plan

Extent = int | tuple[int, ...]

# Above this, static and dynamic together, the driver wants to be told before it grants dynamic shared memory (CUDA C++
# Programming Guide).
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_granting = threading.Lock()
_MOST_CONFIGS = 4096  # a caller with ever new grids must not fill the memory


class Launcher:
    """A kernel that is linked and loaded.

    It launches in the context that is current, on every device of the architecture that it was linked for.

    Parameters
    ----------
    chosen : Chosen
        Which kernel it is.
    linked : LinkedKernel
        Its machine code.
    plan : callable
        Gives its plan, for whoever asks what the kernel is made of.

    Raises
    ------
    NoDeviceError
        If there is no device to load it on.
    LaunchError
        If the driver refuses the code.
    """

    def __init__(self, chosen: Chosen, linked: LinkedKernel, plan: Callable[[], Plan]) -> None:
        device.current()
        self.chosen = chosen
        self.linked = linked
        self._make_plan = plan
        self._plan: Plan | None = None
        begin = time.perf_counter()
        try:
            with _allowed_in_captures():
                of = ObjectCode.from_ptx if linked.is_ptx else ObjectCode.from_cubin
                self._code = of(linked.cubin, name=chosen.kernel)
                self.kernel: Kernel = self._code.get_kernel(linked.entry)
        except Exception as error:
            from jitlto.cuda.driver import explain

            what, hint = explain(linked, error)
            raise LaunchError(what, where=chosen.kernel, hint=hint) from error
        events.tell(Kind.LOADED, chosen.kernel, chosen.digest, time.perf_counter() - begin)
        self._converters = [converter(parameter) for parameter in chosen.signature]
        self._configs: dict[object, LaunchConfig] = {}
        self._calls: dict[str, dict[str, Any]] = {}  # what _specialised makes
        self._launched = False
        self._granted = 0  # bytes of dynamic shared memory that were asked of the driver

    @classmethod
    def of(cls, plan: Plan, linked: LinkedKernel) -> Launcher:
        """The launcher of a plan that is linked."""
        return cls(plan.chosen, linked, lambda: plan)

    def _specialised(self) -> dict[str, Any]:
        """The functions made for the signature, through which it launches from now on."""
        if self._calls:
            return self._calls["made"]
        from jitlto.runtime.launch.fast_path import specialise
        from jitlto.runtime.launch.streams import as_stream

        device.current()  # which a forked process has not
        made = specialise(self.signature, self._converters)
        made |= {
            "launch": launch,
            "kernel": self.kernel,
            "configs": self._configs,
            "configure": self._configure,
            "Stream": Stream,
            "as_stream": as_stream,
            "count_error": self._count_error,
            "failed": self._failed,
        }
        _live.add(self)
        calls = self._calls.setdefault("made", made)  # of two threads, the first one's
        if calls is made and type(self).__call__ is Launcher.__call__:
            # Python looks __call__ up in the class: a class of its own saves each launch a call.
            own = type("Launcher", (type(self),), {"__call__": calls["__call__"], "__doc__": self.__doc__})
            self.__class__ = own
        return calls

    def __repr__(self) -> str:
        from jitlto.model.mangling import demangle

        return f"<Launcher {demangle(self.linked.entry)} for {self.linked.target}>"

    @property
    def plan(self) -> Plan:
        """What it was made from; planned now, if the kernel was found without.

        Raises
        ------
        DatabaseError
            If the database is not there any more, or another one is in its place.
        """
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    @property
    def signature(self) -> Sequence[Parameter]:
        """The kernel's parameters."""
        return self.chosen.signature

    @property
    def cubin(self) -> bytes:
        """The machine code, or the PTX that the driver compiled."""
        return self.linked.cubin

    def ptx(self) -> str:
        """The PTX that link-time optimisation makes of the plan.

        Raises
        ------
        LinkError
            If the plan is linked without link-time optimisation.
        DatabaseError
            As :attr:`plan`.
        """
        return self.plan.link_ptx(self.linked.architecture)

    def sass(self) -> str:
        """The machine code, disassembled by nvdisasm.

        Raises
        ------
        ToolchainError
            If there is no nvdisasm.
        """
        from jitlto.cuda.nvdisasm import disassemble

        return disassemble(self.cubin).decode("utf-8", "replace")

    @property
    def resources(self) -> Resources:
        """What the kernel takes of the current device."""
        from jitlto.runtime.launch.explain import resources

        return resources(self.kernel)

    def occupancy(self, block: Extent, shared_memory: int = 0) -> float:
        """The part of a multiprocessor's threads that blocks of this kernel can fill, from 0 to 1.

        Parameters
        ----------
        block : int or tuple of int
            Threads of a block.
        shared_memory : int
            Dynamic shared memory of a block, in bytes.
        """
        x, y, z = _extent("block", block)
        threads = x * y * z
        most: int = device.current().properties.max_threads_per_multiprocessor
        return self.blocks_per_multiprocessor(block, shared_memory) * threads / most

    def blocks_per_multiprocessor(self, block: Extent, shared_memory: int = 0) -> int:
        """How many blocks run on one multiprocessor at the same time; arguments as for :meth:`occupancy`."""
        x, y, z = _extent("block", block)
        self._grant(shared_memory)
        return int(self.kernel.occupancy.max_active_blocks_per_multiprocessor(x * y * z, shared_memory))

    def max_blocks(self, block: Extent, shared_memory: int = 0) -> int:
        """How many blocks the device runs at the same time: the largest grid of a cooperative launch."""
        count = device.current().properties.multiprocessor_count
        return self.blocks_per_multiprocessor(block, shared_memory) * int(count)

    def best_block_size(self, shared_memory: int = 0, limit: int = 0) -> int:
        """The number of threads of a block with which the device is filled best, as the driver says.

        Parameters
        ----------
        shared_memory : int
            Dynamic shared memory of a block, in bytes.
        limit : int
            The most threads wanted; 0 for what the device allows.
        """
        self._grant(shared_memory)
        return int(self.kernel.occupancy.max_potential_block_size(shared_memory, limit).max_block_size)

    def explain(self) -> str:
        """What the kernel is made of, where its code is from, and what it takes, in lines to read.

        Raises
        ------
        DatabaseError
            As :attr:`plan`.
        """
        from jitlto.runtime.launch.explain import explain

        return explain(self)

    def prepare(self) -> Launcher:
        """Have the driver load the code into the current context now and not at the first launch; returns itself.

        Raises
        ------
        LaunchError
            If the driver refuses.
        """
        device.current()
        with _allowed_in_captures():
            status, _ = driver.cuKernelGetFunction(int(self.kernel.handle))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise LaunchError(f"the driver cannot load the kernel ({status.name})", where=self.chosen.kernel)
        return self

    def bind(
        self,
        stream: Any,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared_memory: int = 0,
        cluster: Extent | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> Callable[[], None]:
        """Prepare a launch that repeats: everything is checked and converted now.

        Parameters are those of :meth:`__call__`. Arrays are kept alive as long as what is returned.

        Returns
        -------
        callable
            Launches; raises LaunchError if the driver refuses.

        Raises
        ------
        ArgumentError, LaunchError
            As :meth:`__call__`.
        """
        from jitlto.runtime.launch.streams import as_stream

        values = self._convert(args)
        config = self._configure(grid, block, shared_memory, cluster, cooperative, programmatic)
        bind = self._specialised()["bind"]
        bound: Callable[[], None] = bind(as_stream(stream), config, *values, grid, block, shared_memory)
        bound.arguments = args  # type: ignore[attr-defined]
        return bound

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
            A ``cuda.core`` stream or graph builder, anything with ``__cuda_stream__``, a stream of CuPy, PyTorch or
            Numba, or a stream handle as an int; None for the device's default stream.
        grid : int or tuple of int
            Blocks, in one to three dimensions; always blocks, with clusters too.
        block : int or tuple of int
            Threads of a block, in one to three dimensions.
        *args
            One for each of the kernel's parameters. For a pointer: a C-contiguous device array of the declared dtype
            (``__cuda_array_interface__`` or DLPack), a buffer, a device address as an int, or None.
        shared_memory : int
            Dynamic shared memory of a block, in bytes; above 48 KB it is asked of the driver.
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
        if self._launched:
            how = {"shared_memory": shared_memory, "cluster": cluster, "cooperative": cooperative}
            self._specialised()["__call__"](self, stream, grid, block, *args, programmatic=programmatic, **how)
            return
        # What is launched once need not wait for code made for launching it often.
        self._launched = True
        own = device.current()
        values = self._convert(args)
        config = self._configure(grid, block, shared_memory, cluster, cooperative, programmatic)
        if stream is None:
            stream = own.default_stream
        elif type(stream) is not Stream:
            from jitlto.runtime.launch.streams import as_stream

            stream = as_stream(stream)
        try:
            launch(stream, config, self.kernel, *values)
        except Exception as error:
            raise self._failed(error, grid, block, shared_memory) from error

    def _convert(self, args: tuple[Any, ...]) -> list[Any]:
        if len(args) != len(self._converters):
            raise self._count_error(len(args))
        return [convert(argument) for convert, argument in zip(self._converters, args, strict=True)]

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
            self._grant(shared_memory)
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
                where=self.chosen.kernel,
                hint=f"grid {grid}, block {block}, cluster {cluster}, {shared_memory} bytes of shared memory",
            ) from error
        if len(self._configs) < _MOST_CONFIGS:
            self._configs[(grid, block, shared_memory, cluster, cooperative, programmatic)] = config
        return config

    def _grant(self, size: int) -> None:
        """Ask the driver for dynamic shared memory, for every device of this architecture: they share launchers."""
        if size <= self._granted:
            return
        own = device.current()
        # What the kernel itself declares counts too.
        if self.kernel.attributes[own.device_id].shared_size_bytes + size <= _SHARED_WITHOUT_OPT_IN:
            return
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with _granting:
            if size <= self._granted:  # never lowered: launches that were configured with more would be refused
                return
            for other in Device.get_all_devices():
                if other.compute_capability != own.compute_capability:
                    continue
                (status,) = driver.cuKernelSetAttribute(attribute, size, int(self.kernel.handle), other.device_id)
                if status != driver.CUresult.CUDA_SUCCESS:
                    raise LaunchError(
                        f"the device does not grant a block {size} bytes of dynamic shared memory ({status.name})",
                        hint=f"it has at most {own.properties.max_shared_memory_per_block_optin} for a block",
                    )
            self._granted = size

    def _failed(self, error: Exception, grid: Extent, block: Extent, shared_memory: int) -> JitltoError:
        if isinstance(error, JitltoError):
            return error
        return LaunchError(
            f"the launch failed: {error}",
            where=self.chosen.kernel,
            hint=f"grid {grid}, block {block}, {shared_memory} bytes of dynamic shared memory",
        )

    def _count_error(self, given: int) -> ArgumentError:
        signature = ", ".join(str(parameter) for parameter in self.signature)
        if given < len(self.signature):
            missing = self.signature[given]
            return ArgumentError(
                f"argument {missing.name!r} ({missing.type}) is missing: {given} of {len(self.signature)} given",
                where=self.chosen.kernel,
                hint=f"the kernel takes ({signature})",
            )
        return ArgumentError(
            f"{given} arguments given, the kernel takes {len(self.signature)}",
            where=self.chosen.kernel,
            hint=f"the kernel takes ({signature})",
        )


def _extent(name: str, value: Extent) -> tuple[int, int, int]:
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, int) and not isinstance(p, bool) and p > 0 for p in parts):
        raise LaunchError(f"{name} is {value!r}", hint="give one to three positive integers")
    padded = (*parts, 1, 1)
    return (padded[0], padded[1], padded[2])


@contextmanager
def _allowed_in_captures() -> Iterator[None]:
    """What this thread does meanwhile does not disturb a stream capture: loading code is no work in a stream."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    status, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    try:
        yield
    finally:
        if status == driver.CUresult.CUDA_SUCCESS:
            driver.cuThreadExchangeStreamCaptureMode(before)


_live: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked process: the driver cannot be used, so launchers say so."""

    def refuse(*_: object) -> None:
        raise NoDeviceError(device.FORKED, hint=device.FORKED_HINT)

    for launcher in list(_live):
        for calls in launcher._calls.values():
            calls["launch"] = refuse


os.register_at_fork(after_in_child=_after_fork)
