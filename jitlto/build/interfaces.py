"""Interfaces: one text for both sides of each, and definitions that are what they declare.

Every source of a family is compiled behind all its interfaces (:func:`jitlto.record.headers.interfaces_first`), so the
front end finds what contradicts them. Here is what it does not find.
"""

import re

from jitlto.base.diagnostic import Diagnostic, Location
from jitlto.base.errors import BuildError, FamilyError
from jitlto.base.text import suggest
from jitlto.base.toml_reader import find_place
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
from jitlto.record.options import option_macros

# Types that NVIDIA's headers define, or only declare.
_OF_TOOLKIT = re.compile(
    r"__\w+|CU\w+_st\b|cuda\w+|(?:cuda|cub|thrust|nvcuda|cooperative_groups)::"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]\b|dim3\b"
)
#: Of each kind of conflict: the end of its error's code, what the source does, and the remedy.
_KINDS = {
    "macro": ("macro", "defines the macro", "define it in {} or in [family] options, or use a template parameter"),
    "undef": ("macro", "undefines the macro", "remove that, or undefine it at the end of {}"),
    "specialisation": ("specialisation", "specialises", "move it into {}, so that both sides see it"),
    "overload": ("specialisation", "overloads", "declare it in {}, so that both sides see it, or give it another name"),
    "definition": ("definition", "defines", "move the definition into {}; a type that is opaque is defined nowhere"),
}


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
        self._headers = config.interface_headers()
        self._clean: set[bytes] = set()
        self._check_types()
        self._check_groups()

    def check(self, rendered: RenderedSource) -> None:
        """Check a source and its own headers.

        Raises:
            BuildError: It defines a macro that the interfaces mention, specialises a template of theirs or defines a
                type that they only declare.
        """
        for name, text in self._config.own_texts(rendered).items() if self._headers else ():
            if text not in self._clean:
                if conflict := next(find_conflicts(text, self._headers), None):
                    line = conflict.line_in(text)
                    place = rendered.place_in(name, line) or place_of(self._config, name, line)
                    raise self._error(conflict, "", place)
                self._clean.add(text)

    def _error(self, conflict: Conflict, by: str, where: Location) -> BuildError:
        code, does, hint = _KINDS[conflict.kind]
        mention = place_of(self._config, conflict.header, line_of(self._headers[conflict.header], conflict.name))
        what = f"{by}{does} {conflict.name}, which the interfaces mention"
        notes, hint = [Diagnostic.note(mention, "mentions it")], hint.format(conflict.header)
        return BuildError(what, code=f"build-interface-{code}", where=where, hint=hint, notes=notes)

    def _check_types(self) -> None:
        """Check that types are defined or opaque, and that no variable is each source's own."""
        every = {h: read_declarations(text) for h, text in self._headers.items()}
        undefined = undefined_types(self._headers.values())
        known = undefined.union(*(each.declared | each.defined for each in every.values()))
        # What an interface does not declare for some values, it may for others.
        own = self._family.opaque
        for name in sorted(set(own) - known) if not self._config.values else ():
            what = f"opaque names {name}, a type that no interface declares"
            hint = suggest(name, sorted(known), "remove it, or write its name with its namespaces")
            where = find_place(self._family.path, ("family",), "opaque", own.index(name))
            raise FamilyError(what, code="family-opaque", where=where, hint=hint)
        opaque = {*own, *(name for each in self._family.all_used().values() for name in each.opaque)}
        for name in sorted(undefined - opaque):
            if not _OF_TOOLKIT.match(name):
                header = next(h for h, text in self._headers.items() if name.rpartition("::")[2] in words(text))
                place = place_of(self._config, header, line_of(self._headers[header], name))
                what = f"declares {name}, and no interface defines it"
                hint = f'define it there; or, if no fragment looks into it, write [family] opaque = ["{name}"]'
                raise BuildError(what, code="build-interface-incomplete", where=place, hint=hint)
        for header, name in ((header, name) for header, read in every.items() for name in sorted(read.internal)):
            place = place_of(self._config, header, line_of(self._headers[header], name))
            what = f"defines the variable {name}, of which every source then has its own"
            hint = "declare it extern there and define it in one group, or make it const"
            raise BuildError(what, code="build-interface-variable", where=place, hint=hint)

    def _check_groups(self) -> None:
        """Check that no option of a group alone defines a macro that the interfaces mention."""
        mentioned = {word: name for name, text in self._headers.items() for word in words(text)}
        for family in (self._family, *self._family.all_used().values()):
            for group in family.groups:
                for macro, option in option_macros(group.options).items():
                    if header := mentioned.get(macro):
                        kind = "undef" if option.startswith(("-U", "--undef")) else "macro"
                        by = f"option {option} of {family.name}/{group.name} "
                        where = family.place(group, "options", group.options.index(option))
                        raise self._error(Conflict(kind, macro, header), by, where)


def place_of(config: CompileConfig, header: str, line: int) -> Location:
    """Return the place of a line of a header; of a generated one, that in its template."""
    if header in config.generated:
        return config.generated.place(header, line)
    return Location(str(config.own.path(header) or header), line)
