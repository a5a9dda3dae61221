"""Predictions, for reports: how a fragment will link, and whether a driver loads the result.

Source, beside that of ``jitlto.cuda.compatibility``: NVIDIA's «CUDA Compatibility» (which driver loads what; PTX is
outside minor-version compatibility).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda.compatibility import (
    PTX_ISA_12,
    check_target,
    jit_base,
    newest_foreign_compiler,
    newest_ptx_isa,
    select_image,
)
from jitlto.record.fragment import Fragment, ImageKind


class LinkMethod(StrEnum):
    """The form in which a fragment is linked: LTO-IR into a cubin, PTX, or LTO-IR into PTX that the driver compiles."""

    LTO = "lto"
    PTX = "ptx"
    JIT = "jit"


class LinkPreview(Struct, frozen=True):
    """The predicted link of a fragment, or the reason why it does not link.

    Args:
        method: None if it does not link.
        code: Target of the code, e.g. ``sm_90``, or ``compute_90`` for PTX; empty if it does not link.
        why: The reason why the best method cannot be used; None if it can.
        remedy: How to fix that.
    """

    method: LinkMethod | None
    code: str = ""
    why: str | None = None
    remedy: str | None = None


class Incompatibility(Struct, frozen=True):
    """The reason why a driver does not load code, and how to fix it."""

    why: str
    remedy: str


def oldest_toolkit(isa: Version) -> Version:
    """Return the oldest toolkit, from 12.0, that reads PTX ISA ``isa``: the inverse of :func:`newest_ptx_isa`."""
    if isa.major >= 9:
        return Version(isa.major + 4, isa.minor)
    return next((Version(12, n) for n, last in sorted(PTX_ISA_12.items()) if (8, last) >= isa), Version(13, 0))


def preview_link(fragment: Fragment, target: Architecture, linker: Version, *, requested: bool = True) -> LinkPreview:
    """Predict how a fragment links, unless another fragment of the kernel decides otherwise.

    One fragment whose LTO-IR is of another CUDA major makes the whole kernel link as PTX.

    Args:
        fragment : Fragment
        target: The architecture to link for.
        linker: The version of nvJitLink.
        requested: Whether a user named the target, rather than the device.
    """
    other = newest_foreign_compiler([fragment], linker)
    try:
        if other is not None:
            select_image(fragment, ImageKind.PTX, target, linker)
            check_target(target, linker)
            why = f"LTO-IR of CUDA {other} does not link with nvJitLink {linker}"
            remedy = (
                f"for link-time optimisation link with nvJitLink {other.major}.x, or build with CUDA {linker.major}"
            )
            return LinkPreview(LinkMethod.PTX, target.sm, why, remedy)
        base = jit_base(target, linker, requested=requested)
        select_image(fragment, ImageKind.LTOIR, base or target, linker)
        check_target(base or target, linker)
    except LinkError as error:
        return LinkPreview(None, why=error.what.removeprefix(str(fragment.key)).strip(), remedy=error.hint)
    if base is None:
        return LinkPreview(LinkMethod.LTO, target.sm)
    why = f"nvJitLink {linker} does not link for {target.sm}"
    return LinkPreview(LinkMethod.JIT, base.compute, why, "a newer nvJitLink spares the driver the work")


def find_incompatibility(driver: Version, linker: Version, isa: Version | None) -> Incompatibility | None:
    """Return why a driver does not load linked code, None if it does as far as versions tell.

    It loads a cubin of the same major, older or newer (minor-version compatibility), and of an earlier one. For the
    driver of a ``cuda-compat`` package its own version counts, not the kernel module's.

    Args:
        driver: The newest CUDA release that the driver supports (``cuDriverGetVersion``).
        linker: The nvJitLink that made the code.
        isa: The ISA version of PTX, None for a cubin.
    """
    older = f"link with nvJitLink {driver.major}.x and fragments built for it (jitlto[cu{driver.major}])"
    if isa is not None and isa > newest_ptx_isa(driver):
        needed = oldest_toolkit(isa)
        return Incompatibility(
            f"a driver for CUDA {driver} compiles PTX up to {newest_ptx_isa(driver)}, and this is PTX {isa}",
            f"install a driver for CUDA {needed} or newer, or the package cuda-compat-{needed.major}-{needed.minor}, "
            f"or make the PTX with CUDA {driver} or older",
        )
    if isa is None and linker.major > driver.major:
        return Incompatibility(
            f"a driver for CUDA {driver} does not load a cubin made by nvJitLink {linker}",
            f"install a driver for CUDA {linker.major}.0 or newer, or the package "
            f"cuda-compat-{linker.major}-{linker.minor}{', or ' + older if driver.major >= 12 else ''}",
        )
    return None
