"""What a build tells of itself while it runs, and who may listen: :class:`Observer`. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Span:
    """One fragment's compile: where, when and how long.

    Parameters
    ----------
    key : FragmentKey
        What was compiled.
    worker : str
        Who compiled it; a process, or a process of another machine.
    start : float
        Seconds from the begin of the build to the begin of this compile.
    seconds : float
        Wall time of the compile.
    steps : mapping of str to float
        Seconds of each of its steps, in their order, such as ``{"ltoir": 0.2, "ptx": 0.1, "symbols": 0.3}``.
    """

    key: FragmentKey
    worker: str
    start: float
    seconds: float
    steps: Mapping[str, float] = field(default_factory=dict)


class Observer:
    """Told of what a build does, by one thread. This one ignores it all: override what matters."""

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and with it ends the one before."""

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """All is rendered: of each of ``keys`` it will be told once that it is cached, compiled or failed.

        ``costs`` are expected seconds by the text form of the key, as far as they are known, of other fragments
        perhaps too; see :func:`jitlto.build.execution.timings.read_costs`.
        """

    def cached(self, key: FragmentKey) -> None:
        """A fragment needs no compile: the build cache has it, or another fragment has the same source."""

    def compiled(self, span: Span) -> None:
        """A fragment is compiled."""

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """A fragment cannot be compiled."""


#: Listens to nothing.
NO_OBSERVER = Observer()


class Together(Observer):
    """Tells several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def phase(self, name: str) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.phase(name)

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.started(keys, costs)

    def cached(self, key: FragmentKey) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.cached(key)

    def compiled(self, span: Span) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.compiled(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.failed(key, error)
