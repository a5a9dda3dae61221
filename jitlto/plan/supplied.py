"""What callers supply to a plan: its symbols, and the errors about symbols that no fragment and no input provides."""

import re
from collections.abc import Callable, Mapping, Sequence, Set

from msgspec import Struct

from jitlto.base.errors import InterfaceMismatchError, MissingProviderError, PlanError
from jitlto.base.mangling import base_name, demangle, qualified_name
from jitlto.cuda.ptx import missing_symbol_hint
from jitlto.database.index import Index
from jitlto.plan import resolve_errors
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, Symbol


class UserSymbols(Struct, frozen=True):
    """The symbols that a caller's own input provides and requires; ``name`` is its name in messages."""

    name: str
    provides: tuple[Symbol, ...]
    requires: tuple[Symbol, ...]


def name_of(owner: Fragment | UserSymbols) -> str:
    """Return the name of a fragment or a caller's input in messages."""
    return owner.key.text if isinstance(owner, Fragment) else owner.name


def missing_provider(
    index: Index,
    symbol: Symbol,
    requirer: Fragment | UserSymbols,
    bound: Mapping[str, str],
    supplied: Sequence[UserSymbols],
) -> PlanError:
    """Return the error for a required symbol that nothing provides for a configuration.

    Raises:
        PlanError: As :func:`check_inputs_used`.
    """
    wanted = demangle(symbol.name)
    if candidates := index.provider_keys(symbol.name):
        return resolve_errors.no_value(f"provider of {wanted}", candidates, bound)
    check_inputs_used(index, supplied, None, [symbol.name])
    what, runtime = f"nothing provides {wanted}, which {name_of(requirer)} requires", missing_symbol_hint(symbol.name)
    if runtime:
        return MissingProviderError(what, code="plan-missing-provider-device-runtime", hint=runtime)
    others = ", ".join(item.name for item in supplied)
    lacking = f"{others} does not define it" if others else ""
    whose, hint = describe_suppliers(index.record, symbol.name)
    hint = f"{lacking}; {hint}" if whose and lacking else lacking or hint
    return MissingProviderError(f"{what}: {whose}" if whose else what, hint=hint)


def describe_suppliers(family: FamilyRecord, symbol: str) -> tuple[str, str]:
    """Return which group of callers a symbol is of, empty if it is of none, and how it is given."""
    groups = family.supplied_groups()(symbol)
    if not groups:
        return "", "supply it: planner.add_source(text)"
    names = " or ".join(f"{group.name} ({group.interface})" for group in groups)
    how = "planner.add_source(text), add_function, add_ltoir, add_ptx or add_binary"
    return (
        f"callers supply it, as group {names}",
        f"define it as {groups[0].interface} declares it, and give it by {how}",
    )


def check_inputs_used(
    index: Index, supplied: Sequence[UserSymbols], required: Set[str] | None, likely: Sequence[str]
) -> None:
    """Check that each input provides a required symbol, and no other overload of a likely one in its place.

    Otherwise a name or a type is probably misspelled, and fragments would be linked in its place. An overload beside
    the right one is the caller's affair.

    Args:
        index, supplied: The family's fragments, and the inputs.
        required: The symbols; None for those that any of the family's fragments requires.
        likely: Those that an input was most likely meant to provide.

    Raises:
        InterfaceMismatchError, PlanError: If one does not.
    """
    if not supplied:
        return
    required = index.required if required is None else required
    if all(item.provides and {symbol.name for symbol in item.provides} <= required for item in supplied):
        return  # without names being read, which takes longer than planning
    right = {qualified_name(each.name) for item in supplied for each in item.provides if each.name in required}
    wanted = [name for name in likely if qualified_name(name) not in right]
    for item in supplied:
        theirs = {symbol.name for symbol in item.provides}
        called = qualified_name if theirs & required else base_name
        if found := _find_overload(theirs - required, wanted, called):
            raise _mismatch(item.name, *found, describe_suppliers(index.record, found[1])[0])
        if theirs & required:
            continue
        defined = ", ".join(map(demangle, sorted(theirs))) or "nothing"
        calls = ", ".join(map(demangle, sorted(index.required))) or "nothing"
        raise PlanError(
            f"provides nothing that the plan requires; it defines {defined}",
            code="plan-unused-input",
            where=item.name,
            hint=f"the family's fragments call {calls}",
        )


def _find_overload(names: Set[str], wanted: Sequence[str], called: Callable[[str], str]) -> tuple[str, str] | None:
    """Return the first of some symbols that is called as a wanted one is, and that one."""
    # Of thousands of symbols only those are demangled that may have such a name: one that is no operator's is in them.
    bases = {base_name(name) for name in wanted}
    alike = re.compile("|".join(map(re.escape, bases)) if all(map(str.isidentifier, bases)) else "")
    found = {called(name): name for name in sorted(filter(alike.search, names), reverse=True)} if wanted else {}
    return next(((found[name], each) for each in wanted if (name := called(each)) in found), None)


def _mismatch(input_name: str, defined: str, required: str, whose: str) -> InterfaceMismatchError:
    found, wanted = demangle(defined), demangle(required)
    hint = 'define it with exactly the declared types, and extern "C" if and only if it is declared so'
    if wanted.replace("long long", "long") == found.replace("long long", "long"):
        hint = (
            "NVRTC's int64_t is `long long`, nvcc's is `long`: spell the type out as the other side has it, "
            "or compile both with one compiler"
        )
    what = f"defines {found}, but the kernel calls {wanted}"
    return InterfaceMismatchError(f"{what}: {whose}" if whose else what, where=input_name, hint=hint)
