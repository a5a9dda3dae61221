"""What families that use each other must agree in, so that a shared interface means one thing in all of them."""

import re
from collections.abc import Callable, Iterator, Mapping

from jitlto.base.diagnostic import Location
from jitlto.base.errors import FamilyError
from jitlto.compile.declarations import find_conflicts, line_of, macro_definitions, macros, read_declarations, words
from jitlto.compile.includes import all_directives, scan
from jitlto.record.family_record import FamilyRecord
from jitlto.record.options import macro_values, option_macros

# What keeps a header from being read twice.
_ONCE = re.compile(rb"^\s*#\s*(?:pragma\s+once|ifndef\s+(\w+)\s+#\s*define\s+\1)\b", re.M)


def check_uses(families: Mapping[str, FamilyRecord], place: Callable[[str], Location | None] = lambda _: None) -> None:
    """Check that families fit those that they use: their interface headers mean the same to both.

    Args:
        families: By name, with all that they use.
        place: Returns where one of them says which it uses, if that is known.

    Raises:
        FamilyError: If an include of a used interface finds another header, or one depends on a macro that is not the
            same for both, or that another leaves changed, or has a template that the other interfaces specialise.
    """
    for name, family in families.items():
        for values in [dict(each.values) for each in family.choices] or [{}]:
            records = {each: families[each].choose(values) for each in (name, *family.uses)}
            for used in map(records.__getitem__, family.uses):
                further = sorted({*families[used.name].common} - values.keys())
                # With it in every key, the family finds a header of its own in place of one that depends on it.
                if further and not all(further[0] in group.key for group in family.groups):
                    what = f"the interfaces of {used.name} depend on {further[0]}, which {name} does not have"
                    hint = f"add {further[0]} to the key of every entrypoint and group of {name}"
                    raise FamilyError(what, code="family-use", where=place(name), hint=hint)
                if used.choices:  # it has no fragment of these values
                    continue
                for what, hint in _find_differences(records[name], used, records):
                    raise FamilyError(what, code="family-use", where=place(name), hint=hint)


def _find_differences(
    family: FamilyRecord, used: FamilyRecord, families: Mapping[str, FamilyRecord]
) -> Iterator[tuple[str, str]]:
    """Yield headers and macros that are not the same for a family as for one that it uses, and specialisations."""
    headers, own = family.texts, used.texts
    included = {each.name: name for name, text in own.items() for each in scan(text)[0]}
    for header in sorted((included.keys() & headers.keys()) - own.keys()):
        what = f"{included[header]} of {used.name} includes or asks for {header}, a header of its user {family.name}"
        yield what, f"give {header} another name in {family.name}"
    for header, text in sorted(own.items(), key=lambda each: each[0] not in headers):  # why others are not, comes first
        if (found := headers.get(header)) != text:
            # An include of a header that is not searched for first has its exact name.
            names = re.findall(r'[<"]\+\d+//([^">]+)[">]', (found or b"").decode("utf-8", "surrogateescape"))
            other = next((each for each in names if each in headers), header)
            what = f"{family.name} uses {used.name}, but finds another header {other!r} than its interfaces mean"
            yield what, f"give {other} another name in one of the families, or build both from the same sources"
    differing = {name for name, _ in macro_values(family.options).items() ^ macro_values(used.options).items()}
    for header, text in own.items() if differing else ():
        for macro in sorted(differing & words(text)):
            option = option_macros((*family.options, *used.options))[macro]
            what = f"only one of {family.name} and {used.name}, which it uses, is compiled with {option}"
            yield what, f"give both the same: the interface {header} depends on it"
    yield from _find_left_macros(family, used, families)
    # What the interfaces before or behind its own specialise.
    known = {*own.values()}
    ours = known.difference(*(families[name].texts.values() for name in used.uses))
    mentioned = {name: text for name, text in headers.items() if text in ours}
    foreign = {name: text for name, text in headers.items() if text not in known}
    # What families between the two specialise is found for them.
    between = (families[name].texts.values() for name in family.uses if used.name in families[name].uses)
    every = (*foreign.values(), *mentioned.values())
    through = [each for text in every for each in read_declarations(text).special_macros]
    looks = through or any(read_declarations(text).special for text in {*foreign.values()}.difference(*between))
    for conflict in find_conflicts(b"\n".join(foreign.values()), mentioned) if looks else ():
        if conflict.kind == "specialisation":
            by = {conflict.name, *(macro for macro, template in through if template == conflict.name)}
            header = next(name for name, text in foreign.items() if not by.isdisjoint(words(text)))
            what = f"{header}:{conflict.line_in(foreign[header])} specialises {conflict.name}, which "
            what += f"{conflict.mention(mentioned)} mentions: {_unlike(family, used)}"
            yield what, f"move the specialisation into {conflict.header}, or into a header that it includes"


