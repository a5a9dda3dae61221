"""Launches prepared once: arguments packed as the driver reads them, issued one by one or together as a CUDA graph."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from jitlto.cuda import device
from jitlto.cuda.libraries import Kernel, LaunchConfig, driver

_CUDA = 12000  # the version of the driver's functions, whose structures cuda.bindings has too
_ALIGNMENT = 16  # of each argument in its buffer; no scalar or vector type of CUDA has a larger one
_CLUSTER = "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
_COOPERATIVE = "CU_LAUNCH_ATTRIBUTE_COOPERATIVE"
_PROGRAMMATIC = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
# CUDA 12 has the function with and without properties of edges, under two names.
_add_dependencies = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)


class RejectedError(Exception):
    """The driver rejected a call; the message is the name of its status."""


class PackedLaunch:
    """One launch as the driver takes it: a configuration, and one buffer for the values of the arguments.

    Args:
        kernel: The kernel; the caller keeps it loaded.
        config: The launch configuration.
        sizes: Size of each parameter, in bytes.
    """

    def __init__(self, kernel: Kernel, config: LaunchConfig, sizes: Sequence[int]) -> None:
        self.kernel = kernel.handle
        self.config = config
        pointers = 8 * len(sizes)
        starts = list(accumulate(map(_align, sizes), initial=_align(pointers)))
        buffer = np.zeros(starts[-1], np.uint8)
        #: Address of an array of pointers to the values.
        self.address = int(buffer.ctypes.data)
        buffer[:pointers].view(np.uint64)[:] = [self.address + start for start in starts[:-1]]
        #: Where each argument's value is written.
        self.values = [buffer.data[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        attributes = []
        for name, value in _attributes(config, driver.CUlaunchAttributeValue):
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id, attributes[-1].value = getattr(driver.CUlaunchAttributeID, name), value
        self._native = _with_extents(driver.CUlaunchConfig(), config)
        self._native.attrs, self._native.numAttrs = attributes, len(attributes)

    def issue(self, stream: driver.CUstream) -> None:
        """Launch the kernel with the present values.

        Raises:
            RejectedError: If the driver rejects the launch.
        """
        self._native.hStream = stream
        _check(driver.cuLaunchKernelEx(self._native, self.kernel, self.address, 0))


class LaunchGraph:
    """Launches that run one after the other, as a CUDA graph whose arguments can be replaced.

    Not synchronised: CUDA allows one thread at a time to use a graph.

    Args:
        launches: The launches.
        stream: Where the graph is transferred to the device, as the first launch of it would do otherwise.
        call: Calls a function of the driver by its address with three more numbers, and returns its status, for less
            than ``cuda.bindings`` takes; None if there is no such way.

    Raises:
        RejectedError: If the driver rejects one of the launches, or the graph.
    """

    def __init__(
        self, launches: Sequence[PackedLaunch], stream: driver.CUstream, call: Callable[..., int] | None = None
    ) -> None:
        with device.allowed_in_captures():
            self._graph = _check(driver.cuGraphCreate(0))
            _destroy_with(self, driver.cuGraphDestroy, self._graph)  # not earlier: updates refer to its nodes
            context = _check(driver.cuCtxGetCurrent())
            nodes: list[tuple[driver.CUgraphNode, driver.CUDA_KERNEL_NODE_PARAMS]] = []
            for launch in launches:
                parameters = _with_extents(driver.CUDA_KERNEL_NODE_PARAMS(), launch.config)
                parameters.kern, parameters.ctx = launch.kernel, context
                parameters.kernelParams = launch.address
                nodes.append((self._add(launch.config, parameters, nodes[-1][0] if nodes else None), parameters))
            self._executable = _check(driver.cuGraphInstantiate(self._graph, 0))
            _destroy_with(self, driver.cuGraphExecDestroy, self._executable)
            set_parameters = driver.cuGraphExecKernelNodeSetParams
            self._updates = [partial(set_parameters, self._executable, *node) for node in nodes]
            self._quick_updates: list[partial[int]] = []
            if call is not None and (function := _update_function()):
                executable = int(self._executable)
                self._quick_updates = [
                    partial(call, function, executable, int(node), int(values.getPtr())) for node, values in nodes
                ]
            _check(driver.cuGraphUpload(self._executable, stream))

    def _add(
        self, config: LaunchConfig, parameters: driver.CUDA_KERNEL_NODE_PARAMS, previous: driver.CUgraphNode | None
    ) -> driver.CUgraphNode:
        """Add a launch that runs after another one."""
        node = _check(driver.cuGraphAddKernelNode(self._graph, None, 0, parameters))
        for name, value in _attributes(config, driver.CUkernelNodeAttrValue):
            if name != _PROGRAMMATIC:  # of nodes a property of the edge
                _check(driver.cuGraphKernelNodeSetAttribute(node, getattr(driver.CUkernelNodeAttrID, name), value))
        if previous is not None:
            edge = driver.CUgraphEdgeData()
            if config.programmatic_stream_serialization:
                edge.from_port = driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
                edge.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            _check(_add_dependencies(self._graph, [previous], [node], [edge], 1))
        return node

    def update(self, numbers: Iterable[int]) -> None:
        """Let some of the launches have their present values from the next run on.

        Raises:
            RejectedError: If the driver rejects a change.
        """
        quick = self._quick_updates
        for number in numbers:
            if quick and quick[number]() == 0:
                continue
            status = self._updates[number]()[0]
            if status:
                raise RejectedError(status.name)

    def issue(self, stream: driver.CUstream) -> None:
        """Launch the graph.

        Raises:
            RejectedError: If the driver rejects that.
        """
        status = driver.cuGraphLaunch(self._executable, stream)[0]
        if status:
            raise RejectedError(status.name)


def _update_function() -> int:
    """Return the address of ``cuGraphExecKernelNodeSetParams``; 0 if the driver has none."""
    status, address, _ = driver.cuGetProcAddress(b"cuGraphExecKernelNodeSetParams", _CUDA, 0)
    return int(address) if status == driver.CUresult.CUDA_SUCCESS else 0


def is_capturing(stream: driver.CUstream) -> bool:
    """Return whether a stream is being captured, or cannot be asked because another capture forbids it."""
    status, capture = driver.cuStreamIsCapturing(stream)
    return bool(status or capture)


def _check(result: tuple[Any, ...]) -> Any:
    if result[0]:
        raise RejectedError(result[0].name)
    return result[-1]


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _with_extents(native: Any, config: LaunchConfig) -> Any:
    """Set the grid, the block and the shared memory of a launch or a node."""
    # cuda.core counts a grid with clusters in clusters, the driver in blocks.
    cluster = config.cluster or (1, 1, 1)
    native.gridDimX, native.gridDimY, native.gridDimZ = (a * b for a, b in zip(config.grid, cluster, strict=True))
    native.blockDimX, native.blockDimY, native.blockDimZ = config.block
    native.sharedMemBytes = config.shmem_size
    return native


def _attributes(config: LaunchConfig, make: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Return a launch's attributes: names and values, which ``make`` creates empty."""
    attributes = []
    if config.cluster:
        attributes.append((_CLUSTER, make()))
        extent = attributes[-1][1].clusterDim
        extent.x, extent.y, extent.z = config.cluster
    if config.is_cooperative:
        attributes.append((_COOPERATIVE, make()))
        attributes[-1][1].cooperative = 1
    if config.programmatic_stream_serialization:
        attributes.append((_PROGRAMMATIC, make()))
        attributes[-1][1].programmaticStreamSerializationAllowed = 1
    return attributes


def _destroy_with(owner: object, destroy: Callable[[Any], object], handle: object) -> None:
    """Destroy an object of the driver together with its owner."""
    weakref.finalize(owner, _destroy, destroy, handle, os.getpid()).atexit = False  # the driver ends with the process


def _destroy(destroy: Callable[[Any], object], handle: object, process: int) -> None:
    if os.getpid() == process:  # a forked process must not use the driver
        destroy(handle)
