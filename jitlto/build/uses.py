"""What families that use each other must agree in, so that a shared interface means one thing in all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jitlto.base.errors import FamilyError
from jitlto.compile.declarations import find_conflicts, words
from jitlto.record.family_record import FamilyRecord
from jitlto.record.options import macro_values, option_macros


def check_uses(families: Mapping[str, FamilyRecord], places: Mapping[str, str] | None = None) -> None:
    """Check that families fit those that they use: distinct groups, and interface headers that mean the same.

    Args:
        families: By name, with all that they use.
        places: Where each is declared, if that is known.

    Raises:
        FamilyError: If a group has the name of a used one, an include of a used interface finds another header, one
            depends on a macro that is not the same for both, or has a template that the other interfaces specialise.
    """
    for name, family in families.items():
        owners = {group.name: name for group in family.groups}
        for used in map(families.__getitem__, family.uses):
            for what, hint in (*_find_twins(family, used, owners), *_find_differences(family, used, families)):
                raise FamilyError(what, code="family-use", where=(places or {}).get(name), hint=hint)
            owners |= {group.name: used.name for group in used.groups}


def _find_twins(family: FamilyRecord, used: FamilyRecord, owners: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for group in used.groups:
        if owner := owners.get(group.name):
            what = f"{family.name} uses {used.name}, and both {owner} and {used.name} have a group {group.name!r}"
            yield what, "rename one of them"


def _find_differences(
    family: FamilyRecord, used: FamilyRecord, families: Mapping[str, FamilyRecord]
) -> Iterator[tuple[str, str]]:
    """Yield headers and macros that are not the same for a family as for one that it uses, and specialisations."""
    headers = dict(family.headers)
    for header, text in used.headers:
        if (found := headers.get(header)) != text:
            # An include of a header that is not searched for first has its exact name.
            names = re.findall(r'[<"]\+\d+//([^">]+)[">]', found or "")
            other = next((each for each in names if each in headers), header)
            what = f"{family.name} uses {used.name}, but finds another header {other!r} than its interfaces mean"
            yield what, f"give {other} another name in one of the families, or build both from the same sources"
    differing = {name for name, _ in macro_values(family.options).items() ^ macro_values(used.options).items()}
    for header, text in used.headers:
        for macro in sorted(differing & words(_encode(text))):
            option = option_macros((*family.options, *used.options))[macro]
            what = f"only one of {family.name} and {used.name}, which it uses, is compiled with {option}"
            yield what, f"give both the same: the interface {header} depends on it"
    # What the interfaces before or behind its own specialise.
    theirs = {_encode(text) for name in used.uses for _, text in families[name].headers}
    known = {_encode(text) for _, text in used.headers}
    texts = {name: _encode(text) for name, text in sorted(headers.items())}
    mentioned = {name: text for name, text in texts.items() if text in known - theirs}
    foreign = {name: text for name, text in texts.items() if text not in known}
    for conflict in find_conflicts(b"\n".join(foreign.values()), mentioned):
        if conflict.kind == "specialisation":
            header = next(name for name, text in foreign.items() if conflict.name in words(text))
            what = f"{header}:{conflict.line_in(foreign[header])} specialises {conflict.name}, which "
            what += f"{conflict.mention(mentioned)} mentions: {family.name} is compiled behind both, the fragments of "
            what += f"{used.name} behind the second alone"
            yield what, f"move the specialisation into {conflict.header}, or into a header that it includes"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