def _find_left_macros(
    family: FamilyRecord, used: FamilyRecord, families: Mapping[str, FamilyRecord]
) -> Iterator[tuple[str, str]]:
    """Yield the macros that interfaces before those of a used family leave changed, and that these mention."""
    own, places = used.texts, {name: place for place, name in enumerate(family.interfaces)}
    last = max(map(places.__getitem__, used.interfaces), default=0)
    guarded = {text for text in own.values() if _ONCE.search(text)}
    known = {*own.values()}
    for other in (families[name] for name in family.uses if name not in (used.name, *used.uses)):
        begins = min(map(places.__getitem__, other.interfaces), default=last)
        # A header that another one has too has been looked at, with all that it includes.
        new = {name: text for name, text in other.texts.items() if begins < last and text not in known}
        known.update(new.values())
        once = {name: text for name, text in other.texts.items() if text in guarded} if new else {}
        for header, text in new.items():
            for macro in sorted(macros(text)):
                if place := _changed_mention(macro, text, own, once):
                    what = f"{header}:{line_of(text, macro, is_macro=True)} leaves the macro {macro} changed, which "
                    what += f"{place} mentions: {_unlike(family, used)}"
                    yield what, f"undefine {macro} at the end of {header}, or give it another name there"


def _changed_mention(macro: str, left: bytes, own: Mapping[str, bytes], once: Mapping[str, bytes]) -> str | None:
    """Return where headers first mention a macro that may mean something else behind what another has ``left``.

    Of those that both include, and that are read ``once``, the first reading counts, while the macro is defined.
    """
    values = _values(left, macro)
    leaves_nothing = values[0] is not None and values[-1] is None
    if leaves_nothing and not _spans_include(left, macro):
        return None
    read = once if leaves_nothing else own
    mentioning = [(name, text) for name, text in read.items() if macro in words(text)]
    theirs = [value for text in own.values() for value in _values(text, macro)]
    every = {each for each in (*values, *theirs) if each is not None or not leaves_nothing}
    if theirs and len(every) == 1 and values[0]:  # an empty one may be a guard
        return None
    lines = ((name, line_of(text, macro), line_of(text, macro, is_macro=True), text) for name, text in mentioning)
    return next((f"{name}:{n}" for name, n, own, text in lines if n != own or macro not in macros(text)), None)


def _values(text: bytes, macro: str) -> list[str | None]:
    """Return what a text defines a macro as, in order; None where it undefines it."""
    return [value for name, value in macro_definitions(text) if name == macro]


def _spans_include(text: bytes, macro: str) -> bool:
    """Return whether a text includes something while it defines a macro."""
    is_defined = False
    for word, rest in all_directives(text):
        if word in ("define", "undef") and re.match(rf"{re.escape(macro)}(?![\w$])", rest):
            is_defined = word == "define"
        if word == "include" and is_defined:
            return True
    return False


def _unlike(family: FamilyRecord, used: FamilyRecord) -> str:
    return f"{family.name} is compiled behind both, the fragments of {used.name} behind the second alone"
