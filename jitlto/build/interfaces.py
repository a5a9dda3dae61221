"""Interfaces: whether both sides of one include it, and whether what a fragment defines is what it declares."""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from jitlto.build.cache.keys import CompileConfig
from jitlto.build.interface_macros import architecture_line, lines_of
from jitlto.build.templates import RenderedSource
from jitlto.errors import BuildError, CompileError
from jitlto.model.family_record import FamilyRecord, Includes
from jitlto.model.fragment import Fragment, FragmentKey, Role, Symbol
from jitlto.model.mangling import base_name, demangle
from jitlto.model.resolve import agrees

# What NVRTC and nvcc say where a declaration contradicts a definition.
_CONTRADICTION = re.compile(
    r"cannot overload functions distinguished by return type alone"
    r"|more than one instance of overloaded function"
    r"|declaration is incompatible with"
    r"|linkage specification is incompatible with"
    r"|function .* cannot be instantiated -- no template definition was supplied"
)
# And where a name is not declared.
_UNDECLARED = re.compile(
    r'identifier "(\w+)" is undefined'
    r'|namespace .* has no member "(\w+)"'
    r"|name must be a namespace name\n.*namespace (\w+)"
    r"|error: (\w+) is not a (?:class or function )?template"
)
_BRACKET = re.compile(r"[<>(]")
_STATEMENT = re.compile(r"[^;{}]*[;{]")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.S | re.M)
_DECLARED = re.compile(r"(?!__\w+__\b)\b([A-Za-z_]\w*)\s*[(\[;=]")


def check_interfaces(
    family: FamilyRecord, fragments: Sequence[Fragment], includes: Mapping[FragmentKey, Includes]
) -> None:
    """Check that types are the same on both sides of every interface, which names and layouts alone do not show.

    Args:
        includes: What the source of each fragment includes. The requirements of others are not checked: they are of
            complete databases, and were checked when these were built.

    Raises:
        BuildError: A fragment requires a symbol of a group that has no interface or of an interface that it does not
            include, or defines a function of other types than its interface declares; or the two sides of an interface
            define another macro before it.
    """
    providers: dict[str, list[Fragment]] = defaultdict(list)
    one_by_group: dict[str, dict[str, Fragment]] = defaultdict(dict)  # whose interface all the others have too
    for fragment in fragments:
        for symbol in fragment.provides:
            providers[symbol.name].append(fragment)
            one_by_group[symbol.name].setdefault(fragment.key.group, fragment)
    for fragment in fragments:
        for symbol in fragment.requires if fragment.key in includes else ():
            for provider in one_by_group[symbol.name].values():
                _check_included(family, fragment, symbol, provider, includes[fragment.key])
    _check_macros(family, fragments, providers, includes)
    _check_types(family, fragments, providers)


