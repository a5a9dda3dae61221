"""The events of a build, and the interface of those who observe them: :class:`Observer`. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Span:
    """One fragment's compile: where, when and how long."""

    key: FragmentKey
    worker: str  # host and process
    start: float  # seconds from the start of the build
    seconds: float  # of wall time


class Observer:
    """Called by one thread with what a build does. Override what matters; this one ignores it all."""

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and the one before ends."""

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """All is rendered; for each of ``keys`` one call of :meth:`cached`, :meth:`compiled` or :meth:`failed` follows.

        ``costs`` are expected seconds by the text form of the key, as far as they are known, and perhaps of other
        fragments too; see :func:`jitlto.build.execution.costs.read_seconds`.
        """

    def cached(self, key: FragmentKey) -> None:
        """A fragment needs no compile: the build cache has it, or another fragment has the same source."""

    def compiled(self, span: Span) -> None:
        """A fragment was compiled."""

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """A fragment failed to compile."""


NO_OBSERVER = Observer()
