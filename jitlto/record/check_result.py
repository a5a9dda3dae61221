"""The result of a check, as ``jitlto check --json`` prints it."""

import msgspec

from jitlto.base.diagnostic import Diagnostic, Severity


class FamilyCheck(msgspec.Struct, frozen=True):
    """A family's kernels as planned, compared and linked.

    Args:
        completed_by_callers: How many kernels need callers' code; they are linked with a stub of it.
        compared: In how many pairs of fragments inline functions were compared; None if they were not.
        linked: How many kernels were linked for each target: all, or of more than 10,000 a covering set.
        cubins: How many links of cubins were made beside those of LTO-IR.
        known: How many of the links an earlier check had made, so that they were not made again.
        failed: How many links failed.
    """

    family: str
    holds: bool
    fragments: int
    kernels: int
    completed_by_callers: int
    diagnostics: tuple[Diagnostic, ...]
    compared: int | None = None
    linked: int = 0
    known: int = 0
    cubins: int = 0
    failed: int = 0

    @property
    def failures(self) -> list[Diagnostic]:
        """What does not hold, each cause once."""
        return [each for each in self.diagnostics if each.severity is Severity.ERROR]

    @property
    def notes(self) -> list[Diagnostic]:
        """What else was found."""
        return [each for each in self.diagnostics if each.severity is Severity.NOTE]


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
