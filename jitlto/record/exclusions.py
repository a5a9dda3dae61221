"""Exclusions: combinations of parameter values that an author leaves out of a group on purpose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

#: Values of some parameters of a group, sorted by name; it excludes every combination that has them all.
Exclusion: TypeAlias = tuple[tuple[str, str], ...]


def is_excluded(exclusions: Collection[Exclusion], combination: Mapping[str, str]) -> bool:
    """Return whether one of the exclusions excludes a combination."""
    return any(all(combination.get(name) == value for name, value in each) for each in exclusions)
