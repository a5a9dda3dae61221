"""What two sides of an interface store, with and without jitlto: the linked PTX is the judge."""

import re
import struct
from pathlib import Path
from typing import NamedTuple

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.check.check import check
from jitlto.cuda import nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.headers import Source
from jitlto.runtime.family import KernelFamily
from tests.support.compiled import compile_source
from tests.support.families import compiler, write_family
from tests.support.interface_pairs import Family, Pair

_STORE = re.compile(r"\bst\.global\.\w+\s+\[%[^\]]*\],\s*([^;\s]+);")


class Answer(NamedTuple):
    """A value that the kernel is known to store; or the code of the error that keeps it from being linked."""

    value: float | None = None
    refused: str = ""


def is_slip(pair: Pair) -> bool:
    """Return whether the sides that differ link without jitlto, and store another value than sides that agree."""
    without = ask_without(pair.wrong)
    return not without.refused and without.value != pair.right


def ask(family: Family, directory: Path) -> Answer:
    """Build, check, plan and link a family."""
    try:
        loaded = [declaration.load_family(write_family(directory, family.files("pair")))]
        report = build(loaded, directory / "pair.fragdb", executor=compiler())
        with FragmentDatabase(report.path) as database:
            if not check(database).holds:
                return Answer(refused="check")
            planner = KernelFamily("pair", database).planner()
            if family.is_callers:
                planner.add_source(family.device)
            return Answer(_stored(planner.plan(arch=family.target).link_ptx()))
    except JitltoError as error:
        return Answer(refused=error.code)


def ask_without(family: Family) -> Answer:
    """Compile and link both sides as they are written, each behind its own includes alone."""
    headers = {name: text.encode() for name, text in family.headers.items()}
    inputs = []
    try:
        for side, text in (("kernel", family.kernel), ("device", family.device)):
            for parameter, value in family.values.items():
                text = text.replace(f"{{{{{parameter}_value}}}}", value)
            name = family.archs.get("family", "75") if side not in family.archs else family.archs[side]
            options = ["--std=c++17", *family.options.get("family", ()), *family.options.get(side, ())]
            architecture = Architecture.parse(name)
            compiled = compile_source(Source(text.encode(), headers), [architecture], options)
            inputs.append(nvjitlink.LinkInput(nvjitlink.InputKind.LTOIR, compiled.ltoir[architecture], side))
        linked = nvjitlink.link(inputs, Architecture.parse(family.target), ["-lto"], ptx=True)
    except JitltoError as error:
        return Answer(refused=error.code)
    return Answer(_stored(linked.data.decode()))


def _stored(ptx: str) -> float | None:
    """Return the constant that the last store of a kernel writes through a pointer."""
    if not (stores := _STORE.findall(ptx)):
        return None
    value: str = stores[-1]
    if moved := re.search(rf"\bmov\.\w+\s+{re.escape(value)},\s*([^;\s]+);", ptx):
        value = moved[1]
    if value.startswith("0f"):
        return struct.unpack(">f", bytes.fromhex(value[2:]))[0]
    return struct.unpack("<f", struct.pack("<I", int(value) & 0xFFFFFFFF))[0] if re.fullmatch(r"-?\d+", value) else None
