"""Reads a linked cubin as far as it takes to find undefined symbols (ELF-64, little endian)."""

from __future__ import annotations

import struct

from jitlto.errors import LinkError
from jitlto.model.ptx import is_toolkit_symbol

_SYMTAB, _UNDEFINED = 2, 0
# ELF symbol types; the last is NVIDIA's own, for variables.
_OBJECT, _FUNCTION, _CUDA_OBJECT = 1, 2, 13


def find_undefined(cubin: bytes) -> list[str]:
    """Return the functions and variables that a cubin refers to and does not define, sorted; without the toolkit's.

    Args:
        cubin: As nvJitLink made it.

    Raises:
        LinkError: If it cannot be read as one.
    """
    try:
        return _undefined(cubin)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        what, hint = "nvJitLink made a malformed cubin", "use another version of nvJitLink"
        raise LinkError(what, code="link-invalid-cubin", hint=hint) from error


def _undefined(cubin: bytes) -> list[str]:
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count = struct.unpack_from("<HH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + number * size) for number in range(count)]
    names = set()
    for _, kind, _, _, start, length, strings, _, _, _ in sections:
        if kind != _SYMTAB:
            continue
        for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", cubin[start : start + length]):
            if section == _UNDEFINED and info & 0xF in (_OBJECT, _FUNCTION, _CUDA_OBJECT):
                begin = sections[strings][4] + name
                names.add(cubin[begin : cubin.index(b"\0", begin)].decode("utf-8", "replace"))
    # ptxas's own: .nv.reservedSmem.offset0 and the like, and the unified function and data tables.
    own = (".", "__UFT", "__UDT")
    return sorted(name for name in names if not name.startswith(own) and not is_toolkit_symbol(name))
