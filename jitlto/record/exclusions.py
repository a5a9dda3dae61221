"""Exclusions: combinations of parameter values that an author leaves out of a group on purpose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

#: Values of some parameters of a group, sorted by name; it excludes every combination that has them all.
Exclusion: TypeAlias = tuple[tuple[str, str], ...]

_MOST_STEPS = 100_000  # a database may come from anywhere, and the question is hard for many exclusions


def is_excluded(exclusions: Collection[Exclusion], combination: Mapping[str, str]) -> bool:
    """Return whether one of the exclusions excludes a combination."""
    return any(all(combination.get(name) == value for name, value in each) for each in exclusions)


def cover(exclusions: Collection[Exclusion], values: Mapping[str, Sequence[str]], partial: Mapping[str, str]) -> bool:
    """Return whether every combination of a group that has the values in ``partial`` is excluded.

    Args:
        exclusions: The group's exclusions.
        values: The values of each of its parameters.
        partial: Values of some parameters; those that the group does not have make no difference.
    """
    pending = [_restrict(exclusions, dict(partial))]
    for _ in range(_MOST_STEPS):
        if not pending:
            return True
        left = pending.pop()
        if () in left:
            continue
        if not left:
            return False
        name = min(left)[0][0]
        named = {value for each in left for other, value in each if other == name}
        others = {value for value in values.get(name, ()) if value not in named}
        # All values that no exclusion names leave the same exclusions.
        tried = [*(value for value in named if value in values.get(name, ())), *sorted(others)[:1]]
        pending += [_restrict(left, {name: value}) for value in tried]
    return False


def _restrict(exclusions: Collection[Exclusion], chosen: Mapping[str, str]) -> frozenset[Exclusion]:
    """Return what remains of exclusions once some parameters have their values."""
    return frozenset(
        tuple(pair for pair in each if pair[0] not in chosen)
        for each in exclusions
        if all(chosen.get(name, value) == value for name, value in each)
    )
