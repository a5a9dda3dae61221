"""Records of a database beside its fragments: families, groups, and parts of a sharded build."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, structs

from jitlto.base.cached import cached_property
from jitlto.base.mangling import base_name
from jitlto.base.versions import Architecture
from jitlto.record.fragment import Count, Fragment, Name, Role, Values, agrees
from jitlto.record.options import LinkOptions
from jitlto.record.tuning import TuneRecord

# Comments and includes: they declare nothing. A text, which re compiles at its first use.
_NO_DECLARATION = r"(?sm)//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[^\n]*"


class GroupRecord(Struct, frozen=True, omit_defaults=True):
    """A group's declaration: name, role, key parameters and interface header.

    Args:
        supplied: Whether callers supply its definition at run time.
        tune: What may be chosen by measuring; entrypoints only, None if nothing is declared.
        sass_registers: Most registers that a thread of its cubins may use.
    """

    name: Name
    role: Role
    key: tuple[Name, ...]
    interface: str | None
    supplied: bool
    tune: TuneRecord | None = None
    sass_registers: Count | None = None


class InterfaceHeaders(Struct, frozen=True):
    """Those headers of a family's interfaces that are not the same for all its fragments, for one choice of values."""

    values: Values  # of parameters that every group of the family has in its key
    headers: tuple[tuple[str, str], ...]  # name and text; sorted


class FamilyRecord(Struct, frozen=True, omit_defaults=True, dict=True):
    """What the run side needs of a family's declaration.

    Args:
        name: The family's name.
        options: Compiler options for a user's own source.
        link: Options of every link.
        architectures: The architectures of its LTO-IR, sorted.
        groups: Sorted by name.
        headers: Name and text of the family's own headers that its interfaces include, sorted; those that are the same
            for all fragments.
        uses: The families whose device groups its kernels may contain, also those that these use; sorted.
        version: The author's version of what callers see; empty if none is declared.
        interfaces: The names of the interfaces in the order in which they precede every source, callers' included.
        choices: The other headers for each choice of values of which a fragment is; empty if there are no others.
        differs: What in the interfaces means something else in callers' sources than in fragments; empty for nothing.
    """

    name: Name
    options: tuple[str, ...]
    link: LinkOptions
    architectures: tuple[Architecture, ...]
    groups: tuple[GroupRecord, ...]
    headers: tuple[tuple[str, str], ...]
    uses: tuple[Name, ...] = ()
    version: str = ""
    interfaces: tuple[str, ...] = ()
    differs: str = ""
    choices: tuple[InterfaceHeaders, ...] = ()

    @cached_property
    def texts(self) -> dict[str, bytes]:
        """The text of each of its headers, by name."""
        return {name: text.encode("utf-8", "surrogateescape") for name, text in self.headers}

    @property
    def common(self) -> tuple[str, ...]:
        """The parameters on which its interfaces depend, of which all fragments of a plan have the same values."""
        return tuple(name for name, _ in self.choices[0].values) if self.choices else ()

    def choose(self, values: Mapping[str, str]) -> FamilyRecord:
        """Return the record with the headers of the first choice that agrees with values; as it is if none does."""
        agreeing = (each.headers for each in self.choices if agrees(each.values, values))
        if (more := next(agreeing, None)) is None:
            return self
        return structs.replace(self, headers=tuple(sorted((*self.headers, *more))), choices=())

    def group(self, name: str) -> GroupRecord | None:
        """Return the group called ``name``, or None."""
        return next((group for group in self.groups if group.name == name), None)

    def supplied_groups(self) -> Callable[[str], tuple[GroupRecord, ...]]:
        """Return a function that tells the groups of a symbol which no fragment provides and callers supply, if any."""
        return self.groups_declaring([group.name for group in self.groups if group.supplied])

    def groups_declaring(self, names: Collection[str]) -> Callable[[str], tuple[GroupRecord, ...]]:
        """Return a function that tells in whose interface of some groups, and in no other's, a symbol's name occurs."""
        texts, groups = dict[str, str](), dict[str, list[GroupRecord]]()
        for name, text in (*self.headers, *(header for each in self.choices for header in each.headers)):
            texts[name] = f"{texts.get(name, '')}{text}\n"
        others = {group.interface for group in self.groups if group.name not in names}
        for group in self.groups:
            if group.interface and group.interface not in others:
                text = re.sub(_NO_DECLARATION, " ", texts.get(group.interface, ""))
                for word in {*re.findall(r"[A-Za-z_]\w*", text)}:
                    groups.setdefault(word, []).append(group)
        return lambda symbol: tuple(groups.get(base_name(symbol), ()))

    def for_callers_code(self, link_options: Mapping[str, object]) -> FamilyRecord:
        """Return the record by which callers' code is compiled for a plan with these link options.

        Raises:
            JitltoError: On an unknown option or a value of the wrong kind.
        """
        link, built = self.link.merge(link_options), self.link.compile_flags()
        if link.compile_flags() == built:
            return self
        own = [option for option in self.options if option not in built]
        return structs.replace(self, link=link, options=(*own, *link.compile_flags()))

    def with_used(self, families: Mapping[str, FamilyRecord]) -> FamilyRecord:
        """Return the record with the device groups of the families that it uses, as planning sees it.

        Args:
            families: At least those in ``uses``.
        """
        used = [group for name in self.uses for group in families[name].groups if group.role is Role.DEVICE]
        if not used:
            return self
        return structs.replace(self, groups=tuple(sorted((*self.groups, *used), key=lambda group: group.name)))

    def select(self, fragments: Iterable[Fragment]) -> list[Fragment]:
        """Return the fragments that this family's plans may contain, sorted by key: its own, and used device ones."""
        own = [
            f for f in fragments if f.key.family == self.name or (f.key.family in self.uses and f.role is Role.DEVICE)
        ]
        return sorted(own, key=lambda fragment: fragment.key)


class PartRecord(Struct, frozen=True):
    """Record of a part of a sharded build, for merging.

    Args:
        number, count: Part ``number`` of ``count``, counted from 1.
        whole: SHA-256 of the content of the whole build, the same in all parts that belong together.
        fragments: How many fragments the whole build has.
        toolchains: Each family's name and the identity of its compiler; sorted.
        faults: What no interface declares as its fragments require it: family and symbol; sorted.
        advice: The build's advice on the families' matrices.
    """

    number: Count
    count: Count
    whole: str
    fragments: Count
    toolchains: tuple[tuple[str, str], ...]
    faults: tuple[tuple[Name, str], ...]
    advice: tuple[str, ...]

    def __str__(self) -> str:
        return f"part {self.number} of {self.count}"
