"""The events of a build, and :class:`Observer`, the interface for receiving them."""

from collections.abc import Collection
from dataclasses import dataclass

from jitlto.base.errors import JitltoError
from jitlto.record.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Span:
    """The worker, start and duration of one fragment's compile."""

    key: FragmentKey
    worker: str  # host and process
    start: float  # seconds from the start of the build
    seconds: float  # of wall time


class Observer:
    """Receives the events of a build, in one thread. The methods do nothing; override the ones needed."""

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and the previous phase ends."""

    def started(self, keys: Collection[FragmentKey]) -> None:
        """Fragments are rendered; one call of :meth:`cached`, :meth:`compiled` or :meth:`failed` follows for each key.

        Called for one family after another, while earlier ones are compiled.
        """

    def cached(self, key: FragmentKey) -> None:
        """A fragment needs no compile: it is in the build cache, or a different fragment has the same source."""

    def compiled(self, span: Span) -> None:
        """A fragment was compiled."""

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """A fragment failed to compile."""


NO_OBSERVER = Observer()
