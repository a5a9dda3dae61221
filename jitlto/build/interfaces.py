"""Interfaces: whether both sides of one include it, and whether what a fragment defines is what it declares."""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from jitlto.errors import BuildError, CompileError
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Fragment, FragmentKey, Symbol
from jitlto.model.mangling import base_name, demangle
from jitlto.model.resolve import agrees

# What NVRTC and nvcc say where a definition contradicts a declaration that they have read before.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone"
    r"|more than one instance of overloaded function"
    r"|declaration is incompatible with"
)
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.S | re.M)
_DECLARED = re.compile(r"(?!__\w+__\b)\b([A-Za-z_]\w*)\s*[(\[;=]")


def check_interfaces(
    family: FamilyRecord, fragments: Sequence[Fragment], includes: Mapping[FragmentKey, frozenset[str]]
) -> None:
    """Check that types are the same on both sides of every interface, which names and layouts alone do not show.

    Args:
        includes: The headers that the source of each fragment includes, in no ``#if``.

    Raises:
        BuildError: A fragment requires a symbol of a group that has no interface or of an interface that it does not
            include, or defines a function of other types than its interface declares.
    """
    providers: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        for symbol in fragment.provides:
            providers[symbol.name].append(fragment)
    for fragment in fragments:
        for symbol in fragment.requires:
            for provider in providers.get(symbol.name, ()):
                _check_included(family, fragment, symbol, provider, includes[fragment.key])
    _check_types(family, fragments, providers)


def _check_included(
    family: FamilyRecord, fragment: Fragment, symbol: Symbol, provider: Fragment, included: frozenset[str]
) -> None:
    group = family.group(provider.key.group)
    if group is None or group.interface == "":  # declared as meant to have none
        return
    what = f"{fragment.key} requires {demangle(symbol.name)}"
    if group.interface is None:
        raise BuildError(
            f"{what} of {provider.key}, whose group {group.name} has no interface",
            code="build-no-interface",
            hint="declare it in a header that both include, and name that in the group's table: "
            f'interface = "{group.name}.cuh"; or write interface = false, and only its layout is compared',
        )
    header = os.path.normpath(group.interface)
    if header not in included:
        what += f" but does not include its interface {header}"
        hint = f'#include "{header}", in no #if, instead of declaring it again, so that its types are checked'
        raise BuildError(what, code="build-interface-not-included", hint=hint)


def _check_types(
    family: FamilyRecord, fragments: Sequence[Fragment], providers: Mapping[str, Sequence[Fragment]]
) -> None:
    """Check that no fragment defines what nothing requires, in place of what its interface declares.

    Another instance of a template is no mistake: callers may bring the one that is missing.
    """
    required = {symbol.name for fragment in fragments for symbol in fragment.requires}
    supplied = " ".join(text for name, text in family.headers if name in _supplied(family))
    unmet: dict[str, list[tuple[str, Fragment]]] = defaultdict(list)
    for fragment in fragments:
        for symbol in fragment.requires:
            if symbol.name not in providers and not re.search(rf"\b{re.escape(base_name(symbol.name))}\b", supplied):
                unmet[_instance(symbol.name)].append((symbol.name, fragment))
    for fragment in fragments if unmet else ():
        group = family.group(fragment.key.group)
        if group is None or not group.interface or any(symbol.name in required for symbol in fragment.provides):
            continue
        for symbol in fragment.provides:
            for name, requirer in unmet.get(_instance(symbol.name), ()):
                if agrees(requirer.key, dict(fragment.key.parameters)):
                    raise BuildError(
                        f"{fragment.key} defines {demangle(symbol.name)}, which nothing requires; {requirer.key} "
                        f"requires {demangle(name)} of its interface {group.interface}, which nothing defines",
                        code="build-interface-mismatch",
                        hint=f"define it with the namespace, types and linkage that {group.interface} declares",
                    )


def _instance(name: str) -> str:
    """The name of a function or variable with its template arguments, but without namespaces and types."""
    text, base = demangle(name), base_name(name)
    end = start = max(0, text.find(base))
    depth = 0
    for end in range(start, len(text) + 1):
        character = text[end : end + 1]
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character in ("(", "") and depth == 0:
            break
    return text[start:end]


def _supplied(family: FamilyRecord) -> set[str]:
    return {group.interface for group in family.groups if group.supplied and group.interface}


def explain_contradiction(error: CompileError, header: str, text: str) -> None:
    """Give a compile error of a definition that contradicts an interface a hint with what the interface declares.

    Args:
        error: With the compiler's log, which shows the definition.
        header: The interface.
        text: Its content.
    """
    contradiction = _CONTRADICTION.search(error.log)
    if contradiction is None:
        return
    words = set(re.findall(r"\w+", error.log[contradiction.start() :]))
    for statement in re.findall(r"[^;{}]*;", _NO_CODE.sub(" ", text)):
        declared = _DECLARED.search(statement)
        if declared and declared[1] in words:
            error.hint = (
                f"its interface {header} declares `{' '.join(statement.split())}`: define it with the same types"
            )
            return
