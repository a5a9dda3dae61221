"""What compiled files define and refer to: LTO-IR, PTX, cubins, fatbins, objects and archives, all in one way.

nvJitLink links a file alone and keeps it relocatable: the table of symbols of the result has every function, kernel and
variable. nvJitLink 12 has no such link; one for debuggers keeps them too, where a stub defines what the file does not.
"""

import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from jitlto.base.errors import JitltoError, LinkError, UnresolvedSymbolError, VersionError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import elf, nvfatbin, nvjitlink
from jitlto.cuda.compatibility import can_link_for, linkable_architectures, newest_ptx_isa, runs_on
from jitlto.cuda.nvjitlink import ARCHIVE, InputKind, LinkInput, is_own_symbol, link
from jitlto.cuda.ptx import Module, parse_ptx, write_stub
from jitlto.record.fragment import UNKNOWN, ImageKind, Symbol, SymbolKind

#: What a file should be.
HINT = "name relocatable code as `nvcc -rdc=true` makes it: LTO-IR, PTX, a cubin, a fatbin or an archive of objects"
# LTO-IR begins with the size of its head, which is larger for sm_90a, and 10 × the number of its architecture.
_LTOIR, _HEAD, _PLAIN = b"\xed\x43\x4e\x7f", struct.Struct("<16xI6xH"), 0x28

#: What code defines for others, and what others must define for it, both sorted.
Symbols: TypeAlias = "tuple[tuple[Symbol, ...], tuple[Symbol, ...]]"


class CompiledCode(NamedTuple):
    """The code of a file for one architecture."""

    kind: ImageKind
    architecture: Architecture
    isa: Version | None  # of PTX
    item: LinkInput  # as nvJitLink reads it: one image, or the archive or object that has it among others
    module: Module | None = None  # of PTX that is text

    def __str__(self) -> str:
        prefix = "sm" if self.kind is ImageKind.SASS else "lto" if self.kind is ImageKind.LTOIR else "compute"
        return f"{prefix}_{self.architecture}"


def identify(data: bytes, name: str) -> LinkInput:
    """Return a file as an input of the kind that its content is."""
    kind = InputKind.PTX if b".version" in data and not data.startswith(elf.MAGIC) else InputKind.OBJECT
    if nvfatbin.is_whole(data):
        kind = InputKind.FATBIN
    elif data.startswith(ARCHIVE):
        kind = InputKind.LIBRARY
    elif data.startswith(_LTOIR):
        kind = InputKind.LTOIR
    elif elf.read_architecture(data):
        kind = InputKind.CUBIN
    return LinkInput(kind, data, name)


