"""Fatbins, the containers that say which architectures their images are for: made, with compression, and listed."""

import ctypes
import struct
from typing import NamedTuple

from jitlto.base.errors import ToolchainError
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import toolkit
from jitlto.cuda.compatibility import machine_code_links, runs_on
from jitlto.record.fragment import ImageForm, ImageKind

_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<4sxxHQ")
# Its kind, the sizes of its header and content, its version (minor, major), its architecture, flags.
_ENTRY = struct.Struct("<HxxIQ8xHHI10xB5x")
_KINDS = {1: ImageKind.PTX, 2: ImageKind.SASS, 8: ImageKind.LTOIR}  # others are nothing that is linked
_SPECIFIC, _FAMILY = 0x10, 0x20  # of the third byte of an entry's flags: code for sm_90a, sm_100f


class Recipe(NamedTuple):
    """How NVIDIA's compilers make images of a kind, and name them."""

    name: str  # in names of functions, as nvrtcGetLTOIR; in small letters, the ending of nvcc's files
    options: tuple[str, ...]  # NVRTC's
    architecture: str  # NVRTC's prefix of the architecture
    code: str  # nvcc's
    compression: bytes = b"-compress-mode=balance"  # the default differs by release


RECIPES = {
    ImageKind.LTOIR: Recipe("LTOIR", ("-dlto",), "compute", "lto"),
    ImageKind.PTX: Recipe("PTX", (), "compute", "compute"),
    ImageKind.SASS: Recipe("Cubin", (), "sm", "sm", b"-compress-mode=size"),  # the others leave cubins as they are
}


def wrap(kind: ImageKind, image: bytes, architecture: Architecture) -> bytes:
    """Return a compressed fatbin with one image; with one nvFatbin, equal inputs give equal bytes.

    Args:
        kind: What it holds.
        image: The bare image.
        architecture: What it was compiled for; nvFatbin does not check it.

    Raises:
        ToolchainError: If nvFatbin is missing or fails.
    """
    # cuda.bindings has nvFatbin since 12.9.6 and 13.2, and PyTorch pins older ones.
    library = ctypes.CDLL(toolkit.find_library("nvfatbin"))

    def call(name: str, *arguments: object) -> None:
        if status := getattr(library, name)(*arguments):
            what = f"nvFatbin rejects an image for {architecture.compute}: {name} returned {status}"
            raise ToolchainError(what, code="toolchain-failed")

    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(RECIPES[kind].compression)
    with uninterrupted:
        call("nvFatbinCreate", ctypes.byref(handle), options, ctypes.c_size_t(1))
        try:
            size_of_image, name = ctypes.c_size_t(len(image)), str(architecture).encode()
            call(f"nvFatbinAdd{RECIPES[kind].name}", handle, image, size_of_image, name, b"fragment", b"")
            call("nvFatbinSize", handle, ctypes.byref(size))
            buffer = ctypes.create_string_buffer(size.value)
            call("nvFatbinGet", handle, buffer)
        finally:
            library.nvFatbinDestroy(ctypes.byref(handle))
    return buffer.raw


def is_whole(data: bytes) -> bool:
    """Return whether the sizes in a fatbin's header (magic, version, its own size, that of the rest) are its own."""
    if len(data) < _HEADER.size:
        return False
    magic, header, rest = _HEADER.unpack_from(data)
    return bool(magic == _MAGIC and header + rest == len(data))


def split(data: bytes) -> list[tuple[ImageForm, Version, bytes]]:
    """Return the images of a fatbin as far as its entries have the form that nvFatbin and nvcc write; else none.

    Each is there with its version, of PTX that of the ISA, and a fatbin of it alone.
    """
    images: list[tuple[ImageForm, Version, bytes]] = []
    if not is_whole(data):
        return images
    _, first, _ = _HEADER.unpack_from(data)
    at = first
    while at + _ENTRY.size <= len(data):
        kind, header, size, minor, major, number, flags = _ENTRY.unpack_from(data, at)
        suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
        if kind in _KINDS:
            alone = data[:8] + struct.pack("<Q", header + size) + data[16:first] + data[at : at + header + size]
            images.append(((_KINDS[kind], Architecture(number, suffix)), Version(major, minor), alone))
        if header + size == 0:
            break
        at += header + size
    return images


def find_fatbins(data: bytes) -> list[list[ImageForm]]:
    """Return the images of each fatbin in an object or an archive of objects, or of the one that ``data`` is."""
    found, at = [], data.find(_MAGIC)
    while at >= 0:
        if at + _HEADER.size <= len(data):
            _, header, rest = _HEADER.unpack_from(data, at)
            if images := [form for form, *_ in split(data[at : at + header + rest])]:
                found.append(images)
        at = data.find(_MAGIC, at + 1)
    return found


def find_unfit(data: bytes, target: Architecture) -> list[str]:
    """Return what a fatbin, an object or a member of an archive has code for, if none of that links for the target."""

    def fits(kind: ImageKind, code: Architecture) -> bool:
        return machine_code_links(code, target) if kind is ImageKind.SASS else runs_on(code, target)

    for images in find_fatbins(data):
        if not any(fits(*form) for form in images):
            codes = {(kind is ImageKind.SASS, code) for kind, code in images}
            return [code.sm if is_machine_code else code.compute for is_machine_code, code in sorted(codes)]
    return []


def holds_ltoir(data: bytes) -> bool:
    """Return whether a fatbin, an object or an archive has LTO-IR."""
    return any(kind is ImageKind.LTOIR for images in find_fatbins(data) for kind, _ in images)
