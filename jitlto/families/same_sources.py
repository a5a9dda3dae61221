"""Parameters that the sources of a group do not depend on: whoever asks for another value gets the same kernel."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import TypeAlias

from jitlto.base.errors import FamilyError
from jitlto.families.declaration import GroupDeclaration
from jitlto.record.fragment import FragmentKey

_Values: TypeAlias = defaultdict[Hashable, set[str]]


class SameSources:
    """The keys of one group by their sources, compared without comments and blanks.

    Headers need no comparison: all sources of a group find the same ones, and so differ by their own text alone.

    Args:
        group: The group.
        deciding: Parameters by which a plan chooses between its fragments and those of others.
    """

    def __init__(self, group: GroupDeclaration, deciding: Collection[str] = ()) -> None:
        self._group = group
        self._deciding = deciding
        self._keys: dict[str, list[FragmentKey]] = defaultdict(list)
        self._combinations: dict[FragmentKey, Mapping[str, str]] = {}
        self.used: set[str] = set()  # names that the template or ``params`` looks up
        self.has_gaps = False  # some combinations could not be rendered

    def add(self, key: FragmentKey, combination: Mapping[str, str], digest: str) -> None:
        """Add a key with its combination and the :func:`~jitlto.families.plain_text.digest` of its source."""
        self._keys[digest].append(key)
        self._combinations[key] = combination

    @property
    def unused(self) -> set[str]:
        """The parameters that neither the key nor the sources use; none if some sources are not known."""
        names = {name for combination in self._combinations.values() for name in combination}
        return set() if self.has_gaps else names.difference(self.used, self._group.key)

    def check(self, where: str) -> None:
        """Check that keys have different sources, unless they differ in ``shared`` parameters alone.

        Raises:
            FamilyError: If they have not, nothing uses a key parameter, or one is in ``shared`` for nothing.
        """
        unneeded = dict.fromkeys(self._group.shared)
        for keys in self._keys.values():
            varying = _varying(keys)
            for name in varying:
                unneeded.pop(name, None)
            if undeclared := [name for name in varying if name not in self._group.shared]:
                self._refuse(keys, undeclared, where)
        if self.has_gaps:
            return
        needed = self.used.union(self._deciding)
        if unused := [name for name in self._group.key if not (name in needed or self._names_another(name))]:
            if undeclared := [name for name in unused if name not in self._group.shared]:
                what = (
                    f"nothing uses the key parameter {undeclared[0]}: {self._group.template} and params do without it"
                )
                shared = json.dumps([*self._group.shared, undeclared[0]])
                hint = (
                    f"use it in the template, remove it from key and from the matrix, or declare it: shared = {shared}"
                )
                raise FamilyError(what, code="family-unused-key", where=where, hint=hint)
            unneeded = {name: None for name in unneeded if name not in unused}
        if unneeded:
            what = f"shared names {' and '.join(unneeded)}, but every value has a source of its own"
            raise FamilyError(what, code="family-unneeded-shared", where=where, hint="remove it from shared")

    def _names_another(self, name: str) -> bool:
        """Return whether a key parameter tells apart, or stands for, the values of a parameter that the source uses."""
        for other in self.used.difference(self._group.key):
            by_value: _Values = defaultdict(set)
            by_rest: _Values = defaultdict(set)
            for key, combination in self._combinations.items():
                if other in combination:
                    values = dict(key.parameters)
                    by_value[values.pop(name)].add(combination[other])
                    by_rest[tuple(values.items())].add(combination[other])
            if by_value and (max(map(len, by_value.values())) == 1 or max(map(len, by_rest.values())) > 1):
                return True
        return False

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
