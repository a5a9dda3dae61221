"""A driver for sequences without a GPU: it reads packed arguments as the real one does, and notes what would run."""

import ctypes
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest
from cuda.bindings import driver

from jitlto.cuda import libraries
from jitlto.launch import sequence as sequence_module
from jitlto.launch import step as step_module
from tests.support.launchers import INVALID, OK, FakeDriver, plain_config


@dataclass(frozen=True)
class Run:
    """One run of a kernel."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: tuple[bytes, ...]
    shared_memory: int = 0
    attributes: frozenset[str] = frozenset()
    in_graph: bool = False
    stream: int = 0


@dataclass
class Graph:
    """A graph; its nodes are numbers, and an executable graph has runs of its own."""

    runs: list[Run] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    number: int = 0

    def __int__(self) -> int:
        return self.number


class FakeGraphs:
    """Stands for the functions of the driver that sequences call; types and enumerations are the real ones.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Puts it in place.
    sizes : list of int
        Of the parameters of all kernels, in bytes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
        self.sizes = sizes
        self.runs: list[Run] = []
        self.graphs: list[Graph] = []
        self.executables: list[Graph] = []
        #: Calls by the name of the function.
        self.calls: list[str] = []
        #: Functions that fail, by name.
        self.failing: set[str] = set()
        self.capturing = False
        self.destroyed = 0
        #: The largest number of threads per block that a launch or a node may have.
        self.most_threads = 1024
        for module in (step_module, sequence_module):
            monkeypatch.setattr(module, "driver", self)
        monkeypatch.setattr(libraries, "driver", self, raising=False)
        monkeypatch.setattr(sequence_module, "_add_dependencies", self.add_dependencies)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(driver, name)
        function = getattr(self, f"_{name}")

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            return (INVALID, None) if name in self.failing else function(*args)

        return call

    def take(self) -> list[Run]:
        """What has run since the last time."""
        taken, self.runs = self.runs, []
        return taken

    def _read(self, launch: Any, address: int, **others: Any) -> Run:
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(address)
        values = tuple(ctypes.string_at(pointer or 0, size) for pointer, size in zip(pointers, self.sizes, strict=True))
        grid = (launch.gridDimX, launch.gridDimY, launch.gridDimZ)
        block = (launch.blockDimX, launch.blockDimY, launch.blockDimZ)
        return Run(grid, block, values, launch.sharedMemBytes, **others)

    def _fits(self, launch: Any) -> bool:
        return int(launch.blockDimX * launch.blockDimY * launch.blockDimZ) <= self.most_threads

    def _cuLaunchKernel(self, kernel: Any, *shape: int) -> tuple[Any, ...]:  # noqa: N802
        return self._cuLaunchKernelEx(plain_config(*shape[:8]), kernel, *shape[8:])

    def _cuLaunchKernelEx(self, config: Any, kernel: Any, address: int, extra: int) -> tuple[Any, ...]:  # noqa: N802
        if not self._fits(config):
            return (INVALID,)
        names = frozenset(attribute.id.name for attribute in config.attrs)
        self.runs.append(self._read(config, address, attributes=names, stream=int(config.hStream)))
        return (OK,)

    def _cuStreamIsCapturing(self, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return OK, driver.CUstreamCaptureStatus(int(self.capturing))

    def _cuCtxGetCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        return OK, driver.CUcontext(0)

    def _cuGraphCreate(self, flags: int) -> tuple[Any, ...]:  # noqa: N802
        self.graphs.append(Graph())
        return OK, self.graphs[-1]

    def _cuGraphAddKernelNode(  # noqa: N802
        self, graph: Graph, dependencies: None, count: int, node: Any
    ) -> tuple[Any, ...]:
        if not self._fits(node):
            return INVALID, None
        graph.runs.append(self._read(node, int(node.kernelParams), in_graph=True))
        return OK, len(graph.runs) - 1

    def _cuGraphKernelNodeSetAttribute(self, node: int, kind: Any, value: Any) -> tuple[Any, ...]:  # noqa: N802
        graph = self.graphs[-1]
        graph.runs[node] = replace(graph.runs[node], attributes=graph.runs[node].attributes | {kind.name})
        return (OK,)

    def add_dependencies(
        self, graph: Graph, begins: list[int], ends: list[int], edges: list[Any], count: int
    ) -> tuple[Any, ...]:
        """Take the place of ``cuGraphAddDependencies``."""
        graph.edges += [(begin, end, int(edge.type)) for begin, end, edge in zip(begins, ends, edges, strict=True)]
        return (OK,)

    def _cuGraphInstantiate(self, graph: Graph, flags: int) -> tuple[Any, ...]:  # noqa: N802
        self.executables.append(Graph(list(graph.runs), number=len(self.executables)))
        return OK, self.executables[-1]

    def _cuGraphUpload(self, executable: Graph, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return (OK,)

    def _cuGraphExecKernelNodeSetParams(self, executable: Graph, node: int, parameters: Any) -> tuple[Any, ...]:  # noqa: N802
        read = self._read(parameters, int(parameters.kernelParams))
        executable.runs[node] = replace(executable.runs[node], values=read.values)
        return (OK,)

    def _cuGraphLaunch(self, executable: Graph, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        self.runs += [replace(run, stream=int(stream)) for run in executable.runs]
        return (OK,)

    def _cuGraphDestroy(self, graph: Graph) -> tuple[Any, ...]:  # noqa: N802
        self.destroyed += 1
        return (OK,)

    _cuGraphExecDestroy = _cuGraphDestroy  # noqa: N815


class StreamStandIn:
    """A stream of another library."""

    def __init__(self, handle: int = 7) -> None:
        self._number = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._number


class FakeSequences(FakeDriver):
    """Launchers of kernels with parameters of some types, and a driver for their sequences."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *types: str, core: ModuleType | None = None) -> None:
        super().__init__(monkeypatch, core)
        self.made = self.launcher(*types)
        self.driver = FakeGraphs(monkeypatch, [parameter.size for parameter in self.made.signature])
