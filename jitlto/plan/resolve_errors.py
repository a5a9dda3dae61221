"""The errors of planning: what a configuration leaves open, values that no fragment has together, wrong inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from jitlto.base.errors import (
    AmbiguousConfigurationError,
    InterfaceMismatchError,
    MissingProviderError,
    PlanError,
    UnknownValueError,
)
from jitlto.base.mangling import base_name, demangle, qualified_name
from jitlto.base.types import is_same_value
from jitlto.cuda.ptx import missing_symbol_hint
from jitlto.plan.configuration import describe_choice
from jitlto.record.fragment import Fragment, FragmentKey, Symbol
from jitlto.record.index import Index, parameter_values

if TYPE_CHECKING:
    from jitlto.plan.resolve import UserSymbols


def undecided(
    decisions: Mapping[str, Sequence[Fragment]], bound: Mapping[str, str], given: Mapping[str, str]
) -> AmbiguousConfigurationError:
    """Return the error for decisions that a configuration leaves open, with the parameters that would decide.

    Args:
        decisions: By what is open, such as ``several fragments provide op(float)``, the candidates; at least one entry.
        bound: The parameters that have values, given by the caller or by fragments that are chosen already.
        given: Those that the caller gave. Where the others contradict every candidate, they are open too.
    """
    opened = {what: _differences(c, bound) or _differences(c, given) for what, c in decisions.items()}
    for what, values in sorted(opened.items()):
        if not values:
            listed = ", ".join(fragment.key.text for fragment in decisions[what][:3])
            hint = "no parameter tells them apart: add one to key, or name the fragment with planner.add(key)"
            return AmbiguousConfigurationError(f"{what}: {listed}", code="plan-ambiguous-fragments", hint=hint)
    names, choices = _describe_choices(opened.values())
    return AmbiguousConfigurationError(
        f"{min(decisions)}: the configuration leaves open {names}", hint=f"give {choices}"
    )


def undecided_entrypoint(candidates: Sequence[Fragment], bound: Mapping[str, str]) -> AmbiguousConfigurationError:
    """Return the error for entrypoints of several groups, with the parameters that are open for each of these."""
    groups: dict[str, list[Fragment]] = {}
    for fragment in candidates:
        groups.setdefault(fragment.key.group, []).append(fragment)
    ways = []
    for name, group in sorted(groups.items()):
        _, choices = _describe_choices([_differences(group, bound)])
        ways.append(f"entry={name}" + (f" and {choices}" if choices else ""))
    return AmbiguousConfigurationError(
        f"several entrypoints agree: {', '.join(sorted(groups))}",
        code="plan-ambiguous-entrypoint",
        hint="give " + ", or ".join(ways),
    )


def _describe_choices(differences: Iterable[Mapping[str, Iterable[str]]]) -> tuple[str, str]:
    """Return the names of open parameters, and all of them with their values."""
    values: dict[str, set[str]] = {}
    for each in differences:
        for name, several in each.items():
            values.setdefault(name, set()).update(several)
    return ", ".join(sorted(values)), "; ".join(describe_choice(name, values[name]) for name in sorted(values))


def _differences(candidates: Iterable[Fragment], bound: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    values = parameter_values(candidates)
    return {name: several for name, several in values.items() if name not in bound and len(several) > 1}


def no_value(what: str, pool: Sequence[FragmentKey], bound: Mapping[str, str]) -> UnknownValueError:
    """Return the error for values that exist, but not together.

    It names each parameter that alone would have to be different for a fragment of the pool to match; if there is none,
    all of them.

    Args:
        what: What is looked for, such as ``entrypoint``.
        pool: The keys of the fragments among which none matches.
        bound: The configuration.
    """
    relevant = {name for key in pool for name, _ in key.parameters}
    given = {name: value for name, value in bound.items() if name in relevant}
    others: dict[str, set[str]] = {}
    for key in pool:
        if len(apart := _apart(key, given)) == 1:
            ((name, value),) = apart
            others.setdefault(name, set()).add(value)
    for name, values in sorted(others.items()):
        for value in sorted(values):
            if is_same_value(given[name], value):
                return UnknownValueError(
                    f"no {what} has {name}={given[name]}, but one has {name}={value}, which is the same type",
                    code="plan-unknown-value-spelling",
                    hint=f"spell {name} in one way in all matrices of the family",
                )
    first = [f"{name}={given[name]}" for name in sorted(others)]
    rest = [f"{name}={value}" for name, value in sorted(given.items()) if name not in others]
    listed = " with ".join(", ".join(part) for part in (first, rest) if part)
    choices = ", or ".join(describe_choice(name, values) for name, values in sorted(others.items()))
    return UnknownValueError(
        f"no {what} has {listed}",
        code="plan-unknown-value-combination",
        hint=f"give {choices} instead" if choices else "`jitlto ls DB` lists the combinations that exist",
    )


def _apart(key: FragmentKey, configuration: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the parameters of a key that contradict a configuration."""
    return [(name, value) for name, value in key.parameters if configuration.get(name, value) != value]


