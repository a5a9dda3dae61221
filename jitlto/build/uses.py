"""What families that use each other must agree in, so that a shared interface means one thing in all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jitlto.base.errors import FamilyError, JitltoError
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
        try:
            _check_family(name, family, families)
        except JitltoError as error:
            error.where = error.where or (places or {}).get(name)
            raise


def _check_family(name: str, family: FamilyRecord, families: Mapping[str, FamilyRecord]) -> None:
    owners = {group.name: name for group in family.groups}
    for used in map(families.__getitem__, family.uses):
        for group in used.groups:
            if (owner := owners.setdefault(group.name, used.name)) != used.name:
                what = f"{name} uses {used.name}, and both {owner} and {used.name} have a group {group.name!r}"
                raise FamilyError(what, code="family-use", hint="rename one of them")
        _check_headers(family, used)
        _check_options(family, used)
        _check_templates(family, used, [families[each] for each in used.uses])


def _check_headers(family: FamilyRecord, used: FamilyRecord) -> None:
    headers = dict(family.headers)
    for header, text in used.headers:
        if (found := headers.get(header)) == text:
            continue
        # An include of a header that is not searched for first has its exact name.
        other = next((each for each in re.findall(r'[<"]\+\d+//([^">]+)[">]', found or "") if each in headers), header)
        what = f"{family.name} uses {used.name}, but finds another header {other!r} than its interfaces mean"
        hint = f"give {other} another name in one of the families, or build both from the same sources"
        raise FamilyError(what, code="family-use", hint=hint)


def _check_options(family: FamilyRecord, used: FamilyRecord) -> None:
    for macro in sorted(
        {name for name, _ in macro_values(family.options).items() ^ macro_values(used.options).items()}
    ):
        if hidden := next((header for header, text in used.headers if macro in words(_encode(text))), None):
            option = option_macros((*family.options, *used.options))[macro]
            what = f"only one of {family.name} and {used.name}, which it uses, is compiled with {option}"
            hint = f"give both the same: the interface {hidden} depends on it"
            raise FamilyError(what, code="family-use", hint=hint)


def _check_templates(family: FamilyRecord, used: FamilyRecord, of_used: list[FamilyRecord]) -> None:
    """Check that the interfaces before or behind a used family's specialise no template of those."""
    texts = {name: _encode(text) for name, text in family.headers}
    known = {_encode(text) for _, text in used.headers}
    asked = known.difference(_encode(text) for each in of_used for _, text in each.headers)
    foreign = {name: text for name, text in texts.items() if text not in known}
    mentioned = {name: text for name, text in sorted(texts.items()) if text in asked}
    for conflict in find_conflicts(b"\n".join(foreign.values()), mentioned):
        if conflict.kind == "specialisation":
            header = next(name for name, text in foreign.items() if conflict.name in words(text))
            raise FamilyError(
                f"{header}:{conflict.line_in(foreign[header])} specialises {conflict.name}, which "
                f"{conflict.mention(mentioned)} mentions: {family.name} is compiled behind both, the fragments of "
                f"{used.name} behind the second alone",
                code="family-use",
                hint=f"move the specialisation into {conflict.header}, or into a header that it includes",
            )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
