"""The files that the line table of a cubin names, and other names for them.

Source: DWARF 3, section 6.2.4 (nvJitLink writes version 3); System V ABI for the file around it. A longer name moves
what follows it: the rest of the table, whose relocations move with it, and the rest of the file, whose headers stay the
last in it, since a driver takes its size from them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jitlto.cuda.elf import read_sections

_TABLE, _RELOCATIONS = ".debug_line", ".rela.debug_line"
_SECTION_OFFSET, _SECTION_SIZE = 24, 32  # in a section's header
_HEADER = struct.Struct("<IHI")  # the unit's length, its version, the header's length
_OPCODES = _HEADER.size + 4  # where the number of opcodes stands
_NEWEST = 4  # version 5 has other tables
_STEP = 128  # bytes: the file grows by a multiple of the largest alignment of a section
_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"  # as LEB128
_ENTRY = re.compile(rb"([^\0]+)\0(%b)((?:%b){2})" % (_NUMBER, _NUMBER))  # name, directory; time and size
_MALFORMED = (struct.error, IndexError, OverflowError, UnicodeError)


class _Unit(NamedTuple):
    """One unit of a line table, by positions in it."""

    start: int
    end: int
    directories: tuple[str, ...]  # the first is that of the compile, which has no name
    files: int  # where the list of files begins
    rest: int  # behind the last of them


def rename_files(cubin: bytes, rename: Callable[[str], str]) -> bytes:
    """Return a cubin whose line table has other names for files; nothing else in it changes.

    Raises:
        ValueError: If the cubin is malformed.
    """
    try:
        sections = {each.name: each for each in read_sections(cubin)}
        if _TABLE not in sections:
            return cubin
        old = sections[_TABLE]
        table, moves = _rename(old.data, rename)
        if table == old.data:
            return cubin
        changed = bytearray(cubin)
        if relocations := sections.get(_RELOCATIONS):
            for place in range(relocations.start, relocations.start + len(relocations.data), 24):
                (offset,) = struct.unpack_from("<Q", cubin, place)
                moved = sum(growth for position, growth in moves if position <= offset)
                struct.pack_into("<Q", changed, place, offset + moved)
        struct.pack_into("<Q", changed, old.header + _SECTION_SIZE, len(table))
        end = old.start + len(old.data)
        growth = -(-(len(table) - len(old.data)) // _STEP) * _STEP
        (segments,), (size, count) = struct.unpack_from("<Q", cubin, 0x20), struct.unpack_from("<HH", cubin, 0x36)
        offsets = [0x20, 0x28, *(each.header + _SECTION_OFFSET for each in read_sections(cubin))]
        for place in (*offsets, *(segments + number * size + 8 for number in range(count))):
            (offset,) = struct.unpack_from("<Q", changed, place)
            struct.pack_into("<Q", changed, place, offset + (growth if offset >= end else 0))
        padding = bytes(len(old.data) + growth - len(table))
        return bytes(changed[: old.start]) + table + padding + bytes(changed[end:])
    except _MALFORMED as error:
        raise ValueError(f"malformed line table: {error}") from error


def _rename(table: bytes, rename: Callable[[str], str]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the table with other names, and the positions behind each unit's header with the growth there."""
    made, moves = [], []
    for unit in _read_units(table):
        files = b"".join(_rename_entry(entry, old, rename(old)) for old, entry in _files(table, unit))
        growth = len(files) - (unit.rest - unit.files)
        length, version, header = _HEADER.unpack_from(table, unit.start)
        made += [
            _HEADER.pack(length + growth, version, header + growth),
            table[unit.start + _HEADER.size : unit.files],
            files,
            table[unit.rest : unit.end],
        ]
        moves.append((unit.rest, growth))
    return b"".join(made), moves


def _read_units(table: bytes) -> Iterator[_Unit]:
    start = 0
    while start < len(table):
        length, version, _ = _HEADER.unpack_from(table, start)
        end = start + 4 + length
        if version > _NEWEST or end > len(table):
            raise ValueError(f"malformed line table: version {version}, {length} bytes")
        # From version 4 on, a byte more stands before the opcodes.
        opcodes = start + _OPCODES + (version >= _NEWEST)
        place, directories = opcodes + table[opcodes], [""]
        while table[place]:
            after = table.index(b"\0", place)
            directories.append(table[place:after].decode())
            place = after + 1
        files = rest = place + 1
        while match := _ENTRY.match(table, rest, end):
            rest = match.end()
        yield _Unit(start, end, tuple(directories), files, rest)
        start = end


def _files(table: bytes, unit: _Unit) -> Iterator[tuple[str, re.Match[bytes]]]:
    """Yield the name of each file, its directory included, and its entry."""
    for entry in _ENTRY.finditer(table, unit.files, unit.rest):
        number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(entry[2]))
        directory = unit.directories[number]
        yield f"{directory.rstrip('/')}/{entry[1].decode()}" if directory else entry[1].decode(), entry


def _rename_entry(entry: re.Match[bytes], old: str, new: str) -> bytes:
    return entry[0] if new == old else new.encode() + b"\0\0" + entry[3]
