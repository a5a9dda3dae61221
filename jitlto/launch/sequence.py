"""Sequences: several launches issued by one call, as a CUDA graph where possible, with arguments replaced by name."""

from __future__ import annotations  # the site is built where NVIDIA's modules are stand-ins

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from jitlto.base.errors import ArgumentError, JitltoError, LaunchError
from jitlto.base.text import pluralize, suggest
from jitlto.cuda import device
from jitlto.cuda.device import stream_handle
from jitlto.cuda.libraries import driver
from jitlto.launch.arguments import Converter
from jitlto.launch.step import Slot, Step, make_attributes, start, write_shape

_log = logging.getLogger("jitlto.launch")
# CUDA 12 has the function with and without properties of edges, under two names.
_add_dependencies = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)


class RejectedError(Exception):
    """The driver rejected a call; the message is the name of its status."""


class Launch:
    """One of the launches, and memory with the present values of its arguments, those of slots too.

    Raises:
        ArgumentError, LaunchError: As ``launcher(...)``.
    """

    def __init__(self, step: Step, args: Sequence[Any]) -> None:
        self.step, launcher = step, step.launcher.wait()
        self.memory, self.address = launcher.packing.pack(launcher.chosen.kernel, args)
        self.shape = launcher.check(step.grid, step.block, step.shared_memory, step.cluster, step.cooperative)


class LaunchSequence:
    """Several launches that one call issues to a stream, in order; made by :func:`jitlto.sequence`.

    Keeps the launchers, the stream and the present arguments alive. May be called from several threads; each call
    launches with its own arguments.
    """

    def __init__(self, stream: Any, steps: Iterable[Step], arguments: dict[str, Any]) -> None:
        device.current()
        self._stream, self._handle = stream, stream_handle(stream)
        self._queue = driver.CUstream(self._handle)
        #: The launches.
        self.steps = tuple(steps)
        #: The present argument of each slot.
        self.arguments: dict[str, Any] = {}
        # By slot: the number of each launch that takes it, its converter, and where it is written.
        self._places: dict[str, list[tuple[int, Converter, memoryview]]] = {}
        self._launches = [self._check(number, step, arguments) for number, step in enumerate(self.steps)]
        self._lock = threading.Lock()
        self._graph: LaunchGraph | None = None
        self._may_use_graph = True
        self._stale: set[int] = set()  # launches whose arguments the graph does not have yet
        self._store(arguments, self._converted(arguments))

    def __reduce__(self) -> str:
        """Raise an error: neither a copy nor another process has its stream and its arrays."""
        raise JitltoError(
            "a sequence can be neither copied nor sent to another process",
            code="jitlto-not-portable",
            where=repr(self),
            hint="send its steps' launchers, and make it again there: jitlto.sequence(...)",
        )

    def __repr__(self) -> str:
        slots = f" with {', '.join(self._places)}" if self._places else ""
        return f"<LaunchSequence of {pluralize(len(self.steps), 'step')}{slots}>"

    def __call__(self, /, **arguments: Any) -> None:
        """Issue the launches.

        Args:
            **arguments: Replaced arguments by the name of their slot. Later calls use them too.

        Raises:
            ArgumentError: (a TypeError) If an argument does not fit, or no slot has its name; nothing is launched.
            LaunchError: If the driver rejects a launch; the error says which. Those before it have been launched.
        """
        if device.is_forked:
            device.raise_forked_error()
        values = self._converted(arguments) if arguments else None
        with self._lock:
            if values:
                self._store(arguments, values)
            if getattr(self._stream, "is_closed", False):
                stream_handle(self._stream)  # raises
            if self._may_use_graph and not device.is_capturing(int(self._queue)):
                self._issue_graph()
            else:
                self._issue_each()

    def _issue_graph(self, may_lack_context: bool = True) -> None:
        """Launch the graph, with the stale launches updated; make it first if there is none."""
        try:
            if self._graph is None:
                self._graph = LaunchGraph(self._launches, self._queue)
            else:
                for number in self._stale:
                    _check(self._graph.updates[number]())
            self._stale.clear()
            _check(driver.cuGraphLaunch(self._graph.executable, self._queue))
        except RejectedError as error:
            if may_lack_context:  # to ask before each launch would take a tenth of it
                device.ensure_context()
                return self._issue_graph(may_lack_context=False)
            self._graph = None
            self._issue_each()  # either says which launch is to blame
            self._may_use_graph = False  # or there is none
            _log.warning("the driver makes no CUDA graph of %r (%s): its launches are issued one by one", self, error)

    def _issue_each(self) -> None:
        device.ensure_context()
        for number, launch in enumerate(self._launches):
            step = launch.step
            how = step.shared_memory, step.cooperative, step.programmatic
            try:
                start(step.launcher, launch.shape, *how, self._handle, launch.address)
            except LaunchError as error:
                raise self._located(error, number) from None

    def _check(self, number: int, step: Step, arguments: dict[str, Any]) -> Launch:
        """Check a step with the first arguments of its slots, and note the places of these."""
        slots = {place: argument.name for place, argument in enumerate(step.args) if type(argument) is Slot}
        for name in set(slots.values()) - arguments.keys():
            hint = f"pass {name}=... after the launches"
            raise ArgumentError("no argument was given", code="launch-argument-slot", where=f"slot {name!r}", hint=hint)
        packing = step.launcher.packing
        args = [arguments[slots[place]] if place in slots else argument for place, argument in enumerate(step.args)]
        try:
            launch = Launch(step, args)
        except LaunchError as error:
            raise self._located(error, number) from None
        for place, name in slots.items():
            begin = packing.places[place]
            memory = memoryview(launch.memory).cast("B")[begin : begin + packing.signature[place].size]
            self._places.setdefault(name, []).append((number, packing.converters[place], memory))
        return launch

    def _converted(self, arguments: dict[str, Any]) -> list[tuple[int, memoryview, bytes]]:
        """Convert the arguments of slots for all of their places."""
        values = []
        for name, argument in arguments.items():
            if name not in self._places:
                hint = suggest(name, self._places) or f"the slots are {', '.join(self._places) or 'none'}"
                what = f"no slot is named {name!r}"
                raise ArgumentError(what, code="launch-argument-slot", where=repr(self), hint=hint)
            made: dict[Converter, bytes] = {}
            for number, convert, memory in self._places[name]:
                try:
                    if convert not in made:
                        made[convert] = convert(argument)
                except LaunchError as error:
                    raise self._located(error, number) from None
                values.append((number, memory, made[convert]))
        return values

    def _store(self, arguments: dict[str, Any], values: list[tuple[int, memoryview, bytes]]) -> None:
        self.arguments.update(arguments)
        for number, memory, value in values:
            memory[:] = value
            self._stale.add(number)

    def _located(self, error: LaunchError, number: int) -> LaunchError:
        """Let an error say which launch it is about."""
        kernel = self.steps[number].launcher.chosen.kernel
        place = f", {error.where}" if error.where not in (None, kernel) else ""
        error.place = f"launch {number + 1} of {len(self.steps)}, {kernel}{place}"
        return error


