"""The choice of images: which of each fragment is linked, and for which architecture."""

from collections.abc import Iterable

from jitlto.base.errors import ArchitectureError, VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda.compatibility import ltoir_links, machine_code_links, newest_ptx_isa, runs_on
from jitlto.record.fragment import BINARY, Fragment, Image, ImageKind


def native_target(own: Architecture, fragments: Iterable[Fragment]) -> Architecture:
    """Return the target for fragments on a device of architecture ``own``.

    Code built for exactly this architecture or family may use instructions that plain code cannot.
    """
    available = {image.architecture for f in fragments for image in f.images_of(ImageKind.LTOIR)}
    special = [Architecture(own.number, suffix) for suffix in "af"]
    return next((each for each in special if any(a.suffix and runs_on(a, each) for a in available)), own)


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
    fitting = [image for image in readable if _fits(image, target)]
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


def _fits(image: Image, target: Architecture) -> bool:
    links = machine_code_links if image.kind is ImageKind.SASS else runs_on
    return links(image.architecture, target)


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
