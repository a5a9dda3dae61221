"""Keys of ``family.toml`` with rules of their own: link options and exclusions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jitlto.base.errors import JitltoError
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
