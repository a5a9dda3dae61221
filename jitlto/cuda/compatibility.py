"""How fragments link with an nvJitLink for a target.

Sources of the rules: NVIDIA's «CUDA 12.0 Compiler Support for Runtime LTO Using nvJitLink Library» (LTO-IR links within
a major release, with an nvJitLink at least as new as the compiler; across majors PTX or SASS is linked), the nvJitLink
reference, and the PTX ISA's release history (which PTX version came with which toolkit).
"""

from collections.abc import Iterable

from jitlto.base.errors import ArchitectureError, VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.record.fragment import BINARY, Fragment, Image, ImageKind


def runs_on(base: Architecture, target: Architecture) -> bool:
    """Return whether code compiled for the virtual architecture ``base`` may be linked for ``target``.

    Plain code links upward to every later architecture. Architecture-specific code (``a``) stays on its own, and
    family-specific code (``f``) within the family, which is the compute capability's major number.
    """
    if base.suffix == "a":
        return target == base
    if base.suffix == "f":
        same_family = base.number // 10 == target.number // 10
        return same_family and base.number <= target.number and target.suffix != ""
    return base.number <= target.number


def machine_code_links(code: Architecture, target: Architecture, linker: Version) -> bool:
    """Return whether the nvJitLink of version ``linker`` links machine code for ``code`` for ``target``.

    Machine code is for its own major number, from its minor on; architecture-specific code (``a``) is for that alone.
    """
    if code.suffix == "a":  # nvJitLink 12 links code for sm_90a for sm_90 too
        return target.number == code.number and (target.suffix == "a" or linker.major < 13)
    return code.number // 10 == target.number // 10 and code.number <= target.number


def ltoir_links(compiler: Version, linker: Version) -> bool:
    """Return whether LTO-IR made by ``compiler`` links with the nvJitLink of version ``linker``."""
    return compiler.major == linker.major and compiler <= linker


# PTX ISA versions lag their toolkit's minor in two places only: 12.6 brought none, and 12.7 was never released as one.
_PTX_ISA_12 = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 8: 7, 9: 8}


def newest_ptx_isa(toolkit: Version) -> Version:
    """Return the newest PTX ISA version that toolkit ``toolkit`` reads (CUDA 12 reads up to 8.8, 13.n reads 9.n)."""
    if toolkit.major == 12:
        return Version(8, _PTX_ISA_12.get(toolkit.minor, 8))
    return Version(toolkit.major - 4, toolkit.minor)


# Real architectures by number: the first and the last toolkit release that links for them (None: still does). Source:
# the release notes, and the architecture lists of NVRTC and nvJitLink 12.9 and 13.5.
_FIRST, _CUDA12 = Version(12, 0), Version(12, 99)
_REAL: dict[int, tuple[Version, Version | None]] = {
    **dict.fromkeys((50, 52, 53, 60, 61, 62, 70, 72), (_FIRST, _CUDA12)),
    **dict.fromkeys((75, 80, 86, 87, 89, 90), (_FIRST, None)),
    **dict.fromkeys((100, 120), (Version(12, 8), None)),
    **dict.fromkeys((103, 121), (Version(12, 9), None)),
    **dict.fromkeys((88, 107, 110), (Version(13, 0), None)),
    101: (Version(12, 8), _CUDA12),
}
# Suffixes: the lowest architecture that has them, and the first release.
_SUFFIXES = {"": (0, _FIRST), "a": (90, _FIRST), "f": (100, Version(12, 9))}
_NEWEST_KNOWN = Version(13, 5)


def linkable_architectures(linker: Version) -> list[int]:
    """Return the numbers of the architectures that nvJitLink ``linker`` is known to link for, sorted."""
    return sorted(number for number in _REAL if _links_for(linker, number))


def _links_for(linker: Version, number: int) -> bool:
    first, last = _REAL[number]
    return first <= linker and (last is None or linker <= last)


def can_link_for(linker: Version, target: Architecture) -> bool:
    """Return whether nvJitLink ``linker`` links for ``target``; a version newer than this table may know newer targets.

    Ask before nvJitLink does: given an architecture that it does not know, version 12.9 may crash.
    """
    first_number, first_linker = _SUFFIXES[target.suffix]
    if target.number < first_number or linker < first_linker:
        return False
    if target.number in _REAL:
        return _links_for(linker, target.number)
    return linker > _NEWEST_KNOWN and target.number > max(_REAL)


def native_target(own: Architecture, fragments: Iterable[Fragment]) -> Architecture:
    """Return the target for fragments on a device of architecture ``own``.

    Code built for exactly this architecture or family may use instructions that plain code cannot.
    """
    available = {image.architecture for f in fragments for image in f.images_of(ImageKind.LTOIR)}
    special = [Architecture(own.number, suffix) for suffix in "af"]
    return next((each for each in special if any(a.suffix and runs_on(a, each) for a in available)), own)


