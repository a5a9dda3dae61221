"""Fragments that do not compile, grouped by the first thing that their compilers say of a template or header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jitlto.base.errors import BuildError, JitltoError, LoggedError
from jitlto.base.text import pluralize
from jitlto.build.findings import group_by_cause
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey

# What NVRTC and nvcc say of a file, and ptxas or a host compiler.
_DIAGNOSTIC = re.compile(r"^(.+?)\(\d+\): [\w ]*error(?: #[\w-]+)?: (.*)$", re.M)
_OTHER_ERROR = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.M | re.I)
_MOST_KEYS, _MOST_EXAMPLES, _LONGEST_TITLE = 8, 10, 160


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

    @property
    def group(self) -> str:
        """The family and group of the source."""
        return f"{self.rendered.key.family}/{self.rendered.key.group}"


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with the same cause."""

    failures: tuple[Failure, ...]  # at least one, in the order of the build
    #: How many fragments of each group it affects, such as ``2 of the 24 of search/compute_distance``.
    extent: tuple[str, ...]

    @property
    def title(self) -> str:
        """The message of the first failure, shortened to one line."""
        title = self.failures[0].message[1].strip()
        return title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}..."

    @property
    def keys(self) -> tuple[FragmentKey, ...]:
        """The fragments that failed, in the order of the build."""
        return tuple(failure.rendered.key for failure in self.failures)


class FailedFragmentsError(BuildError):
    """Fragments that failed to compile; all others were compiled.

    Args:
        failures: As :func:`group_failures` returns them; at least one.
        total: The number of fragments of the build.
    """

    code = "build-failed-fragments"

    def __init__(self, failures: Sequence[FailureGroup], total: int) -> None:
        failed = sum(len(cause.failures) for cause in failures)
        causes = pluralize(len(failures), "cause")
        super().__init__(
            "\n".join([f"{failed} of {total} fragments failed to compile, {causes}", *_describe(failures)]),
            hint="no database was written; fix the errors and build again: the build cache keeps what compiled",
        )
        self.failures = tuple(failures)


def group_failures(failures: Iterable[Failure], sources: Iterable[RenderedSource]) -> list[FailureGroup]:
    """Group failures by cause, the largest group first.

    Args:
        failures: In the order of the build.
        sources: All sources of the build.
    """
    sources = list(sources)
    tried = Counter(f"{source.key.family}/{source.key.group}" for source in sources)
    values = [value for source in sources for value in source.combination.values()]

    def message(failure: Failure) -> tuple[object, str]:
        file, text = failure.message
        return (type(failure.error), file), text.replace(str(failure.rendered.key), "")

    found = []
    for members in group_by_cause(failures, message, values):
        counts = Counter(failure.group for failure in members).items()
        extent = (f"{'all' if n == tried[group] else f'{n} of the'} {tried[group]} of {group}" for group, n in counts)
        found.append(FailureGroup(tuple(members), tuple(extent)))
    return found


def _describe(groups: Sequence[FailureGroup]) -> Iterator[str]:
    """Describe each cause, the first few with a complete error."""
    for number, cause in enumerate(groups, 1):
        count = len(cause.failures)
        yield f"\n{number}. {pluralize(count, 'fragment')}: {cause.title}"
        yield f"   affects {'; '.join(cause.extent)}"
        if number <= _MOST_EXAMPLES:
            more = f" and {count - _MOST_KEYS} more" if count > _MOST_KEYS else ""
            yield f"   {', '.join(map(str, cause.keys[:_MOST_KEYS]))}{more}"
            yield "   the first error:" if count > 1 else "   the error:"
            yield "\n".join(f"     {line}".rstrip() for line in str(cause.failures[0].error).split("\n"))
