"""The machine code of one fragment for an architecture, without the fragments that it is linked with in a kernel.

A small module of PTX refers to all that the fragment provides, so that nothing is dropped, and defines what it
requires. Functions that the fragment requires are therefore called, not inlined.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from jitlto.base.versions import Architecture, Version
from jitlto.cuda import nvjitlink
from jitlto.cuda.elf import NOBITS, NOTE, PROGBITS, read_sections
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.record.fragment import Symbol, SymbolKind

_ENTRY = "jitlto_refers"
_SOME = "16"  # bytes of an array whose size is left open


def hash_alone(
    ltoir: bytes, provides: Iterable[Symbol], requires: Iterable[Symbol], isa: Version, target: Architecture
) -> str:
    """Link the LTO-IR of one fragment, in a fatbin, for a target, and return a hash of its machine code.

    Args:
        ltoir: The LTO-IR.
        provides, requires: The fragment's symbols.
        isa: Of PTX that the linker reads.
        target: The architecture.

    Raises:
        LinkError: If it does not link, such as because it does not define what it should provide.
    """
    required = tuple(requires)
    stub = _make_stub(provides, required, isa)
    inputs = [LinkInput(InputKind.FATBIN, ltoir, "fragment"), LinkInput(InputKind.PTX, stub.encode(), "references")]
    others = {f".text.{name}" for name in (_ENTRY, *(symbol.name for symbol in required))}
    sections = read_sections(nvjitlink.link(inputs, target, ("-lto",)).data)
    code = (s.data for s in sections if s.kind == PROGBITS and s.name.startswith(".text.") and s.name not in others)
    # Names may contain the architecture, as those of CUB do.
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(each).digest() for each in code))).hexdigest()


def hash_code(kernel: bytes) -> str:
    """Return a hash of a linked kernel, a cubin or PTX, without notes.

    Options of a link are in a note, so kernels that they do not change have the same hash.
    """
    try:
        sections = read_sections(kernel)
    except ValueError:  # PTX
        return hashlib.sha256(kernel).hexdigest()
    digest = hashlib.sha256()
    for name, data in sorted((each.name, each.data) for each in sections if each.kind not in (NOTE, NOBITS)):
        digest.update(f"{len(name)} {len(data)} {name}".encode() + data)
    return digest.hexdigest()


def _make_stub(provides: Iterable[Symbol], requires: Iterable[Symbol], isa: Version) -> str:
    used = [symbol for symbol in provides if symbol.kind is not SymbolKind.KERNEL]
    lines = [f".version {isa}", ".target sm_75", ".address_size 64"]
    lines += [f".extern {_declare(symbol)};" for symbol in used]
    lines += [f".visible {_declare(s)}{' { ret; }' if s.kind is SymbolKind.FUNCTION else ';'}" for s in requires]
    stores = [f"mov.u64 %rd2, {symbol.name}; st.volatile.global.u64 [%rd1], %rd2;" for symbol in used]
    start = (f".visible .entry {_ENTRY}(.param .u64 where)", "{", ".reg .b64 %rd<3>;", "ld.param.u64 %rd1, [where];")
    return "\n".join([*lines, *start, *stores, "ret;", "}"]) + "\n"


def _declare(symbol: Symbol) -> str:
    """Return the declaration of a symbol in PTX, from its layout."""
    if symbol.kind is SymbolKind.VARIABLE:
        space, _, layout = symbol.layout.partition(" ")
        size, _, alignment = layout.partition("@")
        return f".{space} .align {alignment or size} .b8 {symbol.name}[{size.replace('?', _SOME)}]"
    result, parameters = re.findall(r"\(([^)]*)\)", symbol.layout)
    returned = f"({_parameter(result, 'result')}) " if result else ""
    taken = [_parameter(layout, f"p{number}") for number, layout in enumerate(parameters.split(",")) if layout]
    return f".func {returned}{symbol.name}({', '.join(taken)})"


def _parameter(layout: str, name: str) -> str:
    if not layout.startswith("b"):
        return f".param .b{8 * int(layout)} {name}"
    return f".param .align 16 .b8 {name}[{layout[1:]}]"  # nvJitLink does not compare alignments