class LaunchGraph:
    """Launches that run one after the other, as a CUDA graph whose arguments can be replaced.

    Not synchronised: CUDA allows one thread at a time to use a graph. It is transferred to the device in a stream, as
    its first launch would do otherwise.

    Raises:
        RejectedError: If the driver rejects one of the launches, or the graph.
    """

    def __init__(self, launches: Sequence[Launch], stream: driver.CUstream) -> None:
        with device.allowed_in_captures():
            self._graph = _check(driver.cuGraphCreate(0))
            _destroy_with(self, driver.cuGraphDestroy, self._graph)  # not earlier: updates refer to its nodes
            context = _check(driver.cuCtxGetCurrent())
            nodes: list[tuple[driver.CUgraphNode, driver.CUDA_KERNEL_NODE_PARAMS]] = []
            for launch in launches:
                step = launch.step
                parameters = write_shape(driver.CUDA_KERNEL_NODE_PARAMS(), launch.shape, step.shared_memory)
                parameters.kern, parameters.ctx = step.launcher.kernel.handle, context
                parameters.kernelParams = launch.address
                nodes.append((self._add(launch, parameters, nodes[-1][0] if nodes else None), parameters))
            #: The graph as the driver launches it.
            self.executable = _check(driver.cuGraphInstantiate(self._graph, 0))
            _destroy_with(self, driver.cuGraphExecDestroy, self.executable)
            #: Of each launch, what lets it have its present values from the next run on.
            self.updates = [partial(driver.cuGraphExecKernelNodeSetParams, self.executable, *node) for node in nodes]
            _check(driver.cuGraphUpload(self.executable, stream))

    def _add(
        self, launch: Launch, parameters: driver.CUDA_KERNEL_NODE_PARAMS, previous: driver.CUgraphNode | None
    ) -> driver.CUgraphNode:
        """Add a launch that runs after another one."""
        node = _check(driver.cuGraphAddKernelNode(self._graph, None, 0, parameters))
        # Of nodes, programmatic dependent launch is a property of the edge.
        make, cooperative = driver.CUkernelNodeAttrValue, launch.step.cooperative
        for name, value in make_attributes(make, launch.shape[-1], cooperative, False):
            _check(driver.cuGraphKernelNodeSetAttribute(node, getattr(driver.CUkernelNodeAttrID, name), value))
        if previous is not None:
            edge = driver.CUgraphEdgeData()
            if launch.step.programmatic:
                edge.from_port = driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
                edge.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            _check(_add_dependencies(self._graph, [previous], [node], [edge], 1))
        return node


def sequence(stream: Any, steps: Iterable[Step], /, **arguments: Any) -> LaunchSequence:
    """Prepare several launches that one call issues, in order.

    All arguments are checked and converted now; those of slots again when a call replaces them. The launches are issued
    as one CUDA graph, whose nodes are updated where arguments were replaced; while the stream is being captured, they
    are issued one by one, into that capture.

    Args:
        stream (object): As for ``launcher(...)``.
        steps: The launches, made by :meth:`Launcher.step <jitlto.Launcher.step>`.
        **arguments: The first argument of each :class:`Slot`, by its name.

    Raises:
        ArgumentError: (a TypeError) If an argument is missing, does not fit its parameter, or has the name of no slot.
        LaunchError: If a launch configuration is invalid; the error says of which launch.
    """
    return LaunchSequence(stream, steps, arguments)


def _check(result: tuple[Any, ...]) -> Any:
    if result[0]:
        raise RejectedError(result[0].name)
    return result[-1]


def _destroy_with(owner: object, destroy: Callable[[Any], object], handle: object) -> None:
    """Destroy an object of the driver together with its owner, but not in a forked process."""
    process = os.getpid()
    made = weakref.finalize(owner, lambda: destroy(handle) if os.getpid() == process else None)
    made.atexit = False  # the driver ends with the process
