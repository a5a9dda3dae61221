"""Fragments that do not compile, grouped by the first thing that their compilers say of a template or header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitlto.base.errors import BuildError, JitltoError, LoggedError
from jitlto.base.text import pluralize
from jitlto.build.findings import Finding, Kind, cause_of, describe_causes, group_by_cause, message_of
from jitlto.families.templates import RenderedSource
from jitlto.record.check_result import Cause

# What NVRTC and nvcc say of a file, and ptxas or a host compiler.
_DIAGNOSTIC = re.compile(r"^(.+?)\(\d+\): [\w ]*error(?: #[\w-]+)?: (.*)$", re.M)
_OTHER_ERROR = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.M | re.I)


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that failed to become a fragment, and why."""

    rendered: RenderedSource
    error: JitltoError

    @property
    def message(self) -> tuple[str, str]:
        """The file and text of the first diagnostic; without one the error's own text."""
        log = self.error.log if isinstance(self.error, LoggedError) else ""
        if found := _DIAGNOSTIC.search(log):
            return str(self.rendered.group.template) if found[1].endswith(".cu") else found[1], found[2]
        other = _OTHER_ERROR.search(log)
        return "", other[0] if other else self.error.what.partition("\n")[0]


class FailedFragmentsError(BuildError):
    """Fragments that failed to compile; all others were compiled.

    Args:
        causes: As :func:`group_failures` returns them; at least one.
        total: The number of fragments of the build.
    """

    code = "build-failed-fragments"

    def __init__(self, causes: Sequence[Cause], total: int) -> None:
        failed = sum(cause.count for cause in causes)
        what = f"{failed} of {total} fragments failed to compile, {pluralize(len(causes), 'cause')}"
        super().__init__(
            describe_causes(what, causes),
            hint="no database was written; fix the errors and build again: the build cache keeps what compiled",
        )
        self.causes = tuple(causes)


def group_failures(failures: Iterable[Failure], sources: Iterable[RenderedSource]) -> list[Cause]:
    """Group failures by cause, the most frequent first.

    Args:
        failures: In the order of the build.
        sources: All sources of the build.
    """

    def message(failure: Failure) -> tuple[object, str]:
        file, text = failure.message
        return (type(failure.error), file), text.replace(str(failure.rendered.key), "")

    values = [value for source in sources for value in source.combination.values()]
    return [cause_of([_finding(each) for each in group]) for group in group_by_cause(failures, message, values)]


def _finding(failure: Failure) -> Finding:
    error, rendered = failure.error, failure.rendered
    log = error.log if isinstance(error, LoggedError) else ""
    place = str(rendered.key), rendered.combination
    return Finding(Kind.COMPILE, message_of(error), error.hint, *place, log, code=error.code)
