"""What a check finds, and how findings are grouped by cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jitlto.model.fragment import Fragment, plain_name
from jitlto.model.mangling import base_name, demangle


class Kind(StrEnum):
    """What a finding is about."""

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
    #: What callers supply at run time. No failure.
    SUPPLIED = "supplied"
    #: Two values that occur, and never together. Mostly no failure: a matrix may leave combinations out.
    GAP = "gap"
    #: Fragments of one kernel that differ in one parameter, so that callers cannot give it. No failure.
    MIXED = "mixed"
    #: A kernel that nvJitLink refuses.
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Parameters
    ----------
    kind : Kind
        What it is about.
    message : str
        What is wrong, or worth knowing.
    hint : str or None
        What to do about it.
    subject : str
        The key of the fragment concerned, or a family's name.
    configuration : mapping of str to str
        The combination of values concerned.
    log : str
        The log of the tool that said so.
    arch : str or None
        The target of the link.
    """

    kind: Kind
    message: str
    hint: str | None
    subject: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    log: str = field(default="", repr=False)
    arch: str | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Findings that say the same of different fragments, values or types.

    Parameters
    ----------
    findings : tuple of Finding
        All of them, at least one; the first speaks for all.
    """

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The one that speaks for all."""
        return self.findings[0]

    @property
    def archs(self) -> tuple[str, ...]:
        """The targets for which it occurs, in the order in which they were linked; none for what is no link."""
        return tuple(dict.fromkeys(finding.arch for finding in self.findings if finding.arch))


class Causes:
    """Groups findings by cause: the same message but for keys, values, types and numbers.

    Parameters
    ----------
    fragments : iterable of Fragment
        Whose symbols the messages may name.
    """

    def __init__(self, fragments: Iterable[Fragment]) -> None:
        spellings: dict[str, str] = {}
        for fragment in fragments:
            names = [symbol.name for symbol in (*fragment.provides, *fragment.requires)]
            names += [plain_name(name) for name, _ in fragment.weak]
            for name in names:
                spellings |= dict.fromkeys((name, demangle(name)), base_name(name))
        self._spellings = spellings
        longest_first = sorted(spellings, key=lambda name: (-len(name), name))
        self._names = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._found: dict[tuple[object, ...], list[tuple[int, Finding]]] = {}

    def add(self, finding: Finding, place: int = 0) -> None:
        """Take one more; ``place`` says which of a cause comes first."""
        key = (finding.kind, self.normalise(finding.message))
        self._found.setdefault(key, []).append((place, finding))

    def normalise(self, message: str) -> str:
        """A message without what differs between findings of one cause."""
        text = self._names.sub(lambda match: self._spellings[match[0]], message)
        text = re.sub(r"([\w.-]+/[\w.-]+)\[[^\]]*\]", r"\1[]", text)
        text = re.sub(r"([A-Za-z_][\w.-]*)=[^,\s;]+", r"\1=", text)
        return re.sub(r"0x[0-9a-fA-F]+|\d+", "0", text)

    def all(self) -> list[Cause]:
        """The causes, the most frequent first."""
        ordered = [sorted(several, key=lambda item: item[0]) for several in self._found.values()]
        ordered.sort(key=lambda several: (-len(several), several[0][0], several[0][1].message))
        return [Cause(tuple(finding for _, finding in several)) for several in ordered]
