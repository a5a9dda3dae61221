"""Planning by symbols: from a configuration to the fragments that a kernel is made of.

Start from the entrypoint that the configuration names. For each symbol that it requires, take the fragments that
provide it and keep those whose key parameters agree with the configuration. Exactly one must remain; continue with the
symbols that it requires. Pure: nothing is read and nothing is linked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from jitlto.base.errors import InterfaceMismatchError, PlanError
from jitlto.base.mangling import demangle
from jitlto.database.index import Index
from jitlto.plan import resolve_errors
from jitlto.plan.supplied import UserSymbols, check_inputs_used, missing_provider, name_of
from jitlto.record.fragment import UNKNOWN, Fragment, FragmentKey, Role, Symbol, SymbolKind, agrees


class Resolution(Struct, frozen=True):
    """The fragments of a kernel: the entrypoint, the device fragments by key, and the parameters that chose them."""

    entry: Fragment
    device: tuple[Fragment, ...]
    configuration: tuple[tuple[str, str], ...]

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All of them in link order."""
        return (self.entry, *self.device)


def resolve(
    index: Index,
    configuration: Mapping[str, str],
    *,
    entry_group: str | None = None,
    pinned: Sequence[Fragment] = (),
    supplied: Sequence[UserSymbols] = (),
    libraries: Sequence[str] | None = None,
) -> Resolution:
    """Resolve a configuration.

    Args:
        index: The family's fragments.
        configuration: Parameter values, spelled as in the family's keys.
        entry_group: The entrypoint's group, if the family has several.
        pinned: Fragments that the caller added by key.
        supplied: The caller's own inputs; the symbols that they provide are not searched for in fragments.
        libraries: The toolkit's libraries that are linked; None for the family's own.

    Raises:
        UnknownValueError, AmbiguousConfigurationError, MissingProviderError, InterfaceMismatchError, PlanError: If the
            configuration does not select exactly one fragment for every required symbol.
    """
    entry = choose_entry(index, configuration, entry_group, pinned)
    return Selection(index, configuration, entry, pinned, supplied, libraries=libraries).finish()


def is_compatible(required: Symbol, provided: Symbol) -> bool:
    """Return whether ``provided``, a definition, can stand for a declaration, as far as sizes and alignments tell.

    Layouts give the number of bytes passed, not their meaning: ``int`` and ``float`` look alike. The declaration of a
    variable may leave an array's size open and ask for less alignment than the definition has.
    """
    if UNKNOWN in (required.layout, provided.layout):
        return True
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


def choose_entry(
    index: Index, bound: Mapping[str, str], group: str | None, pinned: Sequence[Fragment] = ()
) -> Fragment:
    """Return the entrypoint that a configuration names; arguments and errors are those of :func:`resolve`."""
    named = [f for f in pinned if f.role is Role.ENTRYPOINT]
    if len(named) > 1:
        raise PlanError(
            f"two entrypoints were added: {named[0].key} and {named[1].key}",
            code="plan-two-entrypoints",
            hint="a plan has one",
        )
    candidates = [f for f in named if agrees(f.key.parameters, bound)] if named else index.find_entries(group, bound)
    if len(candidates) == 1:
        return candidates[0]
    if named and not candidates:
        raise resolve_errors.no_value("entrypoint", _keys(named), bound)
    raise resolve_errors.which_entrypoint(index.entry_keys(None), bound, group)


