"""The table ``tune`` of an entrypoint in ``family.toml``: free parameters, launch choices, link options, problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jitlto.base.errors import JitltoError
from jitlto.base.text import suggest
from jitlto.base.toml_reader import TomlTable
from jitlto.record.expressions import ExpressionError, names_in
from jitlto.record.fragment import is_name
from jitlto.record.options import LinkOptions
from jitlto.record.tuning import LAUNCH_NAMES, LINK_NAMES, TuneRecord

_MOST_BOUNDS = 256


@dataclass(frozen=True, slots=True)
class TuneDeclaration:
    """A table ``tune`` as declared."""

    record: TuneRecord  # all of it but the launch choices
    launch: Path | None  # the matrix of launch choices; None if callers decide how to launch
    where: str  # the file and the table, for messages


class _TuneTable(msgspec.Struct):
    free: tuple[str, ...] = ()
    default: dict[str, str] = {}
    sizes: dict[str, Any] = {}
    launch: str | None = None
    link: dict[str, Any] = {}
    when: tuple[str, ...] = ()
    tolerance: float = 0.0


def read_tune(table: TomlTable, find_file: Callable[[TomlTable, str, str, str], Path]) -> TuneDeclaration:
    """Read a table ``tune``; whether its names are those of parameters is checked when the family is built."""
    given = table.decode(_TuneTable)
    for name in (*given.free, *given.sizes):
        if not is_name(name) or name in LAUNCH_NAMES or [*given.free, *given.sizes].count(name) > 1:
            what = f"{name!r} is no name, stands for a part of the launch, or is given twice"
            raise table.error(what, f"the parts of a launch are {', '.join(LAUNCH_NAMES)}", case="tune")
    for name in given.default:
        if name not in given.free:
            hint = suggest(name, given.free, "list it in free, or remove it from default")
            raise table.error(f"default names {name!r}, which is not in free", hint, case="tune")
    for name in given.free:
        if name not in given.default:
            hint = f'write default = {{{name} = "..."}}: the value that is used where nothing was measured'
            raise table.error(f"free parameter {name!r} has no default", hint, case="tune")
    if not (given.free or given.launch or given.link):
        raise table.error("declares no choice", "give free, launch or link, or remove the table", case="tune")
    if not 0 <= given.tolerance < 1:
        raise table.error(f"tolerance = {given.tolerance} is not from 0 to 1", "0 means the same bits", case="tune")
    for text in given.when:
        try:
            names_in(text)
        except ExpressionError as error:
            hint = "write it with names, whole numbers, + - * // %, comparisons, cdiv, min and max"
            raise table.error(f"when {text!r}: {error}", hint, case="tune") from None
    record = TuneRecord(
        tuple(sorted(given.free)),
        tuple(sorted(given.default.items())),
        tuple((name, _rule(table, name, given.sizes[name])) for name in sorted(given.sizes)),
        (),
        tuple((name, _alternatives(table, name, given.link[name])) for name in sorted(given.link)),
        given.when,
        given.tolerance,
    )
    matrix = find_file(table, "launch", given.launch, "matrices") if given.launch is not None else None
    return TuneDeclaration(record, matrix, f"{table.path} [{table.name}]")


def _rule(table: TomlTable, name: str, rule: object) -> Any:
    if rule in ("exact", "log2"):
        return rule
    if isinstance(rule, list) and rule and len(rule) <= _MOST_BOUNDS and _is_ascending(rule):
        return tuple(rule)
    hint = 'write "exact", "log2", or the lower bounds of the buckets in ascending order, such as [1, 64, 4096]'
    raise table.error(f"size {name} = {rule!r} says no buckets", hint, case="tune")


def _is_ascending(bounds: Iterable[object]) -> bool:
    numbers = [bound for bound in bounds if type(bound) is int]
    return numbers == sorted(set(numbers)) == list(bounds) and numbers[0] >= 0 and numbers[-1] < 1 << 62


def _alternatives(table: TomlTable, name: str, values: object) -> Any:
    if name not in LINK_NAMES:
        hint = f"options that may vary are {', '.join(LINK_NAMES)}"
        raise table.error(f"link option {name!r} may change results, or does not exist", hint, case="tune")
    if not isinstance(values, list) or not values:
        raise table.error(f"link.{name} is no list of values to try", f"write {name} = [...]", case="tune")
    found = []
    for value in values:
        try:
            found.append(getattr(LinkOptions.from_mapping({name: value}), name))
        except JitltoError as error:
            raise table.error(error.what, error.hint, case="tune") from None
    if len(set(found)) < len(found):
        raise table.error(f"link.{name} has a value twice", "remove it", case="tune")
    return tuple(found)
