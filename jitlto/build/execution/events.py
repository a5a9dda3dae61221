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


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the build: its name, its begin in seconds from the begin of the build, and its seconds.

    A name may come again, once for each family.
    """

    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of a build went.

    Parameters
    ----------
    phases : tuple of Phase
        In order.
    spans : tuple of Span
        Of each fragment that was compiled, in the order in which they ended.
    cached : int
        Fragments that took no compile.
    total_seconds : float
        Wall time of the build.
    earlier : mapping of str to float
        Of those from the cache, by key, the seconds that they took when they were compiled, as far as it is known.
    """

    phases: tuple[Phase, ...]
    spans: tuple[Span, ...]
    cached: int
    total_seconds: float
    earlier: Mapping[str, float] = field(default_factory=dict)


class Observer:
    """Told of what a build does, by one thread. This one ignores it all: override what matters."""

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and with it ends the one before."""

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """All is rendered: of each of ``keys`` it will be told once that it is cached, compiled or failed.

        ``costs`` are expected seconds by the text form of the key, as far as they are known, of other fragments
        perhaps too; see :func:`jitlto.build.execution.costs.read_seconds`.
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
