"""Planning by symbols: from a configuration to the fragments that a kernel is made of.

Start from the entrypoint that the configuration names. For each symbol that it requires, take the fragments that
provide it and keep those whose key parameters agree with the configuration. Exactly one must remain; continue with the
symbols that it requires. Pure: nothing is read and nothing is linked here.

It is longer than most modules because all rules that decide between fragments are in it, with their errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from msgspec import Struct

from jitlto.base.errors import (
    InterfaceMismatchError,
    MissingProviderError,
    PlanError,
)
from jitlto.base.mangling import base_name, demangle, qualified_name
from jitlto.cuda.ptx import missing_symbol_hint
from jitlto.plan import resolve_errors
from jitlto.record.fragment import Fragment, Role, Symbol, SymbolKind
from jitlto.record.index import Index, agrees


class UserSymbols(Struct, frozen=True):
    """The symbols that a caller's own input provides and requires; ``name`` is its name in messages.

    ``opaque`` inputs (SASS, archives) cannot be inspected; they are assumed to provide every symbol that no fragment
    provides.
    """

    name: str
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]
    opaque: bool = False


class Resolution(Struct, frozen=True):
    """The fragments of a kernel: the entrypoint, the device fragments by key, and the parameters that chose them."""

    entry: Fragment
    device: tuple[Fragment, ...]
    configuration: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, chosen: Sequence[Fragment]) -> Resolution:
        """Return that of fragments, the entrypoint first."""
        device = tuple(sorted(chosen[1:], key=lambda fragment: fragment.key))
        return cls(chosen[0], device, tuple(sorted(_agreed(chosen).items())))

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All of them in link order."""
        return (self.entry, *self.device)


# A fragment or a caller's input, with its name in messages.
_Owner: TypeAlias = tuple[str, Fragment | UserSymbols]


def resolve(
    index: Index,
    configuration: Mapping[str, str],
    *,
    entry_group: str | None = None,
    pinned: Sequence[Fragment] = (),
    supplied: Sequence[UserSymbols] = (),
) -> Resolution:
    """Resolve a configuration.

    Args:
        index: The family's fragments.
        configuration: Parameter values, spelled as in the family's keys.
        entry_group: The entrypoint's group, if the family has several.
        pinned: Fragments that the caller added by key.
        supplied: The caller's own inputs; the symbols that they provide are not searched for in fragments.

    Raises:
        UnknownValueError, AmbiguousConfigurationError, MissingProviderError, InterfaceMismatchError, PlanError: If the
            configuration does not select exactly one fragment for every required symbol.
    """
    entry = _choose_entry(index, configuration, entry_group, pinned)
    chosen = [entry, *(f for f in dict.fromkeys(pinned) if f.role is Role.DEVICE)]
    _choose_providers(index, configuration, chosen, pinned, supplied)
    owners = _name_owners(chosen, supplied)
    needed = {symbol.name for _, owner in owners for symbol in owner.requires}
    _check_inputs_used(index, supplied, needed, sorted(needed))
    for fragment in pinned:
        if fragment is not entry and not needed & {symbol.name for symbol in fragment.provides}:
            raise PlanError(
                f"{fragment.key} was added and provides nothing that the plan requires",
                code="plan-unused-fragment",
                hint="leave it out, or choose the kernel that calls it",
            )
    _check_providers(owners)
    return Resolution.of(chosen)


def is_compatible(required: Symbol, provided: Symbol) -> bool:
    """Return whether ``provided``, a definition, can stand for a declaration, as far as sizes and alignments tell.

    Layouts give the number of bytes passed, not their meaning: ``int`` and ``float`` look alike. The declaration of a
    variable may leave an array's size open and ask for less alignment than the definition has.
    """
    if (required.kind is SymbolKind.VARIABLE) != (provided.kind is SymbolKind.VARIABLE):
        return False
    if required.kind is not SymbolKind.VARIABLE:
        return required.layout == provided.layout
    (space, size, alignment), (its_space, its_size, its_alignment) = map(_variable, (required.layout, provided.layout))
    return space == its_space and size in ("?", its_size) and int(alignment) <= int(its_alignment)