def check_target(target: Architecture, linker: Version) -> None:
    """Check that nvJitLink can link for a target.

    Raises:
        ArchitectureError: If it cannot.
    """
    if not can_link_for(linker, target):
        raise ArchitectureError(
            f"nvJitLink {linker} does not link for {target.sm}",
            code="link-architecture-unsupported",
            hint=f"it links for {', '.join(f'sm_{n}' for n in linkable_architectures(linker))}; "
            "a newer architecture needs a newer nvJitLink",
        )


def select_images(
    fragments: Iterable[Fragment], link_mode: str, target: Architecture, linker: Version
) -> tuple[Image, ...]:
    """Select the image of each fragment to link in a mode, in link order.

    Raises:
        VersionError, ArchitectureError: As :func:`select_image`.
    """
    kind = ImageKind.LTOIR if link_mode == "lto" else ImageKind(link_mode)
    return tuple(select_image(each, linked_kind(each, kind), target, linker) for each in fragments)


def linked_kind(fragment: Fragment, kind: ImageKind) -> ImageKind:
    """Return which kind of images is linked of a fragment beside a kind of others: of a binary, perhaps another."""
    held = {image.kind for image in fragment.images if image.toolchain == BINARY}
    return kind if not held or kind in (*held, ImageKind.SASS) else min(held - {ImageKind.LTOIR}, default=kind)


def select_image(fragment: Fragment, kind: ImageKind, target: Architecture, linker: Version) -> Image:
    """Select the image of a fragment to link: of those that nvJitLink can read, the one closest to the target.

    Raises:
        VersionError: If there is none of that kind, or nvJitLink is too old for them.
        ArchitectureError: If none runs on the target.
    """
    images = list(fragment.images_of(kind))
    if not images:
        other, among = newest_foreign(fragment.images, linker), f"{kind} among its images"
        made = f" that CUDA {_versions(fragment.images)} made" if fragment.images else ""
        raise VersionError(
            f"{fragment.key} has no {kind} image{made}, which a link of {kind} with nvJitLink {linker} needs",
            code="link-version-no-image",
            hint=f"{_remedies(other, linker)}, or with {among}" if other else f"build the family with {among}",
        )
    readable = [image for image in images if can_read(image, linker)]
    if not readable:
        isa = max((i.ptx_isa for i in images if i.ptx_isa), default=None)
        what = f"PTX {isa}" if isa else {ImageKind.LTOIR: "LTO-IR"}.get(kind, "cubins")
        made = f"{images[0].toolchain} {_versions(images)}"
        raise VersionError(
            f"{fragment.key} has {what} made by {made}, which nvJitLink {linker} cannot read",
            hint=_remedies(max(i.version for i in images), linker),
        )
    fitting = [image for image in readable if _fits(image, target, linker)]
    if not fitting:
        archs, among = ", ".join(image.code for image in readable), "sass" if kind is ImageKind.SASS else "archs"
        is_file = readable[0].toolchain == BINARY
        how = (
            f"compile its file to {kind} for that one too"
            if is_file
            else f"build the family with that one among its {among}"
        )
        raise ArchitectureError(
            f"{fragment.key} was compiled for {archs}, which does not run on {target.sm}",
            hint=f"link for a later architecture, or {how}",
        )
    return max(fitting, key=lambda image: image.architecture)


def _fits(image: Image, target: Architecture, linker: Version) -> bool:
    if image.kind is ImageKind.SASS:
        return machine_code_links(image.architecture, target, linker)
    return runs_on(image.architecture, target)


def can_read(image: Image, linker: Version) -> bool:
    """Return whether nvJitLink ``linker`` reads an image."""
    if image.kind is ImageKind.LTOIR:
        return ltoir_links(image.version, linker)
    if image.kind is ImageKind.SASS:  # an older nvJitLink may die of it
        return image.version <= linker
    return image.ptx_isa is not None and image.ptx_isa <= newest_ptx_isa(linker)


def newest_foreign(images: Iterable[Image], linker: Version) -> Version | None:
    """Return the newest compiler of a different CUDA major than ``linker`` that made one of the images."""
    return max((image.version for image in images if image.version.major != linker.major), default=None)


def _remedies(compiler: Version, linker: Version) -> str:
    """Return the remedies for LTO-IR or PTX that nvJitLink cannot read: replace the one or the other."""
    # Two CUDA majors in one environment would shadow each other.
    place = "" if compiler.major == linker.major else "in an environment of its own: "
    command = f"({place}pip install -U 'jitlto[cu{compiler.major}]')"
    if compiler < linker:
        return f"install an nvJitLink of CUDA {compiler.major} {command}, or build the family with CUDA {linker.major}"
    at_least = f"install an nvJitLink of at least {compiler} {command}"
    return f"{at_least}, or build the family with a compiler no newer than {linker}"


def _versions(images: Iterable[Image]) -> str:
    return " and ".join(sorted({str(image.version) for image in images}))
