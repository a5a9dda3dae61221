"""Interfaces: one text for both sides of each, and definitions that are what they declare.

Every source of a family is compiled behind all its interfaces (:func:`jitlto.record.headers.interfaces_first`), so the
front end finds what contradicts them. Here is what it does not find.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from jitlto.base.errors import BuildError, FamilyError
from jitlto.base.mangling import demangle
from jitlto.base.text import suggest
from jitlto.build.cache.keys import CompileConfig
from jitlto.compile.declarations import (
    Conflict,
    find_conflicts,
    line_of,
    read_declarations,
    undefined_types,
    words,
)
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import RenderedSource
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey
from jitlto.record.headers import interfaces_first
from jitlto.record.options import option_macros

# Types that NVIDIA's headers define, or only declare.
_OF_TOOLKIT = re.compile(r"__\w+|CU\w+_st\b|cuda\w+|(?:cuda|cub|thrust|nvcuda|cooperative_groups)::")
_REMEDY = {
    "macro": "define it for the whole family, in {header} or with -D in [family] options; "
    "or make what depends on it a template parameter of the interface",
    "undef": "remove that; if nothing behind the interfaces is to see the macro, undefine it at the end of {header}",
    "specialisation": "move the specialisation into {header}, so that both sides see it",
    "overload": "declare the overload in {header}, so that both sides see it, or give it another name",
    "definition": "move the definition into {header}; a type that is opaque is defined nowhere",
}
_CODES = {
    "macro": "build-interface-macro",
    "undef": "build-interface-macro",
    "specialisation": "build-interface-specialisation",
    "overload": "build-interface-specialisation",
    "definition": "build-interface-definition",
}
_DOES = {
    "macro": "defines the macro {name}, which",
    "undef": "undefines the macro {name}, which",
    "specialisation": "specialises {name}, which",
    "overload": "overloads {name}, which",
    "definition": "defines {name}, which",
}

#: How the interfaces and the source of a fragment declare a symbol, for messages; a merge does not know.
Show: TypeAlias = Callable[[FragmentKey, str], str]


class InterfaceRules:
    """The authors' headers that the interfaces of one family reach, and whether its sources leave their meaning alone.

    Args:
        family: The declaration.
        config: How any of its sources is compiled.

    Raises:
        BuildError: A type is only declared, or a group alone defines a macro that an interface mentions.
    """

    def __init__(self, family: FamilyDeclaration, config: CompileConfig) -> None:
        self._family, self._config = family, config
        self._headers = config.own_closure(interfaces_first(config.interfaces)).headers
        self._clean: set[bytes] = set()
        self._check_types()
        self._check_variables()
        self._check_groups()

    def check(self, rendered: RenderedSource) -> None:
        """Check a source and its own headers.

        Raises:
            BuildError: It defines a macro that the interfaces mention, specialises a template of theirs or defines a
                type that they only declare.
        """
        if not self._headers:
            return
        for name, text in own_texts(rendered, self._config).items():
            if text in self._clean:
                continue
            if conflict := next(find_conflicts(text, self._headers), None):
                raise self._error(conflict, f"{name}:{conflict.line_in(text)}", rendered.origin)
            self._clean.add(text)

    def _error(self, conflict: Conflict, place: str, where: str) -> BuildError:
        mention = conflict.mention(self._headers)
        what = f"{place} {_DOES[conflict.kind].format(name=conflict.name)} the interfaces mention ({mention})"
        hint = _REMEDY[conflict.kind].format(header=conflict.header)
        return BuildError(what, code=_CODES[conflict.kind], where=where, hint=hint)

    def _check_types(self) -> None:
        texts = self._headers.values()
        self._check_opaque()
        opaque = {name for each in (self._family, *self._family.all_used().values()) for name in each.opaque}
        for name in sorted(undefined_types(texts) - opaque):
            if _OF_TOOLKIT.match(name) or self._is_in_toolkit(name):
                continue
            header = next(h for h, text in self._headers.items() if name.rpartition("::")[2] in words(text))
            raise BuildError(
                f"{header}:{line_of(self._headers[header], name)} declares {name}, and no interface defines it",
                code="build-interface-incomplete",
                where=str(self._family.path),
                hint=f'define it there; or, if no fragment looks into it, write [family] opaque = ["{name}"]',
            )

    def _is_in_toolkit(self, name: str) -> bool:
        """Return whether a header of the toolkit that the interfaces include defines a type."""
        every = b"\0".join(self._config.closure(interfaces_first(self._config.interfaces)).headers.values())
        word = re.escape(name.rpartition("::")[2]).encode()
        return bool(re.search(rb"\b(?:struct|class|union|enum)\b[^;(){}]*\b" + word + rb"\b[^;(){}]*\{", every))

    def _check_opaque(self) -> None:
        known = set(undefined_types(self._headers.values()))
        for text in self._headers.values():
            known |= read_declarations(text).declared | read_declarations(text).defined
        for name in sorted(set(self._family.opaque) - known):
            raise FamilyError(
                f"[family] opaque names {name}, a type that no interface declares",
                code="family-opaque",
                where=str(self._family.path),
                hint=suggest(name, sorted(known), "remove it, or write its name with its namespaces"),
            )

    def _check_variables(self) -> None:
        for header, text in self._headers.items():
            for name in sorted(read_declarations(text).internal):
                line = line_of(text, name)
                raise BuildError(
                    f"{header}:{line} defines the variable {name}, of which every source then has one of its own",
                    code="build-interface-variable",
                    where=str(self._family.path),
                    hint="declare it extern there and define it in one group, or make it const",
                )

    def _check_groups(self) -> None:
        """Check that no option of a group alone defines a macro that the interfaces mention."""
        families = (self._family, *self._family.all_used().values())
        groups = [(family, group) for family in families for group in family.groups]
        mentioned = {word: name for name, text in self._headers.items() for word in words(text)}
        for family, group in groups:
            for macro, option in option_macros(group.options).items():
                if header := mentioned.get(macro):
                    place = f"option {option} of {family.name}/{group.name}"
                    kind = "undef" if option.startswith(("-U", "--undef")) else "macro"
                    raise self._error(Conflict(kind, macro, header), place, str(family.path))


def check_interfaces(
    family: FamilyRecord,
    fragments: Sequence[Fragment],
    faults: Iterable[tuple[str, str, str]],
    where: Callable[[FragmentKey], str | None] = lambda _: None,
    show: Show = lambda *_: "",
) -> None:
    """Check that what fragments require of each other is declared in interfaces.

    Args:
        faults: What the compiler did not find declared, see :class:`jitlto.build.interface_proof.InterfaceProof`.
        where: Tells where a fragment comes from; a merge does not know.
        show: See :data:`Show`.

    Raises:
        BuildError: A fragment requires a symbol of a group that has no interface, or that its interface does not
            declare.
    """
    providers: dict[str, dict[str, Fragment]] = defaultdict(dict)  # one of each group, whose interface all have
    for fragment in fragments:
        for symbol in fragment.provides:
            providers[symbol.name].setdefault(fragment.key.group, fragment)
    undeclared = {(owner, name) for owner, name, _ in faults}
    for fragment in fragments:
        for symbol in fragment.requires:
            for provider in providers[symbol.name].values():
                group = family.group(provider.key.group)
                if group is None or group.interface == "":  # declared as meant to have none
                    continue
                what = f"{fragment.key} requires {demangle(symbol.name)} of {provider.key}"
                if group.interface is None:
                    raise BuildError(
                        f"{what}, whose group {group.name} has no interface",
                        code="build-no-interface",
                        hint="declare it in a header that both include, and name that in the group's table: "
                        f'interface = "{group.name}.cuh"; or write interface = false, and only its layout is compared',
                    )
                if (fragment.key.family, symbol.name) in undeclared:
                    raise BuildError(
                        f"{what}, and the interface {group.interface} does not declare it"
                        f"{show(fragment.key, symbol.name)}",
                        code="build-interface-undeclared",
                        where=where(fragment.key),
                        hint="declare it there and nowhere else",
                    )


def path_of(config: CompileConfig, header: str) -> str:
    """Return the path of a header of a family; its name where it has none."""
    return str(config.own.path(header) or header)


def own_texts(rendered: RenderedSource, config: CompileConfig) -> dict[str, bytes]:
    """Return a source and those of its own headers that are no interfaces', by name."""
    interfaces = config.own_closure(interfaces_first(config.interfaces)).headers
    headers = config.own_closure(rendered.source).headers
    own = {name: text for name, text in headers.items() if name not in interfaces}
    return {f"{rendered.key}.cu": rendered.text.encode(), **own}
