"""Findings of a check, and their grouping by cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jitlto.errors import JitltoError, LoggedError
from jitlto.model.causes import group_by_cause, name_folder
from jitlto.model.fragment import Fragment
from jitlto.storage.check_result import Cause, Place


class Kind(StrEnum):
    """The subject of a finding."""

    #: A requirement that no fragment meets.
    REQUIREMENT = "requirement"
    #: Several fragments for one requirement, whatever the configuration says.
    AMBIGUITY = "ambiguity"
    #: Provider and requirer disagree about a layout.
    INTERFACE = "interface"
    #: Fragments that do not go together otherwise, e.g. two definitions of one function.
    CONFLICT = "conflict"
    #: A device fragment that no kernel contains.
    UNUSED = "unused"
    #: A family without kernels.
    EMPTY = "empty"
    #: A function that callers supply at run time. No failure.
    SUPPLIED = "supplied"
    #: Two values that occur, and never together. Mostly no failure: a matrix may leave combinations out.
    GAP = "gap"
    #: Fragments of one kernel that differ in one parameter, so that callers cannot give it. No failure.
    MIXED = "mixed"
    #: A kernel that nvJitLink refuses.
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure, or one thing worth knowing.

    Args:
        hint: What to do about it.
        subject: The key of the fragment concerned, or a family's name.
        configuration: The combination of values concerned.
        log: The log of the tool below.
        arch: The target of the link.
        code: The error's, where it comes from one.
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
    """The finding of a link that failed."""
    log = error.log if isinstance(error, LoggedError) else ""
    return Finding(Kind.LINK, message_of(error), error.hint, subject, configuration, log, arch, error.code)


def message_of(error: JitltoError) -> str:
    """What is wrong and where, without the code and the hint."""
    return f"{error.where}: {error.what}" if error.where else error.what


def group_findings(findings: Iterable[Finding], fragments: Iterable[Fragment]) -> tuple[Cause, ...]:
    """Findings by cause, the most frequent first.

    Args:
        findings: The first of a cause represents it.
        fragments: Whose keys and symbols the messages name: findings that differ in nothing else have one cause.
    """
    fold = name_folder(fragments)
    causes = group_by_cause(findings, lambda finding: (finding.kind, finding.code, fold(finding.message)))
    return tuple(_cause(cause.members) for cause in causes)


def _cause(findings: tuple[Finding, ...]) -> Cause:
    first = findings[0]
    archs = tuple(dict.fromkeys(finding.arch for finding in findings if finding.arch))
    places = tuple(Place(f.subject, dict(f.configuration), f.arch, f.message) for f in findings)
    return Cause(first.kind, archs, first.message, first.hint, first.log, places, len(findings), first.code)
