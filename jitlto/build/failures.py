"""Failures grouped by cause, so that a bug in a template is reported once and not for every combination.

Two failures have the same cause if the compiler reports the same message for the same lines, apart from parts that vary
with the combination: parameter values, numbers, scalar types, and the line's number in the rendered source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jitlto.base.errors import BuildError, JitltoError, LoggedError
from jitlto.base.text import pluralize
from jitlto.build.causes import group_by_cause, value_eraser
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey

_DIAGNOSTIC = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): [\w ]*error(?: #[\w-]+)?: (?P<text>.*)$", re.M)
_OTHER_ERROR = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.M | re.I)  # ptxas, the host compiler
_PATH = re.compile(r"(?:/[\w.+-]+){2,}")
_HASH = re.compile(r"\b[0-9a-f]{20}\b")  # of a program, see nvrtc.program_name
_MOST_VALUES, _MOST_KEYS, _MOST_EXAMPLES, _LONGEST_TITLE = 4, 8, 10, 160


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that failed to become a fragment, and why."""

    rendered: RenderedSource
    error: JitltoError


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with the same cause."""

    title: str  # the cause in one line: the first diagnostic of the first failure
    failures: tuple[Failure, ...]  # at least one, in the order of the build
    #: The affected combinations of each group, such as ``all 24 of search/compute_distance with data_type=__half``.
    extent: tuple[str, ...]

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
        sources: All sources of the build, to find what the failing ones have in common.
    """
    sources = list(sources)
    tried: dict[tuple[str, str], list[RenderedSource]] = {}
    for rendered in sources:
        tried.setdefault(_group_of(rendered), []).append(rendered)
    return [
        FailureGroup(_title(cause.first), cause.members, tuple(_extents(cause.members, tried)))
        for cause in group_by_cause(failures, cause_finder(sources))
    ]


def cause_finder(sources: Iterable[RenderedSource]) -> Callable[[Failure], Hashable]:
    """Return a function whose results are equal for failures with the same cause.

    Args:
        sources: All sources of the build.
    """
    values = {line.strip() for rendered in sources for value in rendered.combination.values() for line in _lines(value)}
    erase = value_eraser(values)
    return lambda failure: _signature(failure, erase)


def _group_of(rendered: RenderedSource) -> tuple[str, str]:
    return rendered.key.family, rendered.key.group


# --- the cause


def _signature(failure: Failure, erase: Callable[[str], str]) -> Hashable:
    """Return the set of diagnostics, without the parts that vary between combinations."""
    rendered, error = failure.rendered, failure.error
    log = error.log if isinstance(error, LoggedError) else ""
    lines = _lines(rendered.text)
    diagnostics = set()
    for match in _DIAGNOSTIC.finditer(log):
        number = int(match["line"])
        if _is_source(match["file"], rendered.key):
            # The text of the line instead of its number, which values of several lines and conditions shift.
            place = str(rendered.group.template), erase(lines[number - 1] if number <= len(lines) else "")
        else:
            place = match["file"], match["line"]
        diagnostics.add((*place, erase(match["text"])))
    if diagnostics:
        return frozenset(diagnostics)
    other = (_nameless(line, rendered.key) for line in _OTHER_ERROR.findall(log) or [error.what])
    return type(error), frozenset(map(erase, other))


def _is_source(file: str, key: FragmentKey) -> bool:
    return file == f"{key}.cu" or _HASH.fullmatch(file.removesuffix(".cu")) is not None


def _nameless(line: str, key: FragmentKey) -> str:
    return _HASH.sub("", _PATH.sub("", line.replace(str(key), "")))


def _lines(text: str) -> list[str]:
    return text.split("\n")  # not splitlines, which also splits where a compiler sees no end of a line


# --- the affected combinations


def _extents(members: Sequence[Failure], tried: Mapping[tuple[str, str], Sequence[RenderedSource]]) -> Iterable[str]:
    for family, name in dict.fromkeys(_group_of(failure.rendered) for failure in members):
        failed = [f.rendered for f in members if _group_of(f.rendered) == (family, name)]
        yield _extent(f"{family}/{name}", failed, tried[family, name])


def _extent(name: str, failed: Sequence[RenderedSource], tried: Sequence[RenderedSource]) -> str:
    if len(failed) == len(tried):
        return f"{_all(tried)} of {name}"
    conditions = {
        parameter: values
        for parameter in dict.fromkeys(p for rendered in tried for p in rendered.combination)
        if (values := _values(failed, parameter)) != _values(tried, parameter)
    }
    # Drop conditions that follow from the others, parameters outside the key first.
    key = dict(failed[0].key.parameters)
    held = _meeting(tried, conditions)
    for parameter in sorted(conditions, key=lambda p: (p in key, -len(conditions[p]))):
        fewer = {p: values for p, values in conditions.items() if p != parameter}
        if len(_meeting(tried, fewer)) == len(held):
            conditions = fewer
    count = f"{len(failed)} of the {len(held)}" if len(failed) < len(held) else _all(held)
    described = " and ".join(_condition(p, values, _values(tried, p)) for p, values in conditions.items())
    return f"{count} of {name} with {described}" if described else f"{count} of {name}"


def _all(sources: Sequence[RenderedSource]) -> str:
    return f"all {len(sources)}" if len(sources) > 1 else "the only one"


def _values(sources: Iterable[RenderedSource], parameter: str) -> set[str | None]:
    return {rendered.combination.get(parameter) for rendered in sources}


def _meeting(sources: Iterable[RenderedSource], conditions: Mapping[str, set[str | None]]) -> list[RenderedSource]:
    return [r for r in sources if all(r.combination.get(p) in values for p, values in conditions.items())]


def _condition(parameter: str, values: set[str | None], of: set[str | None]) -> str:
    """Describe the values that fail, or those that do not fail if they are fewer."""
    others = of - values
    if len(others) < len(values) and len(others) <= _MOST_VALUES:
        return f"{parameter} other than {_or(others)}"
    if len(values) > _MOST_VALUES:
        return f"{len(values)} of the {len(of)} values of {parameter}"
    return f"{parameter}={_or(values)}"


def _or(values: Iterable[str | None]) -> str:
    return " or ".join(sorted("(not given)" if value is None else value for value in values))


# --- the message


def _title(failure: Failure) -> str:
    log = failure.error.log if isinstance(failure.error, LoggedError) else ""
    if match := _DIAGNOSTIC.search(log):
        title = match["text"]
    else:
        title = next(iter(_OTHER_ERROR.findall(log)), failure.error.what.partition("\n")[0]).strip()
    return title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}..."


def _describe(groups: Sequence[FailureGroup]) -> Iterable[str]:
    """Describe each cause, the first few with a complete error."""
    for number, cause in enumerate(groups, 1):
        count = len(cause.failures)
        yield f"\n{number}. {pluralize(count, 'fragment')}: {cause.title}"
        yield f"   affects {'; '.join(cause.extent)}"
        if number > _MOST_EXAMPLES:
            continue
        more = f" and {count - _MOST_KEYS} more" if count > _MOST_KEYS else ""
        yield f"   {', '.join(map(str, cause.keys[:_MOST_KEYS]))}{more}"
        yield "   the first error:" if count > 1 else "   the error:"
        yield "\n".join(f"     {line}".rstrip() for line in str(cause.failures[0].error).split("\n"))