def name_of(owner: Fragment | UserSymbols) -> str:
    """Return the name of a fragment or a caller's input in messages."""
    return owner.key.text if isinstance(owner, Fragment) else owner.name


def missing(
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
        return no_value(f"provider of {wanted}", candidates, bound)
    for item in supplied:
        if found := _find_overload({theirs.name for theirs in item.provides}, [symbol.name], base_name):
            return _mismatch(item.name, *found)
    check_inputs_used(index, supplied, index.required, [symbol.name])
    what, runtime = f"nothing provides {wanted}, which {name_of(requirer)} requires", missing_symbol_hint(symbol.name)
    if runtime:
        return MissingProviderError(what, code="plan-missing-provider-device-runtime", hint=runtime)
    others = ", ".join(item.name for item in supplied)
    hint = "supply it: planner.add_source(text), or --source FILE on the command line"
    return MissingProviderError(what, hint=f"{others} does not define it" if others else hint)


def check_inputs_used(index: Index, supplied: Sequence[UserSymbols], required: Set[str], likely: Sequence[str]) -> None:
    """Check that each input provides a required symbol, and no other overload of a likely one in its place.

    Otherwise a name or a type is probably misspelled, and fragments would be linked in its place. An overload beside
    the right one is the caller's affair. ``likely`` are the symbols that an input was most likely meant to provide.

    Raises:
        InterfaceMismatchError, PlanError: If one does not.
    """
    right = {symbol.name for item in supplied for symbol in item.provides} & required
    for item in supplied:
        theirs = {symbol.name for symbol in item.provides}
        if item.opaque:
            continue
        if theirs & required:
            taken = set(map(qualified_name, right))
            wanted = [name for name in likely if qualified_name(name) not in taken]
            found = _find_overload(theirs - required, wanted, qualified_name)
        else:
            found = _find_overload(theirs, [*likely, *sorted(index.required)], base_name)
        if found:
            raise _mismatch(item.name, *found)
        if theirs & required:
            continue
        defined = ", ".join(map(demangle, sorted(theirs))) or "nothing"
        called = ", ".join(map(demangle, sorted(index.required))) or "nothing"
        raise PlanError(
            f"provides nothing that the plan requires; it defines {defined}",
            code="plan-unused-input",
            where=item.name,
            hint=f"the family's fragments call {called}",
        )


def _find_overload(names: Set[str], wanted: Sequence[str], called: Callable[[str], str]) -> tuple[str, str] | None:
    """Return the first of some symbols that is called as a wanted one is, and that one."""
    # Of thousands of symbols only those are demangled that may have such a name: one that is no operator's is in them.
    bases = {base_name(name) for name in wanted}
    alike = re.compile("|".join(map(re.escape, bases)) if all(map(str.isidentifier, bases)) else "")
    found = {called(name): name for name in sorted(filter(alike.search, names), reverse=True)} if wanted else {}
    return next(((found[name], each) for each in wanted if (name := called(each)) in found), None)


def _mismatch(input_name: str, defined: str, required: str) -> InterfaceMismatchError:
    found, wanted = demangle(defined), demangle(required)
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
    return InterfaceMismatchError(f"defines {found}, but the kernel calls {wanted}", where=input_name, hint=hint)
