"""Parameters that the sources of a group do not depend on: whoever asks for another value gets the same kernel."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

from jitlto.base.errors import FamilyError
from jitlto.families.declaration import GroupDeclaration
from jitlto.record.fragment import FragmentKey

_Values: TypeAlias = defaultdict[object, set[str]]
_LITERAL = re.compile(r"""["']([^"'\n]+)["']""")
_ELSEWHERE = re.compile(r"{%-?\s*(?:include|import|from|extends)\b(?!\s*[\[(]?\s*[\"'])")


def find_words(template: Path) -> set[str] | None:
    """Return the words of a template and of the files beside it that it names; None if it may take others too."""
    words: set[str] = set()
    seen, pending = {template}, [template]
    while pending:
        text = pending.pop().read_text("utf-8", "replace")
        if _ELSEWHERE.search(text):
            return None
        words.update(re.findall(r"\w+", text))
        named = {template.parent / name for name in _LITERAL.findall(text)} - seen
        seen |= named
        pending += [path for path in named if path.is_file()]
    return words


class SameSources:
    """The keys of one group by their sources, compared without comments and blanks.

    Headers need no comparison: all sources of a group find the same ones, and so differ by their own text alone.

    Args:
        group: The group.
        used: Names that its template or ``params`` may use; None if any.
        deciding: Parameters by which a plan chooses between its fragments and those of others.
    """

    def __init__(self, group: GroupDeclaration, used: set[str] | None = None, deciding: Collection[str] = ()) -> None:
        self._group, self._used, self._deciding = group, used, deciding
        self._keys: dict[str, list[FragmentKey]] = defaultdict(list)
        self._combinations: dict[FragmentKey, Mapping[str, str]] = {}
        self.has_gaps = False  # some combinations could not be rendered

    def add(self, key: FragmentKey, combination: Mapping[str, str], digest: str) -> None:
        """Add a key with its combination and the :func:`~jitlto.families.plain_text.digest` of its source."""
        self._keys[digest].append(key)
        self._combinations[key] = combination

    @property
    def unused(self) -> set[str]:
        """The parameters that neither the key nor the sources use; none if some sources are not known."""
        names = {name for combination in self._combinations.values() for name in combination}
        return set() if self.has_gaps or self._used is None else names.difference(self._used, self._group.key)

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
        unused = self._find_unused()
        if undeclared := [name for name in unused if name not in self._group.shared]:
            what = f"nothing uses the key parameter {undeclared[0]}: {self._group.template} and params do without it"
            shared = json.dumps([*self._group.shared, undeclared[0]])
            hint = f"use it in the template, remove it from key and from the matrix, or declare it: shared = {shared}"
            raise FamilyError(what, code="family-unused-key", where=where, hint=hint)
        if unneeded := {name: None for name in unneeded if name not in unused}:
            what = f"shared names {' and '.join(unneeded)}, but every value has a source of its own"
            raise FamilyError(what, code="family-unneeded-shared", where=where, hint="remove it from shared")

    def _find_unused(self) -> list[str]:
        if self._used is None:
            return []
        needed = self._used.union(self._deciding)
        return [name for name in self._group.key if not (name in needed or self._names_another(name, self._used))]

    def _names_another(self, name: str, used: set[str]) -> bool:
        """Return whether a key parameter tells apart, or stands for, the values of a parameter that the source uses."""
        for other in used.difference(self._group.key):
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
