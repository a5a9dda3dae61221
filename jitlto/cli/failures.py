"""Failures of a build as they happen: the first of each cause in full at once, all of them if the build is ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from jitlto.build.failures import FailedFragmentsError, Failure, cause_finder, group_failures
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey


class FailureLog:
    """The failures of a build so far.

    Args:
        rendered: What is built; its failures count.
        say: Prints a text; called for the first failure of each cause.
    """

    def __init__(self, rendered: RenderedFamilies, say: Callable[[str], object]) -> None:
        self._say = say
        self._sources = {request.key: request.rendered for request in rendered.requests}
        self._tried = [*(failure.rendered for failure in rendered.failures), *self._sources.values()]
        self._cause_of: Callable[[Failure], Hashable] | None = None
        self._causes: set[Hashable] = set()
        self._failures: list[Failure] = []
        for failure in rendered.failures:
            self._add(failure)

    def add(self, key: FragmentKey, error: JitltoError) -> None:
        """Take note of a failure."""
        self._add(Failure(self._sources[key], error))

    def report(self) -> FailedFragmentsError | None:
        """Return the error that names all failures so far, by cause; None if there are none."""
        if not self._failures:
            return None
        return FailedFragmentsError(group_failures(self._failures, self._tried), len(self._tried))

    def _add(self, failure: Failure) -> None:
        self._failures.append(failure)
        self._cause_of = self._cause_of or cause_finder(self._tried)
        cause = self._cause_of(failure)
        if cause not in self._causes:
            self._causes.add(cause)
            self._say(f"error: {failure.error}")
