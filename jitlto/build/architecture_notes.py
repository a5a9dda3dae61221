"""What a build says of code for later architectures: what is gained, and what was not compared."""

from __future__ import annotations

from msgspec import Struct

from jitlto.base.text import pluralize

_MOST_NAMES = 4


class Gain(Struct, frozen=True):
    """What a fragment gains by LTO-IR for an architecture: its machine instructions there, linked alone."""

    architecture: str
    before: int
    after: int


class ArchitectureNote(Struct, frozen=True):
    """A group whose code differs by architecture.

    Args:
        group: ``family/group``.
        where: The values that the differing fragments of the sample have, and the others do not, by parameter; empty if
            all differ, or no one parameter decides.
        gains: Of one of them.
        example: Its key.
        compared, of: The number of fragments of the group that were compared, and of all.
        is_renamed: Whether the names of its kernels contain the architecture, so that no family can ship such code.
    """

    group: str
    where: dict[str, tuple[str, ...]]
    gains: tuple[Gain, ...]
    example: str
    compared: int
    of: int
    is_renamed: bool = False

    def __str__(self) -> str:
        values = " and ".join(f"{name}={' or '.join(values)}" for name, values in self.where.items())
        gained = ", ".join(f"{g.after} instead of {g.before} on sm_{g.architecture}" for g in self.gains)
        which = f"fragments with {values}" if values else "fragments"
        remedy = 'archs = "auto" ships it'
        if self.is_renamed:
            remedy = "it cannot be shipped, because the names of the kernels contain the architecture"
        return (
            f"{self.group}: {which} would have other code for later architectures: {gained} machine instructions in "
            f"{self.example} (compared: {self.compared} of {pluralize(self.of, 'fragment')}); {remedy}"
        )


class NotCompared(Struct, frozen=True):
    """Groups with fragments that were not compared, although their code may differ.

    Args:
        groups: ``family/group`` of each, sorted.
        reason: Why.
        is_sampling: Whether they are only not in the sample, which holds the fragments that likeliest differ.
    """

    groups: tuple[str, ...]
    reason: str
    is_sampling: bool = False

    def __str__(self) -> str:
        named, more = self.groups[:_MOST_NAMES], len(self.groups) - _MOST_NAMES
        groups = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return f"{groups}: not compared for later architectures: {self.reason}"


class ArchitectureReport(Struct, frozen=True):
    """The result of a comparison; in the order of the groups' names."""

    notes: tuple[ArchitectureNote, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()
