"""Fatbins, the containers that say which architectures their images are for: wrapping LTO-IR, and listing images."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from enum import IntEnum

from jitlto.cuda import toolkit
from jitlto.errors import ToolchainError
from jitlto.model.versions import Architecture
from jitlto.uninterrupted import uninterrupted


class FatbinKind(IntEnum):
    """Kinds of images in a fatbin, as its entries number them."""

    PTX = 1
    CUBIN = 2
    LTOIR = 8


@dataclass(frozen=True, slots=True)
class FatbinImage:
    """One image in a fatbin: its kind (a :class:`FatbinKind` where known) and its architecture without a suffix."""

    kind: int
    number: int


def wrap_ltoir(ltoir: bytes, architecture: Architecture) -> bytes:
    """Return a fatbin with one LTO-IR image; equal inputs give equal bytes.

    Args:
        ltoir: Bare LTO-IR.
        architecture: What it was compiled for; nvFatbin does not check it.

    Raises:
        ToolchainError: If nvFatbin is missing or fails.
    """
    toolkit.nvfatbin_version()
    # cuda.bindings has nvFatbin since 12.9.6 and 13.2, and PyTorch pins older ones.
    library = ctypes.CDLL(toolkit.find_library("nvfatbin"))

    def call(name: str, *arguments: object) -> None:
        if status := getattr(library, name)(*arguments):
            what = f"nvFatbin rejects LTO-IR for {architecture.compute}: {name} returned {status}"
            raise ToolchainError(what, code="toolchain-failed")

    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    with uninterrupted:
        call("nvFatbinCreate", ctypes.byref(handle), None, ctypes.c_size_t(0))
        try:
            image = (ltoir, ctypes.c_size_t(len(ltoir)))
            call("nvFatbinAddLTOIR", handle, *image, str(architecture).encode(), b"fragment", b"")
            call("nvFatbinSize", handle, ctypes.byref(size))
            buffer = ctypes.create_string_buffer(size.value)
            call("nvFatbinGet", handle, buffer)
        finally:
            library.nvFatbinDestroy(ctypes.byref(handle))
    return buffer.raw


def is_whole(data: bytes) -> bool:
    """Return whether the sizes in a fatbin's header (magic, version, its own size, that of the rest) are its own."""
    if len(data) < 16:
        return False
    magic, _, header, rest = struct.unpack_from("<IHHQ", data)
    return bool(magic == 0xBA55ED50 and header + rest == len(data))


def list_images(data: bytes) -> list[FatbinImage]:
    """Return the images of a fatbin as far as its entries have the form that nvFatbin and nvcc write; else none."""
    images: list[FatbinImage] = []
    if not is_whole(data):
        return images
    (at,) = struct.unpack_from("<H", data, 6)
    while at + 32 <= len(data):
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        (number,) = struct.unpack_from("<I", data, at + 28)
        images.append(FatbinImage(kind, number))
        if header + size == 0:
            break
        at += header + size
    return images
