"""The table ``tune`` of an entrypoint in ``family.toml``: free parameters, blocks and kinds of problems."""

from collections.abc import Collection

import msgspec

from jitlto.base.text import suggest
from jitlto.base.toml_reader import TomlTable
from jitlto.record.fragment import is_name
from jitlto.record.tuning import TuneRecord


class _TuneTable(msgspec.Struct):
    free: dict[str, str] = {}
    block: tuple[int | tuple[int, ...], ...] = ()
    sizes: dict[str, str] = {}
    tolerance: float = 0.0


def read_tune(table: TomlTable, parameters: Collection[str]) -> TuneRecord:
    """Read a table ``tune``, given the key parameters of the family and of those that it uses."""
    given = table.decode(_TuneTable)
    if not (given.free or given.block):
        raise table.error("declares no choice", "give free or block, or remove the table", case="tune")
    known = sorted(parameters)
    for name in sorted(given.free.keys() - set(parameters)):
        hint = suggest(name, known, f"the parameters are {', '.join(known)}")
        raise table.error(f"free names {name!r}, which is no parameter", hint, "free", name, case="tune")
    for name, rule in given.sizes.items():
        if name in parameters:
            what = f"size {name!r} is a parameter too"
            raise table.error(what, "give one of them another name", "sizes", name, case="tune")
        if not is_name(name) or rule not in ("exact", "log2"):
            what = f"size {name} = {rule!r} says no buckets"
            raise table.error(what, 'write "exact" or "log2"', "sizes", name, case="tune")
    blocks = [block if isinstance(block, tuple) else (block,) for block in given.block]
    declared = {"free": sorted(given.free.items()), "block": blocks, "sizes": sorted(given.sizes.items())}
    try:
        if () in blocks or len(set(blocks)) < len(blocks):
            raise ValueError("a block is empty, or there twice")
        return msgspec.convert(declared | {"tolerance": given.tolerance}, TuneRecord)
    except ValueError as error:
        hint = "write block = [128, 256] or [[16, 16], [32, 8]]; a tolerance is from 0, for the same bits, to 1"
        raise table.error(str(error), hint, case="tune") from None
