"""The events of a build, and the interface of those who observe them: :class:`Observer`. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Span:
    """The worker, start and duration of one fragment's compile."""

    key: FragmentKey
    worker: str  # host and process
    start: float  # seconds from the start of the build
    seconds: float  # of wall time


class Observer:
    """Receives the events of a build, in one thread. The methods do nothing; override those that you need."""

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and the one before ends."""

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """Rendering is done; one call of :meth:`cached`, :meth:`compiled` or :meth:`failed` follows for each key.

        ``costs`` are the known expected seconds by the text form of the key, possibly of other fragments too; see
        :func:`jitlto.build.execution.costs.read_seconds`.
        """

    def cached(self, key: FragmentKey) -> None:
        """A fragment needs no compile: the build cache has it, or another fragment has the same source."""

    def compiled(self, span: Span) -> None:
        """A fragment was compiled."""

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """A fragment failed to compile."""


NO_OBSERVER = Observer()