class Selection:
    """The fragments that a configuration chooses, and the symbols that it leaves open.

    A fragment is chosen if it is the only one to provide a required symbol, so that the order of symbols and fragments
    has no influence. What else the chosen fragments decide is left to :meth:`finish`.

    Args:
        index: The family's fragments.
        configuration: Parameter values.
        entry: The entrypoint.
        pinned: Fragments that are chosen whatever the configuration says.
        supplied: The caller's own inputs.
        given: Names of further symbols that need no provider.
        libraries: As for :func:`resolve`. They provide what no fragment does and has no C++ name; the link proves it.
    """

    def __init__(
        self,
        index: Index,
        configuration: Mapping[str, str],
        entry: Fragment,
        pinned: Sequence[Fragment] = (),
        supplied: Sequence[UserSymbols] = (),
        given: Collection[str] = (),
        libraries: Sequence[str] | None = None,
    ) -> None:
        self.index = index
        #: With the values of the entrypoint on which the interfaces depend.
        self.configuration = {**configuration, **{n: v for n, v in entry.key.parameters if n in index.record.common}}
        self.entry = entry
        #: The fragments, the entrypoint first.
        self.chosen = [entry, *(f for f in dict.fromkeys(pinned) if f.role is Role.DEVICE)]
        #: Each required symbol, as its first requirer declares it, and that requirer; by name.
        self.required: dict[str, tuple[Symbol, Fragment | UserSymbols]] = {}
        #: By name, the candidates for each required symbol that nothing provides yet: none, or several.
        self.open: dict[str, Sequence[Fragment]] = {}
        self._explicit = (pinned, supplied, given, index.record.link.libraries if libraries is None else libraries)
        self._provided = set(given)
        self._sole = set[str]()  # the symbols that only one fragment can provide, which was chosen for that
        self._pending: list[str] = []
        owners: list[Fragment | UserSymbols] = [*self.chosen, *supplied]
        for owner in owners:
            self._take(owner)
        self._settle()

    def _take(self, owner: Fragment | UserSymbols) -> None:
        self._provided.update([symbol.name for symbol in owner.provides])
        for symbol in owner.requires:
            if symbol.name not in self.required:
                self.required[symbol.name] = symbol, owner
                self._pending.append(symbol.name)

    def _settle(self) -> None:
        """Choose, one after the other, the fragments that alone provide what is required."""
        while self._pending:
            name = self._pending.pop()
            if name in self._provided:
                continue
            candidates = self.index.find_providers(name, self.configuration)
            if len(candidates) == 1:
                self._sole.add(name)
                self._choose(candidates[0])
            elif candidates or name.startswith("_Z") or not self._explicit[3] or self.index.provider_keys(name):
                self.open[name] = candidates
        self.open = {name: self.open[name] for name in sorted(self.open) if name not in self._provided}

    def _choose(self, fragment: Fragment) -> None:
        self.chosen.append(fragment)
        self._take(fragment)

    def finish(self) -> Resolution:
        """Decide what the chosen fragments leave no choice for; return the result, checked.

        Raises:
            PlanError: As :func:`resolve`.
        """
        pinned, supplied, *_ = self._explicit
        self._decide()
        self._check_alternatives()
        needed = self.required.keys()
        check_inputs_used(self.index, supplied, needed, sorted(needed))
        common = {name: value for name, value in self.configuration.items() if name in self.index.record.common}
        for fragment in pinned:
            if not agrees(fragment.key.parameters, common):
                raise InterfaceMismatchError(
                    f"{fragment.key} was added, whose interfaces are not those of {self.entry.key}",
                    code="plan-interface-mismatch-values",
                    hint=f"add one with {', '.join(f'{name}={value}' for name, value in common.items())}",
                )
            if fragment is not self.entry and needed.isdisjoint(symbol.name for symbol in fragment.provides):
                raise PlanError(
                    f"{fragment.key} was added and provides nothing that the plan requires",
                    code="plan-unused-fragment",
                    hint="leave it out, or choose the kernel that calls it",
                )
        _check_providers([*self.chosen, *supplied], needed)
        device = tuple(sorted(self.chosen[1:], key=lambda fragment: fragment.key))
        return Resolution(self.entry, device, tuple(sorted(_agreed(self.chosen).items())))

    def _decide(self) -> None:
        """Choose providers by the parameters on which all chosen fragments agree.

        Only where the configuration leaves a choice: two symbols may need different values of one parameter. Each
        round decides all symbols that it can.

        Raises:
            AmbiguousConfigurationError: If a symbol stays undecided, or was decided by a parameter in which fragments
                of the kernel differ.
        """
        supplied, given = self._explicit[1], self.configuration
        # Of each symbol: its candidates, and the parameters on which the others agreed when it was decided.
        decided: dict[str, tuple[Sequence[Fragment], dict[str, str]]] = {}
        while self.open:
            missing = next((name for name, several in self.open.items() if not several), None)
            if missing is not None:
                raise missing_provider(self.index, *self.required[missing], given, supplied)
            bound = _agreed(self.chosen)
            agreeing = {
                name: [f for f in several if agrees(f.key.parameters, bound)] for name, several in self.open.items()
            }
            found = {name: several[0] for name, several in agreeing.items() if len(several) == 1}
            if not found:  # and no later round would decide anything
                check_inputs_used(self.index, supplied, None, list(self.open))
                fitting = {_provide(n): _keys(agreeing[n] or several) for n, several in self.open.items()}
                raise resolve_errors.undecided(fitting, {**given, **bound}, given)
            decided |= {name: (self.open[name], bound) for name in found}
            for fragment in dict.fromkeys(found.values()):
                self._choose(fragment)
            self._settle()
        agreed = _agreed(self.chosen) if decided else {}
        for name, (several, bound) in sorted(decided.items()):
            still = {parameter: value for parameter, value in bound.items() if parameter in agreed}
            if len(left := [f for f in several if agrees(f.key.parameters, still)]) > 1:
                raise resolve_errors.undecided({_provide(name): _keys(left)}, still, given)

    def _check_alternatives(self) -> None:
        """Check that no other fragment could provide what one provides that was chosen for another symbol."""
        explicit = {symbol.name for owners in self._explicit[:2] for owner in owners for symbol in owner.provides}
        own, *others = ({symbol.name for symbol in fragment.provides} for fragment in self.chosen)
        mine = own.union(*others) - explicit - self._sole
        wanted = {name for name in mine if self.index.requires(name)}
        bound = {**self.configuration, **_agreed(self.chosen)} if wanted else {}
        for name in sorted(wanted):
            agreeing = self.index.find_providers(name, bound)
            if agreeing and name in own:
                raise PlanError(
                    f"{self.entry.key} defines {demangle(name)} itself, which group {agreeing[0].key.group} provides",
                    code="plan-duplicate-definition",
                    hint="include the group's interface in the kernel, and not its implementation",
                )
            if len(agreeing) > 1:
                raise resolve_errors.undecided({_provide(name): _keys(agreeing)}, bound, self.configuration)


