"""The files that the line table of a cubin names, and other names for them.

Source: DWARF 3, section 6.2.4 (nvJitLink writes version 3); System V ABI for the file around it. A longer name moves
what follows it: the rest of the table, whose relocations move with it, and the rest of the file, whose headers stay the
last in it, since a driver takes its size from them.
"""

import re
import struct
from collections.abc import Callable

from jitlto.cuda.elf import read_sections

_TABLE, _RELOCATIONS = ".debug_line", ".rela.debug_line"
_SECTION_OFFSET, _SECTION_SIZE = 24, 32  # in a section's header
_HEADER = struct.Struct("<IHI")  # of a unit: its length, its version, the length of what stands before its program
_NEWEST = 4  # version 5 has other tables
_STEP = 128  # bytes: the file grows by a multiple of the largest alignment of a section
_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"  # as LEB128
_DIRECTORIES = re.compile(rb"(?:[^\0]+\0)*+\0")
_ENTRY = re.compile(rb"([^\0]+)\0(%b)((?:%b){2})" % (_NUMBER, _NUMBER))  # name, directory; time and size
_MALFORMED = (struct.error, IndexError, OverflowError, UnicodeError)


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
    """Return the table with other names, and where the program of each unit began with the growth there."""
    made: list[bytes] = []
    moves, start = [], 0
    while start < len(table):
        length, version, header = _HEADER.unpack_from(table, start)
        end, program = start + 4 + length, start + _HEADER.size + header
        opcodes = start + _HEADER.size + 4 + (version >= _NEWEST)  # from version 4 on, a byte more stands before them
        first = opcodes + table[opcodes]
        names = _DIRECTORIES.match(table, first)
        if version > _NEWEST or end > len(table) or names is None:
            raise ValueError(f"malformed line table: version {version}, {length} bytes")
        files = names.end()
        directories = ["", *table[first:files].decode().split("\0")]  # that of the compile has no name

        def renamed(entry: re.Match[bytes], directories: list[str] = directories) -> bytes:
            directory = directories[sum((byte & 0x7F) << 7 * place for place, byte in enumerate(entry[2]))]
            old = f"{directory.rstrip('/')}/{entry[1].decode()}" if directory else entry[1].decode()
            return entry[0] if (new := rename(old)) == old else new.encode() + b"\0\0" + entry[3]

        entries = _ENTRY.sub(renamed, table[files:program])
        growth = len(entries) - (program - files)
        made.append(_HEADER.pack(length + growth, version, header + growth))
        made += [table[start + _HEADER.size : files], entries, table[program:end]]
        moves.append((program, growth))
        start = end
    return b"".join(made), moves
