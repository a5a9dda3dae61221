"""Reader for the ELF-64 files that nvJitLink makes: sections, what is defined or not, and the architecture.

Source: System V ABI, chapters «Object Files» and «Symbol Table». NVIDIA's own: symbols of type 13 are variables. The
architecture is in the header's flags: LLVM's BinaryFormat/ELF.h, ``EF_CUDA_SM``.
"""

import struct
from typing import NamedTuple

from jitlto.base.versions import Architecture

# Types of sections: code and data, and a table of symbols.
PROGBITS, _SYMTAB = 1, 2
_NAMED = frozenset({1, 2, 13})  # types of symbols: variables, functions, and NVIDIA's for variables
_VARIABLES = (".nv.global", ".nv.constant")  # the beginnings of the names of their sections
# Types of sections with relocations, and what names the symbol in each of them.
_RELOCATIONS = {4: struct.Struct("<12xI8x"), 9: struct.Struct("<12xI")}
_TEXTS = ("$", "__unnamed_")  # the beginnings of the names of texts, such as formats
_HEAD = struct.Struct("<4s4xB9xH28xI")  # of the file: its magic number, ABI version, machine and flags
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_CUDA = 190  # EM_CUDA
_OLD_ABI = 7  # ELFABIVERSION_CUDA_V1: the number of the architecture is in the flags' lowest byte, later in the second
# Code for one architecture alone: a flag (EF_CUDA_ACCELERATORS), or how this section begins as CUDA 13.5 writes it.
_SPECIFIC_OLD, _SPECIFIC, _SPECIFIC_COMPAT = 0x800, 0x8, b"\x02\x09\x01"
_MALFORMED = (struct.error, ValueError, IndexError, OverflowError)


class ElfSection(NamedTuple):
    """A section: its name, type and content, and the number of the section that it refers to."""

    name: str
    kind: int
    data: bytes
    link: int


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
        return [ElfSection(_text(strings, h[0]), h[1], _content(data, h), h[6]) for h in headers]
    except _MALFORMED as error:
        raise ValueError(f"malformed ELF file: {error}") from error


def read_undefined(data: bytes) -> set[str]:
    """Return the names of the functions and variables that a file refers to and does not define.

    Raises:
        ValueError: If it is malformed.
    """
    return {name for name, section in _read_symbols(data) if section == ""}


def read_variables(data: bytes) -> set[str]:
    """Return the names of the ``__device__`` and ``__constant__`` variables that a file defines.

    Raises:
        ValueError: If it is malformed.
    """
    return {name for name, section in _read_symbols(data) if section and section.startswith(_VARIABLES)}


def read_writable(data: bytes) -> set[str]:
    """Return the names of the variables outside ``__constant__`` memory that a file's code refers to.

    Those that it only reads are among them, but not those whose values it holds itself, as of ``constexpr`` numbers.

    Raises:
        ValueError: If it is malformed.
    """
    sections, found = read_sections(data), set[str]()
    try:
        for each in sections:
            if each.kind in _RELOCATIONS and ".debug" not in each.name:
                symbols = _read_table(sections, sections[each.link])
                used = (symbols[number] for (number,) in _RELOCATIONS[each.kind].iter_unpack(each.data))
                found |= {name for name, _, place in used if place and place.startswith(".nv.global")}
    except _MALFORMED as error:
        raise ValueError(f"malformed ELF file: {error}") from error
    return {name for name in found if not name.startswith(_TEXTS)}


def _read_symbols(data: bytes) -> list[tuple[str, str | None]]:
    """Return the name of each function and variable, and of its section: empty if undefined, None if in none."""
    sections = read_sections(data)
    try:
        tables = [_read_table(sections, each) for each in sections if each.kind == _SYMTAB]
    except _MALFORMED as error:
        raise ValueError(f"malformed ELF file: {error}") from error
    return [(name, place) for table in tables for name, kind, place in table if kind in _NAMED]


def _read_table(sections: list[ElfSection], table: ElfSection) -> list[tuple[str, int, str | None]]:
    """Return the name and type of each symbol of a table, and its section as :func:`_read_symbols` names it."""
    places = {number: each.name if number else "" for number, each in enumerate(sections)}
    names = sections[table.link].data
    entries = _SYMBOL.iter_unpack(table.data)
    return [(_text(names, name), info & 0xF, places.get(section)) for name, info, _, section, _, _ in entries]


def read_architecture(data: bytes) -> Architecture | None:
    """Return the architecture that machine code is for; None if it is no such file.

    Its suffix is ``a`` or none: family-specific code is not marked.
    """
    if len(data) < _HEAD.size:
        return None
    magic, abi, machine, flags = _HEAD.unpack_from(data)
    if magic != b"\x7fELF" or machine != _CUDA:
        return None
    if abi <= _OLD_ABI:
        return Architecture(flags & 0xFF, "a" if flags & _SPECIFIC_OLD else "")
    return Architecture(flags >> 8 & 0xFF, "a" if flags & _SPECIFIC or _has_specific_section(data) else "")


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
