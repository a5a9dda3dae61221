"""Findings of a check, and their grouping by cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from jitlto.base.errors import JitltoError, LoggedError
from jitlto.base.mangling import base_name, demangle
from jitlto.record.check_result import Cause, Place
from jitlto.record.fragment import Fragment

T = TypeVar("T")


class Kind(StrEnum):
    """What a finding is about."""

    #: A requirement that no fragment meets.
    REQUIREMENT = "requirement"
    #: A requirement that several fragments meet, in every configuration.
    AMBIGUITY = "ambiguity"
    #: Provider and requirer disagree about a layout.
    INTERFACE = "interface"
    #: Fragments that conflict in a different way, e.g. two definitions of one function.
    CONFLICT = "conflict"
    #: A device fragment that no kernel contains.
    UNUSED = "unused"
    #: A family without kernels.
    EMPTY = "empty"
    #: A function that callers supply at run time. Not a failure.
    SUPPLIED = "supplied"
    #: An inline function that two fragments of a kernel define differently.
    DEFINITION = "definition"
    #: A family whose inline functions could not be compared. Not a failure.
    UNCOMPARED = "uncompared"
    #: A kernel that nvJitLink cannot link.
    LINK = "link"
    #: A call of an operator that chooses no kernel, or does not fit it.
    CALL = "call"


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
    log = error.log if isinstance(error, LoggedError) else ""
    return Finding(Kind.LINK, message_of(error), error.hint, subject, configuration, log, arch, error.code)


def message_of(error: JitltoError) -> str:
    """Return an error's message and location, without the code and the hint."""
    return f"{error.where}: {error.what}" if error.where else error.what


def group_by_cause(items: Iterable[T], cause: Callable[[T], object]) -> list[list[T]]:
    """Group items that have the same cause, the most frequent first, and otherwise in their order."""
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(cause(item), []).append(item)
    return sorted(groups.values(), key=len, reverse=True)


def group_findings(findings: Iterable[Finding], fragments: Iterable[Fragment]) -> tuple[Cause, ...]:
    """Group findings by cause, the most frequent first.

    Args:
        findings: The findings; the first of a cause represents it.
        fragments: The fragments whose keys and symbols may occur in messages. Messages that differ only in these, in
            values and in numbers have the same cause.
    """
    names = {symbol.name for fragment in fragments for symbol in (*fragment.provides, *fragment.requires)}
    spellings = {spelled: base_name(name) for name in names for spelled in (name, demangle(name))}
    symbols = re.compile("|".join(map(re.escape, sorted(spellings, key=lambda s: (-len(s), s)))) or "(?!)")

    def signature(finding: Finding) -> object:
        text = symbols.sub(lambda match: spellings[match[0]], finding.message)
        text = re.sub(r"([\w.-]+/[\w.-]+)\[[^\]]*\]", r"\1[]", text)
        text = re.sub(r"([A-Za-z_][\w.-]*)=[^,\s;]+", r"\1=", text)
        return finding.kind, finding.code, re.sub(r"0x[0-9a-fA-F]+|\d+", "0", text)

    return tuple(map(_cause, group_by_cause(findings, signature)))


def _cause(findings: Sequence[Finding]) -> Cause:
    first = findings[0]
    archs = tuple(dict.fromkeys(finding.arch for finding in findings if finding.arch))
    places = tuple(Place(f.subject, dict(f.configuration), f.arch, f.message) for f in findings)
    return Cause(first.kind, archs, first.message, first.hint, first.log, places, len(findings), first.code)
