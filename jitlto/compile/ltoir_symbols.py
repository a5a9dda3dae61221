"""The symbols of LTO-IR, which nvJitLink can tell in a fraction of the time of another run of the compiler.

A link to PTX lists kernels, variables, and what they need, but makes all functions internal. So what a source without
kernels provides comes from a link to relocatable machine code. Neither link optimises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from jitlto.base.errors import LinkError, ToolchainError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import nvjitlink
from jitlto.cuda.elf import FUNCTION, ElfSymbol, read_symbols
from jitlto.cuda.nvjitlink import PTXAS_SYMBOLS, InputKind, LinkInput
from jitlto.cuda.ptx import ANCHOR, Declaration, Module, is_toolkit_symbol, parse_ptx
from jitlto.record.fragment import SymbolKind

_RELOCATABLE = Version(13, 0)  # the first nvJitLink with -r
_FLAGS = ("-lto", "-O0")
_STUB_NAME = "jitlto_stub"
# nvJitLink 13.0 drops the functions of LTO-IR that is linked alone; 13.5 does not, and saves 10 ms.
_NEEDS_NO_STUB = Version(13, 5)
_STUB = f".version 8.0\n.target sm_75\n.address_size 64\n.visible .func {_STUB_NAME}() {{ ret; }}\n"
_PROTOTYPE = re.compile(r"#(v|i|l|b\d+)((?:i|l|b\d+)*)")
# Static functions, those of unnamed namespaces, and static variables of inline functions.
_INTERNAL = re.compile(rf"_INTERNAL_|_GLOBAL__N_|^_ZZ|\$|^{ANCHOR}|^{_STUB_NAME}$")


def can_read(compiler: Version) -> bool:
    """Return whether the installed nvJitLink is of the compiler's release, so that both speak of the same PTX."""
    try:
        return nvjitlink.version() == compiler
    except ToolchainError:
        return False


def can_read_all(compiler: Version) -> bool:
    """Return whether :func:`can_read` and the installed nvJitLink tells what sources without kernels provide too."""
    return can_read(compiler) and compiler >= _RELOCATABLE


def read_modules(ltoir: Mapping[Architecture, bytes], compiler: Version) -> list[Module] | None:
    """Return the modules of LTO-IR: what it provides and requires, without code.

    Of functions beside a kernel only those that the kernel calls are listed, and as weak ones, since nvJitLink does not
    say.

    Args:
        ltoir: Bare LTO-IR of one source, by architecture.
        compiler: The version of the NVRTC that made it.

    Returns:
        The modules, sorted by architecture; None if the installed nvJitLink cannot tell, or rejects the LTO-IR.
    """
    if not can_read(compiler):
        return None
    modules = []
    for architecture, data in sorted(ltoir.items()):
        try:
            module = _read_module(LinkInput(InputKind.LTOIR, data, "source"), architecture)
        except LinkError:
            return None
        if module is None:
            return None
        modules.append(module)
    return modules


def _read_module(item: LinkInput, architecture: Architecture) -> Module | None:
    module = parse_ptx(nvjitlink.link([item], architecture, _FLAGS, ptx=True).data.decode())
    listed = {name: replace(d, text="") for name, d in module.declarations.items()}
    if any(d.defined and d.kind is SymbolKind.KERNEL for d in listed.values()):
        helpers = [d for d in listed.values() if d.defined and not d.linkage and d.kind is SymbolKind.FUNCTION]
        listed |= {d.name: replace(d, linkage="weak") for d in helpers if not _INTERNAL.search(d.name)}
        return replace(module, declarations=listed)
    if nvjitlink.version() < _RELOCATABLE:
        return None
    stub = [] if nvjitlink.version() >= _NEEDS_NO_STUB else [LinkInput(InputKind.PTX, _STUB.encode(), "stub")]
    cubin = nvjitlink.link([item, *stub], architecture, _FLAGS, relocatable=True).data
    known = {name: d for name, d in listed.items() if d.kind is SymbolKind.VARIABLE}
    for symbol in read_symbols(cubin):
        name = symbol.name
        if symbol.is_local or symbol.space == "shared" or name.startswith(PTXAS_SYMBOLS):
            continue
        if _INTERNAL.search(name) or is_toolkit_symbol(name):
            continue
        found = known.get(name) or (_declare_function if symbol.kind == FUNCTION else _declare_variable)(symbol)
        if found is None:
            return None
        known[found.name] = found
    return replace(module, declarations=known)


def _declare_function(symbol: ElfSymbol) -> Declaration | None:
    """Return the declaration of a function; None if its prototype has a form that is not known."""
    match = _PROTOTYPE.fullmatch(symbol.prototype)
    if match is None:
        return None
    result, parameters = (",".join(map(_layout, re.findall(r"i|l|b\d+", part))) for part in match.groups())
    linkage = ("weak" if symbol.is_weak else "visible") if symbol.is_defined else "extern"
    layout = f"({result})({parameters})"
    return Declaration(symbol.name, linkage, SymbolKind.FUNCTION, "", layout, (), "", symbol.is_defined)


def _declare_variable(symbol: ElfSymbol) -> Declaration | None:
    """Return the declaration of a variable that another source defines; None if this one does, or its space is unknown.

    The alignment that it asks for is not known.
    """
    if symbol.is_defined or not symbol.space:
        return None
    layout = f"{symbol.space} {symbol.size or '?'}@1"
    return Declaration(symbol.name, "extern", SymbolKind.VARIABLE, symbol.space, layout, (), "", defined=False)


def _layout(letter: str) -> str:
    return {"i": "4", "l": "8"}.get(letter, letter)
