"""Keys of ``family.toml`` with rules of their own: link options and structures."""

from __future__ import annotations

import msgspec

from jitlto.base.errors import JitltoError
from jitlto.base.layouts import format_definition, parse_definitions
from jitlto.base.toml_reader import TomlTable
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


class _StructTable(msgspec.Struct):
    fields: tuple[str, ...]
    align: int = 1


def read_structures(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Read the fields of structures; return the name of each, and its definition behind those declared before it."""
    found: list[tuple[str, str]] = []
    definitions = ""
    for name in table.values:
        each = table.table(name)
        given = each.decode(_StructTable)
        if given.align < 1 or given.align & given.align - 1:
            raise each.error(f"align = {given.align} is no power of two", case="struct")
        if not name.strip() or any(set(text) & set("{};") for text in (name, *given.fields)):
            hint = 'write a name as in C++, and a list of fields, such as ["float scale", "int sizes[3]"]'
            raise each.error("invalid name or field", hint, case="struct")
        definitions = f"{definitions} {format_definition(name, given.fields, given.align)}".lstrip()
        try:
            parse_definitions(definitions)
        except ValueError as error:
            hint = "write fields as in C++; declare their structures before; for an enum write its integer type"
            raise each.error(str(error), hint, case="struct") from None
        found.append((name, definitions))
    return tuple(sorted(found))