def _keys(fragments: Iterable[Fragment]) -> list[FragmentKey]:
    return [fragment.key for fragment in fragments]


def _provide(symbol: str) -> str:
    return f"several fragments provide {demangle(symbol)}"


def _agreed(fragments: Iterable[Fragment]) -> dict[str, str]:
    """Return the parameters for which all fragments that have them have one value."""
    pairs = {pair for fragment in fragments for pair in fragment.key.parameters}
    found = dict(pairs)
    for name, value in pairs:
        if found.get(name, value) != value:
            del found[name]
    return found


def _check_providers(owners: Sequence[Fragment | UserSymbols], needed: Collection[str]) -> None:
    """Check that each symbol has one provider, with the layout required."""
    provided: dict[str, tuple[Symbol, int]] = {}
    for number, owner in enumerate(owners):
        for symbol in owner.provides:
            # Compared by number, because several inputs of a caller may be equal.
            other, first = provided.setdefault(symbol.name, (symbol, number))
            if first != number and (symbol.name in needed or not (symbol.weak and other.weak)):
                one, two = map(name_of, (owners[first], owner))
                raise PlanError(
                    f"{demangle(symbol.name)} is defined twice, by {one} and by {two}",
                    code="plan-duplicate-definition",
                    hint="a plan has one provider of each symbol",
                )
    for owner in owners:
        for wanted in owner.requires:
            symbol, number = provided.get(wanted.name, (wanted, 0))
            if not is_compatible(wanted, symbol):
                raise InterfaceMismatchError(
                    f"defines {demangle(symbol.name)} with layout {symbol.layout}, but {name_of(owner)} "
                    f"calls it with layout {wanted.layout}",
                    code="plan-interface-mismatch-layout",
                    where=name_of(owners[number]),
                    hint="layouts are (result)(parameters) in bytes: give the function the declared parameters",
                )
