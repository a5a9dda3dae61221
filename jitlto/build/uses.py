"""What families that use each other must agree in, so that a shared interface means one thing in all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jitlto.errors import BuildError, FamilyError, JitltoError
from jitlto.model.declarations import Conflict, find_conflicts, line_of, read_declarations, words
from jitlto.model.family_record import FamilyRecord
from jitlto.model.hidden_names import find_hidden
from jitlto.model.kernel_text import WORD, plain_text
from jitlto.model.left_macros import find_left_macro, read_sequence
from jitlto.model.meaning import questions
from jitlto.model.options import macro_values, option_macros

# What another C++ standard changes.
_OF_STANDARD = re.compile(
    r"__cplusplus|__cpp_\w+|__has_(?:cpp_attribute|builtin|feature)|_CCCL_STD_VER|no_unique_address"
)


def check_uses(families: Mapping[str, FamilyRecord], places: Mapping[str, str] | None = None) -> None:
    """Check that families fit those that they use: distinct groups, and interface headers that mean the same.

    Args:
        families: By name, with all that they use.
        places: Where each is declared, if that is known.

    Raises:
        FamilyError: If a group has the name of a used one, an include of a used interface finds another header, one
            depends on a macro that is not the same for both, or is changed by what the other interfaces do, or two
            replace a deprecated value differently.
        BuildError: If one depends on the C++ standard, which is not the same for both.
    """
    for name, family in families.items():
        try:
            _check_family(name, family, families)
        except JitltoError as error:
            error.where = error.where or (places or {}).get(name)
            raise


def _check_family(name: str, family: FamilyRecord, families: Mapping[str, FamilyRecord]) -> None:
    replaced = {each[:2]: (name, each.use) for each in family.deprecated}
    owners = {group.name: name for group in family.groups}
    for used in map(families.__getitem__, family.uses):
        for group in used.groups:
            if (owner := owners.setdefault(group.name, used.name)) != used.name:
                what = f"{name} uses {used.name}, and both {owner} and {used.name} have a group {group.name!r}"
                raise FamilyError(what, code="family-use", hint="rename one of them")
        for each in used.deprecated:
            owner, use = replaced.setdefault(each[:2], (used.name, each.use))
            if use != each.use:
                what = f"{name} uses {used.name}, and {owner} and {used.name} replace the deprecated value "
                what += f"{each.parameter}={each.value} by {use or 'nothing'} and {each.use or 'nothing'}"
                raise FamilyError(what, code="family-deprecated", hint="declare it in one of them")
        _check_headers(family, used)
        _check_options(family, used)
        _check_sequence(family, used, [families[each] for each in used.uses])


def _check_headers(family: FamilyRecord, used: FamilyRecord) -> None:
    headers = dict(family.headers)
    for header, text in used.headers:
        if (found := headers.get(header)) == text:
            continue
        # An include of a header that is not searched for first has its exact name.
        other = next((each for each in re.findall(r'"\+\d+[^"/]*//([^"]+)"', found or "") if each in headers), header)
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
    standard, other = _standard(family), _standard(used)
    if standard == other:
        return
    headers = {header: _encode(text) for header, text in used.headers}
    for question, header in questions(headers).items():
        if _OF_STANDARD.match(question.word) and question[:2] != ("defined", "__cplusplus"):
            place = f"{header}:{line_of(headers[header], Conflict('mention', question.word, header))}"
            what = f"{place} depends on {question.word} outside of functions, which is not the same on both sides: "
            what += f"{family.name} is compiled for {standard}, {used.name}, which it uses, for {other}"
            raise BuildError(what, code="build-interface-architecture", hint="give both the same std")


def _standard(family: FamilyRecord) -> str:
    return next((option.partition("=")[2] for option in family.options if option.startswith("--std=")), "")


def _check_sequence(family: FamilyRecord, used: FamilyRecord, of_used: list[FamilyRecord]) -> None:
    """Check that a used family's interfaces mean among those of ``family`` what they mean without the others."""
    headers = {name: _encode(text) for name, text in family.headers}
    known = {_encode(text) for _, text in used.headers}
    checked = known.difference(_encode(text) for each in of_used for _, text in each.headers)
    foreign = {name: text for name, text in headers.items() if text not in known}
    if not foreign:
        return
    own, asked = headers.keys() - foreign, {name for name, text in headers.items() if text in checked}
    lines = read_sequence(headers, family.interfaces)
    if found := find_left_macro(lines, own, asked, family.options):
        raise FamilyError(
            f"{found.left.place} leaves the macro {found.name} changed, which {found.mention.place} mentions: "
            f"{_behind(family, used)}",
            code="family-use",
            hint=f"undefine it at the end of {found.left.header}, or give it another name there",
        )
    last = max((number for number, line in enumerate(lines) if line.header in asked), default=0)
    before = {line.header: headers[line.header] for line in lines[:last] if line.header in foreign}
    mentioned = {name: headers[name] for name in sorted(asked)}
    if member := find_hidden(before.values(), known, checked):
        symbol = member.name.removeprefix("operator")
        left = _place(before, member.name if symbol == member.name else "operator")
        mention = _place(mentioned, symbol)
        raise FamilyError(
            f"{left} declares {'::'.join(filter(None, member[:2]))}, which hides what {mention} means by {symbol}, "
            f"or adds to it: {_behind(family, used)}",
            code="family-use",
            hint=f"give it another name in {left.partition(':')[0]}, or another namespace",
        )
    for header, text in sorted(foreign.items()):
        for conflict in find_conflicts(text, mentioned, foreign.values()):
            if conflict.kind == "specialisation" and not _is_for_own_types(
                text, conflict.name, foreign.values(), known
            ):
                place = f"{header}:{line_of(text, conflict)}"
                mention = f"{conflict.header}:{line_of(headers[conflict.header], conflict._replace(kind='mention'))}"
                raise FamilyError(
                    f"{place} specialises {conflict.name}, which {mention} mentions: {_behind(family, used)}",
                    code="family-use",
                    hint=f"move the specialisation into {conflict.header}, or into a header that it includes",
                )


def _is_for_own_types(text: bytes, template: str, foreign: Iterable[bytes], known: Iterable[bytes]) -> bool:
    """Return whether a template is specialised for types alone of which its own family knows nothing."""
    types = {member.name for each in foreign for member in read_declarations(each).members}
    types -= {word for each in known for word in words(each)}
    special = re.compile(rf"\btemplate\s*<[^;{{}}]*?\b{re.escape(template)}\s*<([^;{{}}]*)[;{{]")
    return all(types.intersection(re.findall(r"\w+", arguments)) for arguments in special.findall(plain_text(text)))


def _behind(family: FamilyRecord, used: FamilyRecord) -> str:
    return f"{family.name} is compiled behind both, the fragments of {used.name} behind the second alone"


def _place(headers: Mapping[str, bytes], name: str) -> str:
    is_word = WORD.match(name)
    held = (header for header, text in headers.items() if name in (words(text) if is_word else plain_text(text)))
    header = next(held, next(iter(headers)))
    return f"{header}:{line_of(headers[header], Conflict('mention', name, header))}"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
