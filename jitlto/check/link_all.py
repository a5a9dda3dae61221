"""Linking many kernels in parallel to find all that fail; the results are discarded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jitlto.base.errors import JitltoError, VersionError
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_read, compiler_for, toolchain_hint
from jitlto.cuda.nvjitlink_file import name_loaded
from jitlto.link.parallel import run_parallel
from jitlto.plan.enumeration import Kernel
from jitlto.plan.plan import Plan
from jitlto.record.fragment import Fragment, ImageKind
from jitlto.runtime.family import KernelFamily


@dataclass(frozen=True, slots=True)
class LinkJob:
    """One kernel to link for one architecture."""

    family: KernelFamily
    kernel: Kernel
    arch: Architecture
    mode: str

    def plan(self) -> Plan:
        """Return the kernel's plan."""
        options = self.family.record.link_options(self.kernel.resolution.fragments)
        return Plan(
            self.family.name,
            self.kernel.resolution,
            (),
            options,
            options,
            self.mode,
            self.arch,
            self.family.database,
            self.family.session,
        )


def require_readable(fragments: Sequence[Fragment], mode: str, where: str) -> None:
    """Check that the installed nvJitLink reads every fragment.

    Args:
        fragments: All fragments to link.
        mode: ``lto`` or ``ptx``.
        where: The database, as shown in the message.

    Raises:
        VersionError: If it cannot read one of the fragments.
        ToolchainError: If there is no nvJitLink.
    """
    linker = nvjitlink.version()
    kind = ImageKind.LTOIR if mode == "lto" else ImageKind.PTX
    unreadable = [f for f in fragments if not any(can_read(image, linker) for image in f.images_of(kind))]
    if not unreadable:
        return
    what = "LTO-IR" if kind is ImageKind.LTOIR else "PTX"
    images = [image for f in unreadable for image in f.images]
    if not images:  # no build makes such fragments
        what, hint = f"cannot be linked: fragments without images, such as {unreadable[0].key}", "build it again"
        raise VersionError(what, code="link-version-unreadable", where=where, hint=hint)
    made = max(image.version for image in images)
    some = any(image.kind is kind for image in images)
    count = "its" if len(unreadable) == len(fragments) else f"{len(unreadable)} of its {len(fragments)}"
    state = f"hold {what} made by CUDA {made}" if some else f"hold no {what}"
    remedy = f"install an nvJitLink of CUDA {made.major}, {made} or newer ({toolchain_hint(made, linker)})"
    remedy += f", or build them with {compiler_for(made, linker)}" if some else ""
    if mode == "ptx" and not some:
        remedy = 'link the LTO-IR instead: --mode lto; or build with images = ["ltoir", "ptx"] in family.toml'
    if mode == "lto" and all(any(can_read(i, linker) for i in f.images_of(ImageKind.PTX)) for f in unreadable):
        remedy = f"link the PTX instead: --mode ptx; or {remedy}"
    what = f"cannot be linked by nvJitLink {linker}: {count} fragments {state}"
    raise name_loaded(VersionError(what, code="link-version-unreadable", where=where, hint=remedy), linker)


def link_all(
    jobs: Iterable[LinkJob], workers: int | None = None
) -> Iterator[tuple[int, LinkJob, JitltoError | list[str] | None]]:
    """Link in parallel; yield position, job, and error or warnings as links finish. See :func:`run_parallel`."""

    def link(job: LinkJob) -> list[str] | None:
        return job.plan().link(use_cache=False).warnings or None

    return run_parallel(link, jobs, workers)
