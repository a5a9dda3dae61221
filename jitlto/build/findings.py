"""Findings of a check, and the grouping by cause of all that failed.

A bug in a template is reported once, and not for every combination: what varies with the combination is left out when
messages are compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from jitlto.base.errors import JitltoError, LoggedError
from jitlto.base.mangling import base_name
from jitlto.compile.diagnostics import first_error
from jitlto.record.check_result import Cause, Place

_MOST_IN_FULL, _MOST_PLACES = 10, 3

_WORD = re.compile(r"[^\W\d_]+")
_MANGLED = re.compile(r"\b_Z\w+")
# Files, the hash that is a program's name (see nvrtc.program_name), and values.
_PLACE = re.compile(r"(?:/[\w.+-]+){2,}|\b[0-9a-f]{20}\b|=[^,;\s\]]+")
# A typedef among the values appears in messages as the type that it names.
_TYPES = re.compile("unsigned|signed|long|short|char|bool|u?int|float|double|half|nv|bfloat|[tuxlfe]")


class Kind(StrEnum):
    """What a finding is about."""

    REQUIREMENT = "requirement"  # that no fragment meets
    AMBIGUITY = "ambiguity"  # of a requirement that several fragments meet, in every configuration
    INTERFACE = "interface"  # about which provider and requirer disagree
    CONFLICT = "conflict"  # of another kind, e.g. two definitions of one function
    UNUSED = "unused"  # device fragment, which no kernel contains
    EMPTY = "empty"  # family, without kernels
    SUPPLIED = "supplied"  # function, by callers at run time: not a failure
    DEFINITION = "definition"  # of an inline function, different in two fragments of a kernel, or not comparable
    UNCOMPARED = "uncompared"  # inline functions of a family: not a failure
    COMPILE = "compile"  # of a fragment
    FAST = "fast"  # link of cubins, which a kernel cannot have or begin with: not a failure
    LINK = "link"  # that nvJitLink cannot do
    CALL = "call"  # of an operator, which chooses no kernel or does not fit it


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure or note.

    Args:
        hint: How to fix it.
        subject: The key of the fragment concerned, or a family's name.
        configuration: The combination of values concerned.
        log: The log of nvJitLink or a compiler.
        arch: The target of the link.
        code: The code of the underlying error, if any.
    """

    kind: Kind
    message: str
    hint: str | None
    subject: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    log: str = field(default="", repr=False)
    arch: str | None = None
    code: str = ""


def link_failure(error: JitltoError, subject: str, configuration: Mapping[str, str], arch: str | None) -> Finding:
    """Return the finding for a failed link."""
    return Finding(Kind.LINK, message_of(error), error.hint, subject, configuration, _log_of(error), arch, error.code)


def compile_failure(error: JitltoError, subject: str, configuration: Mapping[str, str]) -> Finding:
    """Return the finding for a fragment that failed: the first line of its error, and the compiler's first."""
    log = _log_of(error)
    message = ": ".join(filter(None, [message_of(error).partition("\n")[0], first_error(log)]))
    return Finding(Kind.COMPILE, message, error.hint, subject, configuration, log, code=error.code)


def _log_of(error: JitltoError) -> str:
    return error.log if isinstance(error, LoggedError) else ""


def message_of(error: JitltoError) -> str:
    """Return an error's message and location, without the code and the hint."""
    return f"{error.where}: {error.what}" if error.where else error.what


def group_findings(findings: Sequence[Finding]) -> tuple[Cause, ...]:
    """Group findings by cause, the most frequent first; the first of a cause represents it.

    Messages of one cause may differ in values, numbers, scalar types, names of files and the types in names of
    functions. A ``T`` that is a value in one configuration may be a constant in another: it is left out of both.
    """
    values = {value for finding in findings for value in finding.configuration.values()}
    varying = {word for value in values for word in _WORD.findall(value)}
    groups: dict[object, list[Finding]] = {}
    for each in findings:
        text = _MANGLED.sub(lambda match: base_name(match[0]), _PLACE.sub(" ", each.message))
        words = tuple(word for word in _WORD.findall(text) if not (word in varying or _TYPES.fullmatch(word)))
        groups.setdefault((each.kind, each.code, words), []).append(each)
    return tuple(map(_cause_of, sorted(groups.values(), key=len, reverse=True)))


def _cause_of(findings: Sequence[Finding]) -> Cause:
    first = findings[0]
    archs = tuple(dict.fromkeys(finding.arch for finding in findings if finding.arch))
    places = tuple(Place(f.subject, dict(f.configuration), f.arch, f.message) for f in findings)
    return Cause(first.kind, archs, first.message, first.hint, first.log, places, len(findings), first.code)


def describe_causes(what: str, causes: Iterable[Cause]) -> str:
    """Return the text of an error: what failed, and each cause, the first few in full."""
    return "\n".join([what, *(line for number, cause in enumerate(causes, 1) for line in _describe(number, cause))])


def _describe(number: int, cause: Cause) -> Iterator[str]:
    message = cause.message if number <= _MOST_IN_FULL else cause.message.partition("\n")[0]
    target = f"for {', '.join(cause.archs)}: " if cause.archs else ""
    yield f"\n{number}. {target}{message}{f' [{cause.code}]' if cause.code else ''}"
    if cause.hint and number <= _MOST_IN_FULL:
        yield f"   {cause.hint}"
    if cause.log and number <= _MOST_IN_FULL:
        yield from (f"     {line}".rstrip() for line in cause.log.strip().splitlines())
    for place in cause.at[:_MOST_PLACES]:
        values = " ".join(f"{name}={value}" for name, value in place.configuration.items())
        yield f"   at {place.subject.partition('[')[0]}: {values}".rstrip(": ")
    if cause.count > _MOST_PLACES:
        yield f"   and {cause.count - _MOST_PLACES} more"
