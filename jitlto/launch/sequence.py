"""Sequences: several launches issued by one call, as a CUDA graph where possible, with arguments replaced by name."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from jitlto.base.errors import ArgumentError, JitltoError, LaunchError
from jitlto.base.frozen import Frozen
from jitlto.base.text import pluralize, suggest
from jitlto.cuda import device
from jitlto.cuda.libraries import Stream, driver
from jitlto.launch.core import extension
from jitlto.launch.packed import to_bytes
from jitlto.launch.packed_launch import LaunchGraph, PackedLaunch, RejectedError, is_capturing
from jitlto.launch.slots import Slot, make_place
from jitlto.launch.streams import as_stream

_log = logging.getLogger("jitlto.launch")


class Step(Frozen):
    """One launch of a sequence; made by :meth:`Launcher.step <jitlto.Launcher.step>`.

    Args:
        launcher (Launcher): The kernel.
        grid, block, args, shared_memory, cluster, cooperative, programmatic: As for ``launcher(...)``; each of ``args``
            may be a :class:`Slot`.
    """

    launcher: Any  # a Launcher, whose module imports this one
    grid: Any
    block: Any
    args: tuple[Any, ...]
    shared_memory: int
    cluster: Any
    cooperative: bool
    programmatic: bool


class LaunchSequence:
    """Several launches that one call issues to a stream, in order; made by :func:`jitlto.sequence`.

    Keeps the launchers, the stream and the present arguments alive. May be called from several threads; each call
    launches with its own arguments.
    """

    def __init__(self, stream: Any, steps: Iterable[Step], arguments: dict[str, Any]) -> None:
        current = device.current()
        self._process = _process
        self._owner = stream  # the converted stream does not keep a stream of another library alive
        self._stream = current.default_stream if stream is None else as_stream(stream)
        self._handle = _handle(self._stream)
        self._may_close = type(self._stream) is Stream
        #: The launches.
        self.steps = tuple(steps)
        #: The present argument of each slot.
        self.arguments: dict[str, Any] = {}
        # By slot: the fields of each Place, in a plain tuple, which Python unpacks faster.
        self._places: dict[str, list[tuple[int, Callable[[Any], Any], Any]]] = {}
        self._launches = [self._pack(number, step) for number, step in enumerate(self.steps)]
        self._lock = threading.Lock()
        self._graph: LaunchGraph | None = None
        core = extension()
        self._call_driver = None if core is None else core.call_driver
        self._may_use_graph = True
        self._stale: set[int] = set()  # launches whose arguments the graph does not have yet
        for name in self._places.keys() - arguments.keys():
            hint = f"pass {name}=... after the launches"
            raise ArgumentError("no argument was given", code="launch-argument-slot", where=f"slot {name!r}", hint=hint)
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
        if self._process != _process:
            device.raise_forked_error()
        if len(arguments) == 1:  # what most calls replace: an argument of one launch
            ((name, argument),) = arguments.items()
            places = self._places.get(name, ())
            if len(places) == 1:
                launch, convert, cell = places[0]
                try:
                    value = convert(argument)
                except LaunchError as error:
                    raise self._located(error, launch) from None
                with self._lock:
                    self.arguments[name], cell.value = argument, value
                    self._stale.add(launch)
                    self._issue()
                return
        values = self._converted(arguments) if arguments else None
        with self._lock:
            if values:
                self._store(arguments, values)
            self._issue()

    def _issue(self) -> None:
        if self._may_close and self._stream.is_closed:
            hint = "make the sequence again, with an open stream"
            raise LaunchError("the stream of the sequence is closed", code="launch-failed", hint=hint)
        if self._may_use_graph and not is_capturing(self._handle):
            self._issue_graph()
        else:
            self._issue_each()

    def _issue_graph(self) -> None:
        """Launch the graph, with the stale launches updated; make it first if there is none."""
        graph, stale = self._graph, self._stale
        try:
            if graph is not None and stale:
                try:
                    graph.update(stale)
                except RejectedError:
                    graph = None  # the driver cannot change these arguments: make the graph again
            if graph is None:
                graph = self._graph = LaunchGraph(self._launches, self._handle, self._call_driver)
            if stale:
                stale.clear()
            graph.issue(self._handle)
            return
        except RejectedError as error:
            reason = error
        self._graph = None
        self._issue_each()  # either says which launch is to blame
        self._may_use_graph = False  # or there is none
        _log.warning("the driver makes no CUDA graph of %r (%s): its launches are issued one by one", self, reason)

    def _issue_each(self) -> None:
        for number, launch in enumerate(self._launches):
            try:
                launch.issue(self._handle)
            except RejectedError as error:
                step = self.steps[number]
                hint = f"grid {step.grid}, block {step.block}, {step.shared_memory} bytes of dynamic shared memory"
                what = f"the launch failed: {error}"
                raise LaunchError(what, code="launch-failed", where=self._name(number), hint=hint) from error

    def _pack(self, number: int, step: Step) -> PackedLaunch:
        """Check a step, write the arguments that are known, and note the places of its slots."""
        launcher, signature = step.launcher, step.launcher.signature
        try:
            if len(step.args) != len(signature):
                raise launcher._convert.count_error(len(step.args))
            config = launcher._config_maker.make(
                step.grid, step.block, step.shared_memory, step.cluster, step.cooperative, step.programmatic
            )
            if step.cooperative and math.prod(config.grid) > launcher.max_blocks(step.block, step.shared_memory):
                hint = "at most launcher.max_blocks(block, shared_memory) blocks run at the same time"
                raise LaunchError(
                    f"grid {step.grid} is too large for a cooperative launch", code="launch-failed", hint=hint
                )
            launch = PackedLaunch(launcher.kernel, config, [parameter.size for parameter in signature])
            parts = zip(step.args, signature, launcher._convert.converters, launch.values, strict=True)
            for argument, parameter, convert, memory in parts:
                if type(argument) is Slot:
                    place = make_place(number, parameter, convert, memory)
                    self._places.setdefault(argument.name, []).append((*place,))
                else:
                    memory[:] = to_bytes(convert(argument), parameter.size)
        except LaunchError as error:
            raise self._located(error, number) from None
        return launch

    def _converted(self, arguments: dict[str, Any]) -> list[tuple[int, Any, Any]]:
        """Convert the arguments of slots for all of their places."""
        values, places = [], self._places
        for name, argument in arguments.items():
            if name not in places:
                raise self._unknown_slot(name)
            for launch, convert, cell in places[name]:
                try:
                    values.append((launch, cell, convert(argument)))
                except LaunchError as error:
                    raise self._located(error, launch) from None
        return values

    def _store(self, arguments: dict[str, Any], values: list[tuple[int, Any, Any]]) -> None:
        self.arguments.update(arguments)
        stale = self._stale
        for launch, cell, value in values:
            cell.value = value
            stale.add(launch)

    def _unknown_slot(self, name: str) -> ArgumentError:
        hint = suggest(name, self._places) or f"the slots are {', '.join(self._places) or 'none'}"
        return ArgumentError(f"no slot is named {name!r}", code="launch-argument-slot", where=repr(self), hint=hint)

    def _located(self, error: LaunchError, number: int) -> LaunchError:
        """Let an error say which launch it is about."""
        kernel = self.steps[number].launcher.chosen.kernel
        error.where = self._name(number) + (f", {error.where}" if error.where not in (None, kernel) else "")
        return error

    def _name(self, number: int) -> str:
        return f"launch {number + 1} of {len(self.steps)}, {self.steps[number].launcher.chosen.kernel}"


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


def _handle(stream: Any) -> driver.CUstream:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        hint = "pass a stream, its handle, or None for the default stream"
        raise LaunchError(f"{type(stream).__name__} is not a stream", code="launch-failed", hint=hint)
    return driver.CUstream(int(protocol()[1]))


def _after_fork() -> None:
    global _process
    _process = os.getpid()


_process = os.getpid()  # kept, because asking the system costs a tenth of a launch
os.register_at_fork(after_in_child=_after_fork)
