"""The result of a check, as ``jitlto check --json`` prints it."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True):
    """The place of a finding: a fragment's key or a family's name, the configuration, and the target of the link."""

    subject: str
    configuration: dict[str, str]
    arch: str | None = None
    message: str = ""


class Cause(msgspec.Struct, frozen=True):
    """One cause of failures, everywhere it was found; ``message``, ``hint`` and ``log`` are those of the first."""

    kind: str
    archs: tuple[str, ...]
    message: str
    hint: str | None
    log: str
    at: tuple[Place, ...]
    count: int = 0
    code: str = ""


class Note(msgspec.Struct, frozen=True):
    """A finding that is not a failure."""

    kind: str
    message: str
    subject: str
    configuration: dict[str, str]


class FamilyCheck(msgspec.Struct, frozen=True):
    """A family's kernels as planned.

    Args:
        completed_by_callers: How many kernels need callers' code.
        compared: In how many pairs of fragments inline functions were compared; None if they were not.
    """

    family: str
    holds: bool
    kernels: int
    completed_by_callers: int
    failures: tuple[Cause, ...]
    notes: tuple[Note, ...]
    fragments: int = 0
    compared: int | None = None


class FamilyLinks(msgspec.Struct, frozen=True):
    """A family's kernels as linked.

    Args:
        linked, kernels: How many kernels were linked for each target, of how many that need no callers' code.
        cover, tuples: The strength of the covering array, and how many combinations of values it covers; None if all
            were linked.
        completed_by_callers: How many kernels cannot be linked without callers' code.
        known: How many of the links an earlier check had made, so that they were not made again.
    """

    family: str
    holds: bool
    linked: int
    kernels: int
    cover: int | None
    tuples: int | None
    failures: tuple[Cause, ...]
    completed_by_callers: int = 0
    known: int = 0


class LinkCheck(msgspec.Struct, frozen=True):
    """The links of a check: targets, nvJitLink version and families; ``mode`` is ``lto`` or ``ptx``."""

    archs: tuple[str, ...]
    mode: str
    nvjitlink: str
    families: tuple[FamilyLinks, ...]
    seconds: float = 0.0


class CheckResult(msgspec.Struct, frozen=True):
    """The result for the database with this digest; ``link`` is None if nothing was linked.

    Args:
        shard: The share of the links and comparisons that was made, as ``2/4``; empty for all of them.
    """

    digest: str
    holds: bool
    families: tuple[FamilyCheck, ...]
    link: LinkCheck | None
    database: str = ""
    shard: str = ""