def list_code(item: LinkInput) -> list[CompiledCode]:
    """Return the code of a file: of a fatbin each image, of an archive what all of its members have.

    Raises:
        JitltoError: If it has none that is linked, or is cut off.
    """
    data, found = item.data, list[CompiledCode]()
    if item.kind is InputKind.PTX:
        module = parse_ptx(data.decode("utf-8", "replace").rstrip("\0"))
        found = [CompiledCode(ImageKind.PTX, module.target, module.isa, item, module)]
    elif item.kind is InputKind.LTOIR and data.startswith(_LTOIR) and len(data) >= _HEAD.size:
        size, number = _HEAD.unpack_from(data)
        found = [CompiledCode(ImageKind.LTOIR, Architecture(number // 10, "a" * (size > _PLAIN)), None, item)]
    elif code := elf.read_architecture(data):
        if elf.is_linked(data):
            raise JitltoError("it is a cubin that is linked already, not a relocatable one", hint=HINT)
        found = [CompiledCode(ImageKind.SASS, code, None, item)]
    elif item.kind is InputKind.FATBIN:
        parts = nvfatbin.split(data)
        found = [CompiledCode(*form, isa, LinkInput(item.kind, part, item.name)) for form, isa, part in parts]
    else:
        _check_members(data)
        members, newest = [*map(set, nvfatbin.find_fatbins(data))], newest_ptx_isa(nvjitlink.version())
        common = sorted(members[0].intersection(*members)) if members else []
        found = [CompiledCode(*form, newest, item) for form in common]
    if not found:
        raise JitltoError("it has no device code that is linked", hint=HINT)
    return [each for each in found if _find_target(each)] or found


def _check_members(data: bytes) -> None:
    """Check that no member of an archive is cut off: nvJitLink writes of one that is to the standard error.

    Raises:
        JitltoError: If one is.
    """
    at = len(ARCHIVE) if data.startswith(ARCHIVE) else len(data)
    while at < len(data):
        size = data[at + 48 : at + 58].strip()
        at += 60 + int(size) if size.isdigit() else len(data)
        at += at % 2
    if at > len(data) + 1:
        raise JitltoError("it is an archive that is cut off", hint=HINT)


def read_symbols(code: CompiledCode, known: Mapping[str, Symbol]) -> Symbols:
    """Return the symbols of code.

    Args:
        code: The code.
        known: What others define: nvJitLink 12 must know it of that to which machine code in a fatbin refers.

    Raises:
        VersionError: If it is too new for nvJitLink, or LTO-IR of another major release.
        LinkError: If nvJitLink cannot read it.
    """
    linker = nvjitlink.version()
    if code.kind is ImageKind.PTX and code.isa and code.isa > (newest := newest_ptx_isa(linker)):
        what = f"it is PTX {code.isa}, and nvJitLink {linker} reads PTX up to {newest}"
        hint = f"compile it with CUDA {linker} or an earlier release, or build with a later nvJitLink"
        raise VersionError(what, code="link-version-newer", hint=hint)
    if code.module:
        return code.module.provides, code.module.requires
    missing: dict[str, Symbol] = {}
    data = code.item.data if code.item.kind is InputKind.CUBIN else _link_alone(code, known, missing)
    try:
        both = elf.read_symbols(data)
    except ValueError as error:
        raise LinkError(str(error), hint=HINT) from error
    provides, requires = ([symbol for symbol in some if not is_own_symbol(symbol.name)] for some in both)
    requires += [Symbol(name, SymbolKind.FUNCTION, UNKNOWN) for name in missing]
    return tuple(sorted(s for s in provides if s.name not in missing)), tuple(sorted(requires))


def join(read: Sequence[Symbols]) -> Symbols:
    """Return what code for several architectures defines and refers to together, as the first has it."""
    defined, needed = ({symbol.name: symbol for each in reversed(read) for symbol in each[n]} for n in (0, 1))
    return tuple(sorted(defined.values())), tuple(needed[name] for name in sorted(needed.keys() - defined.keys()))


def _find_target(code: CompiledCode) -> Architecture | None:
    """Return what code is linked for to be read: its own architecture, or the newest, if that runs it; else None."""
    linker, own = nvjitlink.version(), code.architecture
    newest = Architecture(max(linkable_architectures(linker)))
    fits = code.kind is not ImageKind.SASS and runs_on(own, newest)
    return own if can_link_for(linker, own) else newest if fits else None


@functools.lru_cache(maxsize=16)  # a caller's input goes into many plans
def _link_relocatable(item: LinkInput, target: Architecture, is_ltoir: bool) -> bytes:
    # Functions of LTO-IR are kept where something else is linked with it.
    return link([item, _make_stub(())] if is_ltoir else [item], target, ["-lto", "-r"] if is_ltoir else ["-r"]).data


def _make_stub(symbols: Iterable[Symbol]) -> LinkInput:
    """Return PTX that defines symbols, for every architecture for which nvJitLink links."""
    lowest = Architecture(min(linkable_architectures(nvjitlink.version())))
    return LinkInput(InputKind.PTX, write_stub(symbols).replace("sm_75", lowest.sm).encode(), "stub")


def _link_alone(code: CompiledCode, known: Mapping[str, Symbol], missing: dict[str, Symbol]) -> bytes:
    """Return a cubin with all that code defines, and add what a stub had to define beside it."""
    linker, is_ltoir, target = nvjitlink.version(), code.kind is ImageKind.LTOIR, _find_target(code)
    if linker.major > 12:
        return _link_relocatable(code.item, target or code.architecture, is_ltoir)
    flags = ["-lto", "-g"] if is_ltoir else ["-g"]
    try:
        return link([code.item, _make_stub(())], target or code.architecture, flags).data
    except UnresolvedSymbolError as error:
        missing |= {name: known.get(name, Symbol(name, SymbolKind.FUNCTION, "()()")) for name in error.symbols}
        # It does not survive machine code that uses a variable where the stub defines a function.
        if not is_ltoir and (unknown := missing.keys() - known.keys()):
            what = f"nvJitLink {linker} does not tell its symbols, as nothing known defines {demangle(min(unknown))}"
            hint = "take CUDA 13, or give LTO-IR, PTX as text or a cubin outside of a fatbin"
            raise LinkError(what, hint=hint) from error
    except LinkError as error:
        if linker < (12, 9):
            error.hint = error.hint or "before 12.9 it reads no code that refers to what others define: update it"
        raise
    return link([code.item, _make_stub(missing.values())], target or code.architecture, flags).data
