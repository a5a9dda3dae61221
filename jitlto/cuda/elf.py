"""Reader for the ELF-64 files that nvJitLink makes: sections, symbols, and the architecture.

Source: System V ABI, chapters «Object Files» and «Symbol Table». NVIDIA's own: symbols of type 13 are variables, and
``.nv.prototype`` says of a function what it returns and takes, as ``#iib24l``. The architecture is in the header's
flags: LLVM's BinaryFormat/ELF.h, ``EF_CUDA_SM``.
"""

import re
import struct
from typing import NamedTuple

from jitlto.base.versions import Architecture
from jitlto.record.fragment import UNKNOWN, Symbol, SymbolKind

# Types of sections: code and data, memory without content, and a table of symbols.
PROGBITS, NOBITS, _SYMTAB = 1, 8, 2
_NAMED = frozenset({1, 2, 13})  # types of symbols: variables, functions, and NVIDIA's for variables
_FUNCTION, _ENTRY = 2, 0x10  # the type of functions, and the flag of kernels among them
_SHARED = 0x40  # the flag of variables in shared memory; without a size, they are the launch's
_LOCAL, _WEAK = 0, 2  # bindings
_GLOBAL = ".nv.global"  # the beginning of the names of sections of variables
_SPACES = ((_GLOBAL, "global"), (".nv.constant", "const"), (".nv_debug.shared", "shared"))
_FAR = 256  # the most that an address at the beginning of a section is taken to be aligned
_PROTOTYPES, _PROTOTYPE = ".nv.prototype", struct.Struct("<II")  # numbers of symbols, and where their texts begin
_TYPES = re.compile(r"#(v|b\d+|[bhilfd])((?:b\d+|[bhilfd])*)")
_SIZES = {"v": "", "b": "1", "h": "2", "i": "4", "f": "4", "l": "8", "d": "8"}
# Types of sections with relocations, and what names the symbol in each of them.
_RELOCATIONS = {4: struct.Struct("<12xI8x"), 9: struct.Struct("<12xI")}
# Names of texts, such as formats, and of tables of NVIDIA's mathematical functions.
_CONSTANT = re.compile(r"(?:\$str|__unnamed_\d+)(?:\$\d+)*|__cudart_\w+")
MAGIC = b"\x7fELF"
_HEAD = struct.Struct("<4s4xB9xH28xI")  # of the file: its magic number, ABI version, machine and flags
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_CUDA = 190  # EM_CUDA
_OLD_ABI = 7  # ELFABIVERSION_CUDA_V1: the number of the architecture is in the flags' lowest byte, later in the second
# Code for one architecture alone: a flag (EF_CUDA_ACCELERATORS), or how this section begins as CUDA 13.5 writes it.
_SPECIFIC_OLD, _SPECIFIC, _SPECIFIC_COMPAT = 0x800, 0x8, b"\x02\x09\x01"
_CUT = "malformed ELF file: it is cut off or damaged"
_MALFORMED = (struct.error, ValueError, IndexError, OverflowError)


class ElfSection(NamedTuple):
    """A section: its name, type, content and size, and the number of the section that it refers to."""

    name: str
    kind: int
    data: bytes
    size: int
    link: int


class _ElfSymbol(NamedTuple):
    name: str
    info: int  # its type and binding
    flags: int
    place: str  # the name of the section, empty for what is undefined
    address: int
    size: int
    layout: str  # of a function


