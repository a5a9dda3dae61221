"""Keys of ``family.toml`` with rules of their own: link options, exclusions, structures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import msgspec

from jitlto.base.errors import JitltoError
from jitlto.base.layouts import canonical_spelling, format_definition, parse_definitions
from jitlto.base.text import suggest
from jitlto.base.toml_reader import TomlTable
from jitlto.record.family_record import Exclusion
from jitlto.record.options import LinkOptions


def read_link(table: TomlTable) -> LinkOptions:
    """Read the link options of a family."""
    for option, value in table.values.items():
        if isinstance(value, int) and abs(value) >= 1 << 31:
            raise table.error(f"{option} does not fit into 32 bits", case="link-option")
    try:
        return LinkOptions.from_mapping(table.values)
    except JitltoError as error:
        raise table.error(error.what, error.hint, case="link-option") from None


def read_exclusions(
    table: TomlTable, exclude: Iterable[Mapping[str, str]], key: Sequence[str]
) -> tuple[Exclusion, ...]:
    """Check and sort the exclusions of a group with this ``key``."""
    found = [tuple(sorted(each.items())) for each in exclude]
    for exclusion in found:
        described = "{" + ", ".join(f'{name} = "{value}"' for name, value in exclusion) + "}"
        for name, _ in exclusion:
            if name not in key:
                hint = suggest(name, key, f"key is {list(key)}") if key else f'write key = ["{name}"] in this table'
                raise table.error(f"exclude {described} names {name!r}, which is not in key", hint, case="exclude")
        if not exclusion or found.count(exclusion) > 1:
            fault = "repeated" if exclusion else "empty, and would exclude everything"
            raise table.error(f"exclude {described} is {fault}", "remove it", case="exclude")
    return tuple(sorted(found))


class _StructTable(msgspec.Struct):
    fields: tuple[str, ...]
    align: int = 1


def read_structures(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Read the fields of structures; return the name of each, and its definition behind those that it may need."""
    declared: dict[str, str] = {}  # definition by name
    inner: dict[str, list[str]] = {}  # the structures in each
    for name in table.values:
        each = table.table(name)
        given = each.decode(_StructTable)
        if given.align < 1 or given.align & given.align - 1:
            raise each.error(f"align = {given.align} is no power of two", case="struct")
        if not name.strip() or any(set(text) & set("{};") for text in (name, *given.fields)):
            hint = 'write a name as in C++, and a list of fields, such as ["float scale", "int sizes[3]"]'
            raise each.error("invalid name or field", hint, case="struct")
        declared[name] = format_definition(name, given.fields, given.align)
        bases = [canonical_spelling(re.sub(r"\w+\s*(\[.*)?;?\s*$", "", field)) for field in given.fields]
        inner[name] = [other for other in table.values if canonical_spelling(other) in bases]
    found, definitions = [], ""
    name = ""
    try:
        for name in TopologicalSorter(inner).static_order():
            definitions = f"{definitions} {declared[name]}".lstrip()
            parse_definitions(definitions)
            found.append((name, definitions))
    except CycleError as error:
        name = error.args[1][0]
        raise table.table(name).error(f"{name} contains itself", case="struct") from None
    except ValueError as error:
        hint = "write fields as in C++; declare structures in it too; for an enum write its integer type"
        raise table.table(name).error(str(error), hint, case="struct") from None
    return tuple(sorted(found))
