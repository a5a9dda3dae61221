"""What a cubin's line information says, as nvdisasm reads it."""

import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jitlto.cuda import toolkit
from jitlto.cuda.elf import PROGBITS, read_sections

_PLACE = re.compile(r'"([^"]+)", line (\d+)')
_NOP = 0x918  # the low 12 bits of an instruction
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:\{ )?(.*)")


class Instruction(NamedTuple):
    """A machine instruction, and the file and line that it came from, followed by those where that was inlined."""

    text: str
    places: tuple[tuple[str, int], ...]


def machine_code(cubin: bytes) -> dict[str, bytes]:
    """The machine code of each function."""
    sections = read_sections(cubin)
    return {each.name: each.data for each in sections if each.kind == PROGBITS and each.name.startswith(".text.")}


def count_instructions(cubin: bytes) -> int:
    """The number of machine instructions in a linked kernel and its functions, without those that fill up the end."""
    count = 0
    for code in machine_code(cubin).values():
        number = len(code) // 16  # bytes of an instruction, since compute capability 7.0
        while number and struct.unpack_from("<H", code, (number - 1) * 16)[0] & 0xFFF == _NOP:
            number -= 1
        count += number
    return count


def instructions(cubin: bytes, directory: Path) -> Iterator[Instruction]:
    """The instructions of a cubin, without those that fill up the end of a function."""
    program = toolkit.find_binary("nvdisasm")
    if program is None:
        pytest.skip("nvdisasm is not installed")
    path = directory / "kernel.cubin"
    path.write_bytes(cubin)
    done = subprocess.run([program, "-gi", "-c", str(path)], capture_output=True, text=True, check=True)
    places: tuple[tuple[str, int], ...] = ()
    is_new = True
    for line in done.stdout.splitlines():
        if line.lstrip().startswith("//## File"):
            found = tuple((name, int(number)) for name, number in _PLACE.findall(line))
            places = found if is_new else places + found
            is_new = False
        elif line.lstrip().startswith(".section"):
            places, is_new = (), True
        elif match := _INSTRUCTION.match(line):
            is_new = True
            if not match[1].startswith("NOP"):
                yield Instruction(match[1], places)