def _check_included(
    family: FamilyRecord, fragment: Fragment, symbol: Symbol, provider: Fragment, included: Includes
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
    if header not in included.headers:
        what += f" but does not include its interface {header}"
        hint = f'#include "{header}", in no #if, instead of declaring it again, so that its types are checked'
        raise BuildError(what, code="build-interface-not-included", hint=hint)


def _check_macros(
    family: FamilyRecord,
    fragments: Sequence[Fragment],
    providers: Mapping[str, Sequence[Fragment]],
    includes: Mapping[FragmentKey, Includes],
) -> None:
    """Check that macros on which an interface depends are the same on both of its sides, callers' code included."""
    if not any(found.macros for found in includes.values()):
        return
    groups = {group.name: group for group in family.groups if group.interface}
    supplied = _supplied(family)
    for fragment in fragments:
        mine = includes.get(fragment.key, Includes()).macros
        for symbol in fragment.requires if fragment.key in includes else ():
            for provider in providers[symbol.name]:
                group = groups.get(provider.key.group)
                if group is None or provider.key not in includes or not _may_meet(fragment, provider):
                    continue
                header = group.interface or ""
                if differing := lines_of(header, mine) ^ lines_of(header, includes[provider.key].macros):
                    line = min(differing)
                    what = f"only one of {fragment.key} and {provider.key} has `{line}`, on which {header} depends"
                    raise _macro_error(what, header)
        for header in supplied if fragment.role is Role.ENTRYPOINT else ():
            # Callers' code is compiled as the family is, though always by NVRTC.
            lines = {line for line in lines_of(header, mine) if line.startswith(("#", "archs"))}
            if others := lines - {architecture_line(family.architectures)}:
                what = f"{fragment.key} has `{min(others)}`, on which {header} depends, and callers' code has not"
                raise _macro_error(what, header)


def _may_meet(fragment: Fragment, provider: Fragment) -> bool:
    return agrees(provider.key, dict(fragment.key.parameters))


def _macro_error(what: str, header: str) -> BuildError:
    hint = f"define it in {header} or behind its include, or declare it under [family] for both (as -D, archs or std)"
    return BuildError(what, code="build-interface-macro", hint=hint)


def _check_types(
    family: FamilyRecord, fragments: Sequence[Fragment], providers: Mapping[str, Sequence[Fragment]]
) -> None:
    """Check that no fragment defines what nothing requires, in place of what its interface declares.

    It does if nothing defines that, or another fragment of its group: a plan could then take that one instead. Another
    instance of a template is no mistake: callers may bring the one that is missing. In a family that this one uses, nor
    is an overload that only others call. A fragment that also defines something required is accepted, unless one
    fragment requires both.
    """
    required: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        for symbol in fragment.requires:
            required[symbol.name].append(fragment)
    supplied = " ".join(text for name, text in family.headers if name in _supplied(family))
    alike: dict[str, list[str]] = defaultdict(list)
    for name in required:
        if name in providers or not re.search(rf"\b{re.escape(base_name(name))}\b", supplied):
            alike[_instance(name)].append(name)
    for fragment in fragments:
        group = family.group(fragment.key.group)
        if group is None or not group.interface:
            continue
        provided = {symbol.name for symbol in fragment.provides}
        useful = provided & required.keys()
        for symbol in fragment.provides:
            names = alike.get(_instance(symbol.name), ())
            for name in names if provided.isdisjoint(names) else ():
                is_own = fragment.key.family == family.name
                others = [o for o in providers.get(name, ()) if is_own and o.key.group == group.name]
                requirers = (r for r in required[name] if agrees(r.key, dict(fragment.key.parameters)))
                requirer = next((r for r in requirers if not useful or _requires_any(r, useful)), None)
                if requirer is not None and (others or name not in providers):
                    raise _mismatch(group.interface, fragment, symbol.name, requirer, name, others)


def _requires_any(fragment: Fragment, names: set[str]) -> bool:
    return any(symbol.name in names for symbol in fragment.requires)


def _mismatch(
    interface: str, fragment: Fragment, defined: str, requirer: Fragment, name: str, others: Sequence[Fragment]
) -> BuildError:
    ours, theirs = demangle(defined), demangle(name)
    if ours == theirs:  # templates with different types in their declarations
        ours, theirs = f"{ours} ({defined})", f"{theirs} ({name})"
    definer = f"{others[0].key} defines" if others else "nothing defines"
    return BuildError(
        f"{fragment.key} defines {ours}, which nothing requires; {requirer.key} requires {theirs} of its interface "
        f"{interface}, which {definer}",
        code="build-interface-mismatch",
        hint=f"define it with the namespace, types and linkage that {interface} declares",
    )


def _instance(name: str) -> str:
    """The name of a function or variable with its template arguments, but without namespaces and types."""
    text, base = demangle(name), base_name(name)
    start = max(0, text.find(base))
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += {"<": 1, ">": -1}.get(bracket[0], 0)
        if bracket[0] == "(" and depth == 0:
            return text[start : bracket.start()]
    return text[start:]


def _supplied(family: FamilyRecord) -> set[str]:
    return {group.interface for group in family.groups if group.supplied and group.interface}


def explain(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> None:
    """Give a compile error a hint if an interface of the family has to do with it.

    Either a definition contradicts the interface of its group, or the source does not include the interface that
    declares a name.

    Args:
        error: With the compiler's log.
        rendered: The source that does not compile.
        config: That of its family.
    """
    error.hint = (
        error.hint or _explain_contradiction(error, rendered, config) or _explain_undeclared(error, rendered, config)
    )


def _explain_contradiction(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> str | None:
    contradiction, interface = _CONTRADICTION.search(error.log), rendered.group.interface
    if contradiction is None or not interface:
        return None
    message, _, _ = error.log[contradiction.start() :].partition("\n\n")  # with the line of the source
    words = set(re.findall(r"\w+", message))
    source = config.own_closure(rendered.source)
    for statement in re.findall(r"[^;{}]*;", _code(source.headers.get(os.path.normpath(interface), b""))):
        declared = _DECLARED.search(statement)
        if declared and declared[1] in words:
            texts = [
                source.text,
                *(text for name, text in source.headers.items() if name != os.path.normpath(interface)),
            ]
            definition = next(filter(None, (_find_definition(text, declared[1]) for text in texts)), None)
            instead = f", but the source defines `{definition}`" if definition else ""
            declaration = " ".join(statement.split())
            return f"its interface {interface} declares `{declaration}`{instead}: define it with the same types"
    return None


def _find_definition(text: bytes, name: str) -> str | None:
    """Return the definition of a device function or variable without its body or value."""
    for statement in _STATEMENT.findall(_code(text)):
        head = statement.partition("=")[0].rstrip("{; \t\r\n")
        if re.search(rf"__(?:device|constant)__.*\b{name}\b", head, re.S) and (
            head != statement[:-1] or statement[-1] == "{"
        ):
            return " ".join(head.split())
    return None


def _explain_undeclared(error: CompileError, rendered: RenderedSource, config: CompileConfig) -> str | None:
    included = config.surely_included(rendered.text)
    for match in _UNDECLARED.finditer(error.log):
        name = next(filter(None, match.groups()))
        # The group's own interface may also include what declares the name.
        own = rendered.group.interface
        searched = [(own, list(config.own_closure(f'#include "{own}"\n').headers.values()))] if own else []
        searched += [(other, [config.own.find(other) or b""]) for other in config.interfaces]
        for interface, texts in searched:
            if os.path.normpath(interface) not in included and any(
                re.search(rf"\b{name}\b", _code(text)) for text in texts
            ):
                return f'#include "{interface}", which declares {name}'
    return None


def _code(text: bytes) -> str:
    return _NO_CODE.sub(" ", text.decode("utf-8", "replace"))
