"""Linking many kernels in parallel to find all that fail; the results are discarded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jitlto.base.errors import JitltoError, VersionError
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_read, select_image
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


def require_readable(fragments: Iterable[Fragment], mode: str, where: str) -> None:
    """Check that the installed nvJitLink reads every fragment of a database, named ``where``, for links as ``mode``.

    Raises:
        VersionError: If it cannot read one of the fragments.
        ToolchainError: If there is no nvJitLink.
    """
    linker, kind = nvjitlink.version(), ImageKind.LTOIR if mode == "lto" else ImageKind.PTX
    for fragment in fragments:
        if not any(can_read(image, linker) for image in fragment.images_of(kind)):
            try:
                select_image(fragment, kind, Architecture(75), linker)
            except VersionError as error:
                error.where = where
                raise nvjitlink.name_loaded(error, linker) from None


def link_all(
    jobs: Iterable[LinkJob], workers: int | None = None
) -> Iterator[tuple[int, LinkJob, JitltoError | list[str] | None]]:
    """Link in parallel; yield position, job, and error or warnings as links finish. See :func:`run_parallel`."""

    def link(job: LinkJob) -> list[str] | None:
        return job.plan().link(use_cache=False).warnings or None

    return run_parallel(link, jobs, workers)