def _variable(layout: str) -> tuple[str, str, str]:
    """Split the layout of a variable into space, size and alignment."""
    space, _, rest = layout.partition(" ")
    size, _, alignment = rest.partition("@")
    return space, size, alignment


def _choose_entry(
    index: Index,
    bound: Mapping[str, str],
    group: str | None,
    pinned: Sequence[Fragment],
) -> Fragment:
    named = [f for f in pinned if f.role is Role.ENTRYPOINT]
    if len(named) > 1:
        what = f"two entrypoints were added: {named[0].key} and {named[1].key}"
        raise PlanError(what, code="plan-two-entrypoints", hint="a plan has one")
    candidates = [f for f in named if agrees(f.key, bound)] if named else index.find_entries(group, bound)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        groups = index.entry_groups()
        if not named and (not groups or group not in (None, *groups)):
            what = f"no entrypoint {group!r}" if groups else "the family has no entrypoint"
            hint = f"the entrypoints are {', '.join(sorted(groups))}"
            hint = hint if groups else "its groups are for families that use it"
            raise PlanError(what, code="plan-unknown-entrypoint", hint=hint)
        pool = [f.key for f in named] or index.entry_keys(group)
        raise resolve_errors.no_value("entrypoint", pool, bound)
    if len({f.key.group for f in candidates}) > 1:
        raise resolve_errors.undecided_entrypoint(candidates, bound)
    raise resolve_errors.undecided({f"several {candidates[0].key.group} fragments agree": candidates}, bound, bound)


def _choose_providers(
    index: Index,
    configuration: Mapping[str, str],
    chosen: list[Fragment],
    pinned: Sequence[Fragment],
    supplied: Sequence[UserSymbols],
) -> None:
    """Add providers to the chosen fragments until no symbol is open.

    Each round decides all symbols that it can, so that the order of symbols and fragments has no influence.

    Raises:
        AmbiguousConfigurationError: If a symbol stays undecided, or was decided by a parameter in which fragments of
            the kernel differ.
    """
    assumed = set[str]()
    # Of each symbol with several candidates: these, and the parameters on which the others agreed when it was decided.
    decided: dict[str, tuple[list[Fragment], dict[str, str]]] = {}
    opaque = any(item.opaque for item in supplied)
    found: dict[str, list[Fragment]] = {}  # a symbol may stay open for several rounds
    while open_symbols := _open_symbols(_name_owners(chosen, supplied), assumed):
        names = [symbol.name for symbol, _ in open_symbols]
        found |= {name: index.find_providers(name, configuration) for name in names if name not in found}
        candidates = {name: found[name] for name in names}
        missing = [(symbol, requirer) for symbol, requirer in open_symbols if not candidates[symbol.name]]
        if missing and not opaque:
            raise _missing(index, *missing[0], configuration, supplied)
        forced = [several[0] for several in candidates.values() if len(several) == 1]
        if not forced:
            # Only if the configuration leaves a choice: two symbols may need different values of one parameter.
            bound = _agreed(chosen)
            for name, several in candidates.items():
                agreeing = [f for f in several if agrees(f.key, bound)]
                if len(agreeing) == 1:
                    decided[name] = several, bound
                    forced += agreeing
        chosen += dict.fromkeys(forced)
        if forced:
            continue
        # This round decided nothing, so no later one would.
        if opaque:
            assumed.update(candidates)
            continue
        _check_inputs_used(index, supplied, index.required, list(candidates))
        bound = _agreed(chosen)
        fitting = {n: [f for f in several if agrees(f.key, bound)] or several for n, several in candidates.items()}
        decisions = {_provide(name): several for name, several in fitting.items()}
        raise resolve_errors.undecided(decisions, {**configuration, **bound}, configuration)
    agreed = _agreed(chosen)
    for name, (several, bound) in sorted(decided.items()):
        still = {parameter: value for parameter, value in bound.items() if parameter in agreed}
        agreeing = [f for f in several if agrees(f.key, still)]
        if len(agreeing) > 1:
            raise resolve_errors.undecided({_provide(name): agreeing}, still, configuration)
    _check_alternatives(index, {**configuration, **agreed}, configuration, chosen, [*pinned, *supplied])


