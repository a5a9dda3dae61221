"""Parameters that the sources of a group do not depend on: whoever asks for another value gets the same kernel."""

from __future__ import annotations

import json
from collections import defaultdict

from jitlto.base.errors import FamilyError
from jitlto.families.declaration import GroupDeclaration
from jitlto.record.fragment import FragmentKey


class SameSources:
    """The keys of one group by their sources, compared without comments and blanks.

    Headers need no comparison: all sources of a group find the same ones, and so differ by their own text alone.

    Args:
        group: The group.
    """

    def __init__(self, group: GroupDeclaration) -> None:
        self._group = group
        self._keys: dict[str, list[FragmentKey]] = defaultdict(list)
        self.has_gaps = False  # some combinations could not be rendered

    def add(self, key: FragmentKey, digest: str) -> None:
        """Add a key with the :func:`~jitlto.families.plain_text.digest` of its source."""
        self._keys[digest].append(key)

    def check(self, where: str) -> None:
        """Check that keys have different sources, unless they differ in ``shared`` parameters alone.

        Raises:
            FamilyError: If they have not, or a parameter is in ``shared`` for nothing.
        """
        unneeded = dict.fromkeys(self._group.shared)
        for keys in self._keys.values():
            varying = _varying(keys)
            for name in varying:
                unneeded.pop(name, None)
            if undeclared := [name for name in varying if name not in self._group.shared]:
                self._refuse(keys, undeclared, where)
        if unneeded and not self.has_gaps:
            what = f"shared names {' and '.join(unneeded)}, but every value has a source of its own"
            raise FamilyError(what, code="family-unneeded-shared", where=where, hint="remove it from shared")

    def _refuse(self, keys: list[FragmentKey], undeclared: list[str], where: str) -> None:
        first = keys[0]
        other = next(key for key in keys if set(_varying([first, key])) & set(undeclared))
        names = " and ".join(undeclared)
        change, them = ("changes", "it") if len(undeclared) == 1 else ("change", "them")
        shared = json.dumps([*self._group.shared, *undeclared])
        raise FamilyError(
            f"{first} and {other} have the same source, in which {names} {change} nothing",
            code="family-same-source",
            where=where,
            hint=f"use {names} in {self._group.template}, or remove {them} from key and from the matrix; if the two "
            f"are meant to be the same, declare it: shared = {shared}",
        )


def _varying(keys: list[FragmentKey]) -> list[str]:
    """The parameters in which keys of one group differ."""
    values: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        for name, value in key.parameters:
            values[name].add(value)
    return [name for name, several in values.items() if len(several) > 1]
