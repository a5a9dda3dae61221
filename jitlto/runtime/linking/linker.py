"""The link itself: choose the target and the images for the installed nvJitLink, and link them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from jitlto.cuda import device, toolkit
from jitlto.errors import ArchitectureError
from jitlto.model import compatibility
from jitlto.model.fragment import Fragment, Image, ImageKind
from jitlto.model.options import LinkOptions
from jitlto.model.versions import Architecture, Version
from jitlto.runtime.linking.cache_entry import LinkedKernel

if TYPE_CHECKING:
    from jitlto.cuda.nvjitlink import LinkInput

_warned: set[str] = set()


class LinkTarget(Struct, frozen=True):
    """The target of a link, and the kind of code that the installed nvJitLink makes for it.

    Args:
        architecture: The architecture that the kernel will run on.
        link_mode: ``lto``, or ``ptx`` if it was requested or if fragments and nvJitLink have different CUDA majors.
        nvjitlink: The version of nvJitLink.
        jit_base: If the target is too new for nvJitLink, the older architecture for which PTX is made, which the driver
            compiles when the kernel is loaded; None if a cubin is made for the target itself.
        foreign: If LTO-IR was requested but was made with a different CUDA major than nvJitLink, the version of that
            compiler.
        linked_for: The architecture that nvJitLink links for.
        code: The target of the code as nvJitLink spells it: ``sm_90``, or ``compute_90`` for PTX.
    """

    architecture: Architecture
    link_mode: str
    nvjitlink: Version
    jit_base: Architecture | None
    foreign: Version | None
    linked_for: Architecture
    code: str


def choose_target(fragments: Sequence[Fragment], link_mode: str, arch: Architecture | None) -> LinkTarget:
    """Choose the target and link mode for fragments.

    Args:
        fragments: The fragments to link.
        link_mode: The requested mode.
        arch: The requested architecture; None for that of the current device.

    Raises:
        NoDeviceError: If no architecture is given and there is no device.
    """
    linker = toolkit.nvjitlink_version()
    target = arch or compatibility.native_target(device.architecture(), fragments)
    foreign = compatibility.newest_foreign_compiler(fragments, linker) if link_mode == "lto" else None
    mode = "ptx" if foreign else link_mode
    # Only link-time optimisation can produce PTX.
    jit_base = compatibility.jit_base(target, linker, requested=arch is not None) if mode == "lto" else None
    code = jit_base.compute if jit_base else target.sm
    return LinkTarget(target, mode, linker, jit_base, foreign, jit_base or target, code)


def select_images(fragments: Iterable[Fragment], target: LinkTarget, options: LinkOptions) -> tuple[Image, ...]:
    """Select the image of each fragment, in link order.

    If the link differs from the requested one, a warning is logged once per process.

    Raises:
        VersionError: If an image is too new for nvJitLink.
        ArchitectureError: If a fragment has no image that runs on the target.
    """
    kind = ImageKind.LTOIR if target.link_mode == "lto" else ImageKind.PTX
    linker = target.nvjitlink
    images = tuple(compatibility.select_image(fragment, kind, target.linked_for, linker) for fragment in fragments)
    if target.foreign:
        _warn_once(
            f"LTO-IR of CUDA {target.foreign} does not link with nvJitLink {linker}: "
            "linking PTX instead, without link-time optimisation"
        )
    if target.jit_base:
        _warn_once(
            f"nvJitLink {linker} does not link for {target.architecture.sm}: "
            f"making PTX for {target.jit_base.compute} instead, which the driver compiles"
            + "".join(f", without {name}" for name in options.assembler_options())
        )
    return images


def link_inputs(
    fragments: Iterable[tuple[Fragment, Image]],
    read: Callable[[Image], bytes],
    others: Iterable[LinkInput],
    target: LinkTarget,
    flags: Sequence[str],
    *,
    entry: str,
    ptx: bool = False,
) -> LinkedKernel:
    """Link, without using caches.

    Args:
        fragments: The fragments with their images, in link order.
        read: Returns the bytes of an image.
        others: The caller's inputs, linked after the fragments.
        target: The target and link mode.
        flags: nvJitLink's flags except the architecture.
        entry: The kernel's mangled name.
        ptx: Make PTX for inspection and checks, even if the target needs a cubin.

    Raises:
        LinkError: Or a subclass, if the inputs do not link.
    """
    from jitlto.cuda.nvjitlink import (
        InputKind,
        LinkInput,
        check_linked_ptx,
        link,
    )  # imported lazily: a cache hit does not need it

    begin = time.perf_counter()
    kind = InputKind.FATBIN if target.link_mode == "lto" else InputKind.PTX
    inputs = [LinkInput(kind, read(image), fragment.key.text) for fragment, image in fragments] + list(others)
    base = target.jit_base
    binary = [item.name for item in inputs if item.kind not in (InputKind.LTOIR, InputKind.FATBIN)]
    if base and binary:
        raise ArchitectureError(
            f"{', '.join(binary)} cannot become part of PTX for {base.compute}: it is not LTO-IR",
            code="link-architecture-input",
            hint="give its source or LTO-IR, or install an nvJitLink that links for the target",
        )
    linked = link(inputs, target.linked_for, flags, ptx=ptx or base is not None)
    if base and not ptx:
        check_linked_ptx(linked)
    return LinkedKernel(linked.data, entry, target.code, linked.log, time.perf_counter() - begin)


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        import logging  # imported lazily: takes 2 ms, and is rarely needed

        logging.getLogger(__name__).warning(message)