def _check_alternatives(
    index: Index,
    bound: Mapping[str, str],
    given: Mapping[str, str],
    chosen: Sequence[Fragment],
    explicit: Sequence[Fragment | UserSymbols],
) -> None:
    """Check that no other fragment could provide what one provides that was chosen for another symbol."""
    settled = {symbol.name for owner in explicit for symbol in owner.provides}
    entry, *others = chosen
    own = {symbol.name for symbol in entry.provides}
    provided = own.union(symbol.name for fragment in others for symbol in fragment.provides)
    wanted = sorted(index.required & (provided - settled))
    agreeing = {name: several for name in wanted if (several := index.find_providers(name, bound))}
    if doubled := own & agreeing.keys():
        name = min(doubled)
        raise PlanError(
            f"{entry.key} defines {demangle(name)} itself, which group {agreeing[name][0].key.group} provides",
            code="plan-duplicate-definition",
            hint="include the group's interface in the kernel, and not its implementation",
        )
    for name, several in agreeing.items():
        if len(several) > 1:
            raise resolve_errors.undecided({_provide(name): several}, bound, given)


def _provide(symbol: str) -> str:
    return f"several fragments provide {demangle(symbol)}"


def _agreed(fragments: Iterable[Fragment]) -> dict[str, str]:
    """Return the parameters for which all fragments that have them have one value."""
    values: dict[str, set[str]] = {}
    for fragment in fragments:
        for name, value in fragment.key.parameters:
            values.setdefault(name, set()).add(value)
    return {name: next(iter(several)) for name, several in values.items() if len(several) == 1}


def _name_owners(chosen: Iterable[Fragment], supplied: Iterable[UserSymbols]) -> list[_Owner]:
    return [*((fragment.key.text, fragment) for fragment in chosen), *((item.name, item) for item in supplied)]


def _open_symbols(owners: Sequence[_Owner], assumed: Iterable[str]) -> list[tuple[Symbol, str]]:
    """Return the symbols that are required and not provided yet, each with the name of a requirer; sorted by name."""
    provided = {symbol.name for _, owner in owners for symbol in owner.provides} | set(assumed)
    needed: dict[str, tuple[Symbol, str]] = {}
    for name, owner in owners:
        for symbol in owner.requires:
            needed.setdefault(symbol.name, (symbol, name))
    return [needed[name] for name in sorted(needed) if name not in provided]


def _missing(
    index: Index, symbol: Symbol, requirer: str, bound: Mapping[str, str], supplied: Sequence[UserSymbols]
) -> PlanError:
    candidates = index.provider_keys(symbol.name)
    wanted = demangle(symbol.name)
    if candidates:
        return resolve_errors.no_value(f"provider of {wanted}", candidates, bound)
    for item in supplied:
        for theirs in item.provides:
            if base_name(theirs.name) == base_name(symbol.name):
                raise _mismatch(item.name, demangle(theirs.name), wanted)
    _check_inputs_used(index, supplied, index.required, [symbol.name])
    others = ", ".join(item.name for item in supplied)
    if others:
        hint = f"{others} does not define it"
    else:
        hint = "supply it: planner.add_source(text), or --source FILE on the command line"
    what, runtime = f"nothing provides {wanted}, which {requirer} requires", missing_symbol_hint(symbol.name)
    code = "plan-missing-provider-device-runtime" if runtime else "plan-missing-provider"
    return MissingProviderError(what, code=code, hint=runtime or hint)


