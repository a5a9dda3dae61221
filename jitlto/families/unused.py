"""Parameters of a group that nothing uses: whoever asks for another value gets the same kernel.

What the templates look up while they are rendered is what they use.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeAlias

from jitlto.base.errors import FamilyError
from jitlto.families.declaration import FamilyDeclaration, GroupDeclaration
from jitlto.record.fragment import FragmentKey

Combinations: TypeAlias = Mapping[FragmentKey, Mapping[str, str]]


def check_key(
    family: FamilyDeclaration, group: GroupDeclaration, used: Collection[str], combinations: Combinations, where: str
) -> None:
    """Check that each key parameter is used, stands for one that is, or tells fragments of groups apart.

    Args:
        family: The group's family.
        group: The group.
        used: The names that its template and ``params`` look up.
        combinations: Its combinations by their keys.
        where: Its table.

    Raises:
        FamilyError: If one is not, and not in ``shared`` either.
    """
    left = [name for name in group.key if name not in used and name not in group.shared]
    if not left or not family.has_kernels:
        return  # without kernels, another family uses its groups, and may tell them apart by any parameter
    families = (family, *family.all_used().values())
    deciding = {name for each in families for other in each.groups if other is not group for name in other.key}
    for name in left:
        if name not in deciding and not _names_another(name, used, group, combinations):
            what = f"nothing uses the key parameter {name}: {group.template} and params do without it"
            shared = json.dumps([*group.shared, name])
            hint = f"use it in the template, remove it from key and from the matrix, or declare it: shared = {shared}"
            raise FamilyError(what, code="family-unused-key", where=where, hint=hint)


def _names_another(name: str, used: Collection[str], group: GroupDeclaration, combinations: Combinations) -> bool:
    """Return whether a key parameter tells apart, or stands for, the values of a parameter that the source uses."""
    for other in set(used).difference(group.key):
        by_value: dict[object, set[str]] = defaultdict(set)
        by_rest: dict[object, set[str]] = defaultdict(set)
        for key, combination in combinations.items():
            if other in combination:
                values = dict(key.parameters)
                by_value[values.pop(name)].add(combination[other])
                by_rest[tuple(values.items())].add(combination[other])
        if by_value and (max(map(len, by_value.values())) == 1 or max(map(len, by_rest.values())) > 1):
            return True
    return False
