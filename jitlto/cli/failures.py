"""Failures of a build as they happen: the first of each cause in full at once, all of them if the build is ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from jitlto.base.errors import JitltoError
from jitlto.build.failures import FailedFragmentsError, Failure, cause_finder, group_failures
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey


class FailureLog:
    """The failures of a build so far.

    Args:
        rendered: What is built; its failures count.
        say: Prints a text; called for the first failure of each cause.
    """

    def __init__(self, rendered: RenderedFamilies, say: Callable[[str], object]) -> None:
        self._rendered, self._say = rendered, say
        self._sources: dict[FragmentKey, RenderedSource] = {}  # those that were rendered when it was last asked
        self._cause_of: Callable[[Failure], Hashable] | None = None
        self._causes: set[Hashable] = set()
        self._failures: list[Failure] = []

    def add(self, key: FragmentKey, error: JitltoError) -> None:
        """Take note of a failure."""
        if key not in self._sources or self._cause_of is None:
            self._sources = {source.key: source for source in self._tried}
            self._cause_of = cause_finder(self._sources.values())
            self._causes = set(map(self._cause_of, self._failures))
        failure = Failure(self._sources[key], error)
        self._failures.append(failure)
        cause = self._cause_of(failure)
        if cause not in self._causes:
            self._causes.add(cause)
            self._say(f"error: {failure.error}")

    def report(self) -> FailedFragmentsError | None:
        """Return the error that names all failures so far, by cause; None if there are none."""
        if not self._failures:
            return None
        return FailedFragmentsError(group_failures(self._failures, self._tried), len(self._tried))

    @property
    def _tried(self) -> list[RenderedSource]:
        failed = (failure.rendered for failure in self._rendered.failures)
        return [*failed, *(request.rendered for request in self._rendered.rendered)]