def read_sections(data: bytes) -> list[ElfSection]:
    """Return the sections of a file.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [_HEADER.unpack_from(data, table + number * size) for number in range(count)]
        strings = _content(data, headers[names])
        return [ElfSection(_text(strings, h[0]), h[1], _content(data, h), h[5], h[6]) for h in headers]
    except _MALFORMED as error:
        raise ValueError(_CUT) from error


def read_symbols(data: bytes) -> tuple[list[Symbol], list[Symbol]]:
    """Return the kernels, functions and variables that a file defines for others, and those that it leaves undefined.

    Of a variable the alignment is that of its place, which may be more than was asked for.

    Raises:
        ValueError: If it is malformed.
    """
    found, undefined = list[Symbol](), list[Symbol]()
    for name, info, flags, place, address, size, layout in _read_symbols(data):
        is_function = info & 0xF == _FUNCTION
        is_dynamic = not (is_function or size) and (flags & _SHARED or place.endswith(".shared"))
        if info >> 4 == _LOCAL or is_dynamic:
            continue
        kind = SymbolKind.FUNCTION if is_function else SymbolKind.VARIABLE
        if space := next((space for prefix, space in _SPACES if place.startswith(prefix)), None):
            kind, layout = SymbolKind.VARIABLE, f"{space} {size}@{min(address & -address or _FAR, _FAR)}"
        elif is_function and flags & _ENTRY:
            kind = SymbolKind.KERNEL
        symbol = Symbol(name, kind, layout, weak=info >> 4 == _WEAK and bool(place))
        (found if place else undefined).append(symbol)
    return found, undefined


def _layout(prototype: str) -> str:
    """Return the layout that a prototype tells: of the result (``v`` for none), and of the parameters."""
    if not (match := _TYPES.fullmatch(prototype)):
        return UNKNOWN
    result, parameters = (
        ",".join(of if of[1:] else _SIZES[of] for of in re.findall(r"b\d+|\w", part)) for part in match.groups()
    )
    return f"({result})({parameters})"


def read_variables(data: bytes) -> set[str]:
    """Return the names of the ``__device__`` and ``__constant__`` variables that a file defines.

    Raises:
        ValueError: If it is malformed.
    """
    return {each.name for each in _read_symbols(data) if each.place.startswith((_GLOBAL, ".nv.constant"))}


def read_writable(data: bytes) -> set[str]:
    """Return the names of the variables outside ``__constant__`` memory that a file's code refers to.

    Those that it only reads are among them, but neither texts, nor tables of the toolkit, nor those whose values it
    holds itself, as of ``constexpr`` numbers.

    Raises:
        ValueError: If it is malformed.
    """
    found = (each.name for each in _read_symbols(data, of_code=True) if each.place.startswith(_GLOBAL))
    return {name for name in found if not _CONSTANT.fullmatch(name)}


def _read_symbols(data: bytes, *, of_code: bool = False) -> list[_ElfSymbol]:
    """Return functions and variables: all, or those that code and data refer to."""
    sections, found = read_sections(data), list[_ElfSymbol]()
    places = {number: each.name if number else "" for number, each in enumerate(sections)}
    prototypes = {each.link: each.data for each in sections if each.name == _PROTOTYPES}
    try:
        for number, table in enumerate(sections):
            if table.kind != _SYMTAB:
                continue
            entries, names = [*_SYMBOL.iter_unpack(table.data)], sections[table.link].data
            layouts = {n: _layout(_text(names, at)) for n, at in _PROTOTYPE.iter_unpack(prototypes.get(number, b""))}
            for n in _read_relocations(sections, number) if of_code else range(len(entries)):
                name, info, flags, at, address, size = entries[n]
                if info & 0xF in _NAMED and at in places:
                    about = flags, places[at], address, size, layouts.get(n, UNKNOWN)
                    found.append(_ElfSymbol(_text(names, name), info, *about))
    except _MALFORMED as error:
        raise ValueError(_CUT) from error
    return found


def _read_relocations(sections: list[ElfSection], table: int) -> set[int]:
    """Return the numbers of the symbols of a table that sections refer to, other than those for debuggers."""
    own = [each for each in sections if each.kind in _RELOCATIONS and each.link == table and ".debug" not in each.name]
    return {number for each in own for (number,) in _RELOCATIONS[each.kind].iter_unpack(each.data)}


def read_architecture(data: bytes) -> Architecture | None:
    """Return the architecture that machine code is for; None if it is no such file.

    Its suffix is ``a`` or none: family-specific code is not marked.
    """
    if len(data) < _HEAD.size:
        return None
    magic, abi, machine, flags = _HEAD.unpack_from(data)
    if magic != MAGIC or machine != _CUDA:
        return None
    if abi <= _OLD_ABI:
        return Architecture(flags & 0xFF, "a" if flags & _SPECIFIC_OLD else "")
    return Architecture(flags >> 8 & 0xFF, "a" if flags & _SPECIFIC or _has_specific_section(data) else "")


def is_linked(data: bytes) -> bool:
    """Return whether a cubin is a program (``ET_EXEC``), which is not linked with anything else."""
    return data[16:18] == b"\x02\0"


def _has_specific_section(data: bytes) -> bool:
    try:
        sections = read_sections(data)
    except ValueError:
        return False
    return any(each.name == ".nv.compat" and each.data.startswith(_SPECIFIC_COMPAT) for each in sections)


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    return data[header[4] : header[4] + header[5]]


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode("utf-8", "replace")