def _check_inputs_used(
    index: Index, supplied: Sequence[UserSymbols], required: Set[str], likely: Sequence[str]
) -> None:
    """Check that each input provides a required symbol, and no other overload of a likely one in its place.

    Otherwise a name or a type is probably misspelled. ``likely`` are the symbols that it was most likely meant to
    provide.
    """
    right = {symbol.name for item in supplied for symbol in item.provides} & required
    for item in supplied:
        theirs = {symbol.name for symbol in item.provides}
        if item.opaque:
            continue
        if theirs & required:
            _check_overloads(item.name, theirs - required, right, likely)
            continue
        alike = {base_name(name): name for name in sorted(theirs, reverse=True)}
        for wanted in (*likely, *sorted(index.required)):
            if name := alike.get(base_name(wanted)):
                raise _mismatch(item.name, demangle(name), demangle(wanted))
        defined = ", ".join(map(demangle, sorted(theirs))) or "nothing"
        called = ", ".join(map(demangle, sorted(index.required))) or "nothing"
        raise PlanError(
            f"provides nothing that the plan requires; it defines {defined}",
            code="plan-unused-input",
            where=item.name,
            hint=f"the family's fragments call {called}",
        )


def _check_overloads(input_name: str, unused: set[str], right: set[str], likely: Iterable[str]) -> None:
    """Check what an input provides in vain for functions of the right name and other types.

    They would be ignored, and fragments linked in their place. An overload beside the right one is the caller's affair.
    """
    # Of thousands of symbols only those are demangled that may have such a name: one that is no operator's is in them.
    names = {base_name(wanted) for wanted in likely}
    alike = re.compile("|".join(map(re.escape, names)) if all(map(str.isidentifier, names)) else "")
    functions = {qualified_name(name): name for name in sorted(filter(alike.search, unused if names else ()))}
    for function in map(qualified_name, right if functions else ()):
        functions.pop(function, None)
    for wanted in likely if functions else ():
        if found := functions.get(qualified_name(wanted)):
            raise _mismatch(input_name, demangle(found), demangle(wanted))


def _mismatch(name: str, found: str, wanted: str) -> InterfaceMismatchError:
    hint = "define it with exactly the declared types and linkage"
    if wanted.replace("long long", "long") == found.replace("long long", "long"):
        hint = (
            "NVRTC's int64_t is `long long`, nvcc's is `long`: spell the type out as the other side has it, "
            "or compile both with one compiler"
        )
    elif "(" not in found:
        hint = 'it is declared with C++ linkage: remove extern "C"'
    elif "(" not in wanted:
        hint = 'it is declared extern "C": define it so'
    return InterfaceMismatchError(f"defines {found}, but the kernel calls {wanted}", where=name, hint=hint)


def _check_providers(owners: Sequence[_Owner]) -> None:
    """Check that each symbol has one provider, with the layout required."""
    required = {s.name: (s, name) for name, owner in reversed(owners) for s in owner.requires}
    provided: dict[str, tuple[Symbol, str, int]] = {}
    for number, (name, owner) in enumerate(owners):
        for symbol in owner.provides:
            # Compared by number, because several inputs of a caller may have the same name.
            other = provided.setdefault(symbol.name, (symbol, name, number))
            if other[2] != number and (symbol.name in required or not (symbol.weak and other[0].weak)):
                raise PlanError(
                    f"{demangle(symbol.name)} is defined twice, by {other[1]} and by {name}",
                    code="plan-duplicate-definition",
                    hint="a plan has one provider of each symbol",
                )
            if symbol.name not in required:
                continue
            wanted, requirer = required[symbol.name]
            if not is_compatible(wanted, symbol):
                raise InterfaceMismatchError(
                    f"defines {demangle(symbol.name)} with layout {symbol.layout}, but {requirer} calls it with "
                    f"layout {wanted.layout}",
                    code="plan-interface-mismatch-layout",
                    where=name,
                    hint="layouts are (result)(parameters) in bytes: give the function the declared parameters",
                )
