"""The result of a check, as ``jitlto check --json`` prints it."""

import msgspec


class Place(msgspec.Struct, frozen=True):
    """The place of a finding: a fragment's key or a family's name, the configuration, and the target of the link."""

    subject: str
    configuration: dict[str, str]
    arch: str | None = None
    message: str = ""


class Cause(msgspec.Struct, frozen=True):
    """A cause of failures or notes, with all places; ``message``, ``hint`` and ``log`` are those of the first."""

    kind: str
    archs: tuple[str, ...]
    message: str
    hint: str | None
    log: str
    at: tuple[Place, ...]
    count: int = 0
    code: str = ""


class FamilyCheck(msgspec.Struct, frozen=True):
    """A family's kernels as planned, compared and linked.

    Args:
        completed_by_callers: How many kernels need callers' code; they are linked with a stub of it.
        compared: In how many pairs of fragments inline functions were compared; None if they were not.
        linked: How many kernels were linked for each target: all, or of more than 10,000 a covering set.
        cubins: How many links of cubins were made beside those of LTO-IR.
        known: How many of the links an earlier check had made, so that they were not made again.
    """

    family: str
    holds: bool
    fragments: int
    kernels: int
    completed_by_callers: int
    failures: tuple[Cause, ...]
    notes: tuple[Cause, ...]
    compared: int | None = None
    linked: int = 0
    known: int = 0
    cubins: int = 0


class CheckResult(msgspec.Struct, frozen=True):
    """The result for the database with this digest.

    Args:
        archs: The targets of the links; empty if nothing was linked.
        nvjitlink, seconds: Its version, and the time that comparisons and links took.
    """

    digest: str
    holds: bool
    families: tuple[FamilyCheck, ...]
    database: str
    archs: tuple[str, ...] = ()
    nvjitlink: str = ""
    seconds: float = 0.0
