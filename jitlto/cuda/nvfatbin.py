"""Wrapping LTO-IR in a fatbin, the container that says which architecture its content is for."""

from __future__ import annotations

from jitlto.cuda import toolkit
from jitlto.errors import ToolchainError
from jitlto.model.versions import Architecture


def wrap_ltoir(ltoir: bytes, architecture: Architecture) -> bytes:
    """A fatbin that holds one LTO-IR image, the same bytes for the same input.

    Parameters
    ----------
    ltoir : bytes
        Bare LTO-IR.
    architecture : Architecture
        What it was compiled for; nvFatbin believes it unseen.

    Raises
    ------
    ToolchainError
        If nvFatbin is missing or refuses.
    """
    nvfatbin = toolkit.bindings("nvfatbin")
    toolkit.nvfatbin_version()
    handle = nvfatbin.create([], 0)
    try:
        nvfatbin.add_ltoir(handle, ltoir, len(ltoir), str(architecture), "fragment", "")
        buffer = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, buffer)
    except nvfatbin.nvFatbinError as error:
        raise ToolchainError(f"nvFatbin refuses LTO-IR for {architecture.compute}: {error}") from error
    finally:
        nvfatbin.destroy(handle)
    return bytes(buffer)
