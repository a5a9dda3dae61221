"""What a check links and compares: all that no earlier check has proved."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jitlto.base.errors import JitltoError, VersionError
from jitlto.base.versions import Architecture
from jitlto.build.proofs import Proofs
from jitlto.build.shards import Shard
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

    @property
    def subject(self) -> str:
        """The key of the kernel's entrypoint."""
        return str(self.kernel.resolution.entry.key)

    def plan(self) -> Plan:
        """Return the kernel's plan."""
        family, resolution = self.family, self.kernel.resolution
        options = family.record.link
        place = family.database, family.session
        return Plan(family.name, resolution, (), options, options, "lto", self.arch, *place)


@dataclass(frozen=True)
class Work:
    """How a check does its jobs, and whom it tells.

    Args:
        shard: The share of all jobs that is done.
        proofs: What need not be done again.
        workers: The number of parallel links.
        on_links: Called with the number of links or comparisons.
        on_link: Called with the position of each that is finished.
    """

    shard: Shard
    proofs: Proofs
    workers: int | None
    on_links: Callable[[int], object]
    on_link: Callable[[int], object]

    def do(
        self, call: Callable[[LinkJob], object], jobs: Sequence[LinkJob], of: str
    ) -> tuple[list[tuple[LinkJob, JitltoError]], int]:
        """Call a function for each job that has not been proved before.

        Args:
            call: Returns None where all is well; that is then proved, and with any other value it is not.
            jobs: The jobs, all of this share.
            of: What is proved of each.

        Returns:
            The jobs that raise an error, in order, and the number of those that were proved before.
        """
        self.on_links(len(jobs))
        keys = [self._key(job, of) for job in jobs]
        self.proofs.fetch(keys)
        known = {position for position, key in enumerate(keys) if self.proofs.has(key)}
        left = [position for position in range(len(jobs)) if position not in known]
        for position in known:
            self.on_link(position)
        failed: dict[int, JitltoError] = {}
        for number, _, found in run_parallel(call, (jobs[position] for position in left), self.workers):
            self.on_link(left[number])
            if found is None:
                self.proofs.add(keys[left[number]])
            elif isinstance(found, JitltoError):
                failed[left[number]] = found
        return [(jobs[position], failed[position]) for position in sorted(failed)], len(known)

    def _key(self, job: LinkJob, of: str) -> str | None:
        """Return the key of a proof about a kernel; None if it cannot be linked, or an image is damaged."""
        try:
            plan = job.plan()
            return self.proofs.image_key(plan.database, plan.images, of, plan.digest)
        except JitltoError:
            return None  # whoever links it says why


def require_readable(fragments: Iterable[Fragment], where: str) -> None:
    """Check that the installed nvJitLink reads the LTO-IR of every fragment of a database, named ``where``.

    Raises:
        VersionError: If it cannot read one of the fragments.
        ToolchainError: If there is no nvJitLink.
    """
    linker = nvjitlink.version()
    for fragment in fragments:
        if not any(can_read(image, linker) for image in fragment.images_of(ImageKind.LTOIR)):
            try:
                select_image(fragment, ImageKind.LTOIR, Architecture(75), linker)
            except VersionError as error:
                error.where = where
                raise nvjitlink.name_loaded(error, linker) from None
