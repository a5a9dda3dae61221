"""Comparison of the inline functions of fragments that meet in a kernel, on what is compiled."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from jitlto.base.errors import JitltoError, ToolchainError
from jitlto.base.versions import Architecture, Version
from jitlto.build.findings import Finding, Kind, link_failure, message_of
from jitlto.build.proof import FamilyProof
from jitlto.check.covering_array import choose_cover
from jitlto.check.links import LinkJob, Work, require_readable
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_link_for, linkable_architectures
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.link.definitions import CONFLICT, ConflictSearch
from jitlto.link.parallel import default_workers
from jitlto.plan.user_code.inputs import make_stub
from jitlto.runtime.family import KernelFamily

_MANY = 8  # inputs of a comparison that uses all cores by itself


def compare_family(
    family: KernelFamily, proof: FamilyProof, work: Work
) -> tuple[list[Finding], list[Finding], int | None]:
    """Compare the inline functions of every two fragments that meet in a kernel, for each architecture of a family.

    Of several shares, each compares some kernels' fragments.

    Returns:
        Failures, notes, and the number of pairs of fragments; None if they could not be compared.
    """
    try:
        linker = nvjitlink.version()
        make_stub([], family.session.kernel_cache.store)  # what callers install need not bring NVRTC
        require_readable(family.database.planned(family.name)[1], str(family.database.path))
    except JitltoError as reason:
        message = f"inline functions are not compared: {message_of(reason)}"
        return [], [Finding(Kind.UNCOMPARED, message, reason.hint, family.name, code=reason.code)], None
    jobs: list[LinkJob] = []
    pairs = None
    for target in comparable_targets(family.record.architectures, linker):
        chosen, pairs = choose_comparisons([LinkJob(family, kernel, target) for kernel in proof.kernels])
        jobs += chosen
    failures = []
    for job, error in work.do(_compare, work.shard.share(jobs), "comparison")[0]:
        if isinstance(error, ToolchainError):
            raise error
        failure = link_failure(error, job.subject, job.kernel.configuration, job.arch.sm)
        if error.code == CONFLICT:  # of sources, whatever the target
            failure = replace(failure, kind=Kind.DEFINITION, arch=None, log="")
        failures.append(failure)
    return failures, [], pairs


def choose_comparisons(jobs: Sequence[LinkJob]) -> tuple[list[LinkJob], int]:
    """Choose kernels in which every two fragments meet that meet in any kernel.

    Args:
        jobs: Every kernel of a family, for one target.

    Returns:
        The kernels, and the number of pairs of fragments.
    """
    members = [sorted(fragment.key.text for fragment in job.kernel.resolution.fragments) for job in jobs]
    cover, _ = choose_cover([dict.fromkeys(keys, "") for keys in members], 2)
    chosen = [number for number in cover if len(members[number]) > 1]
    pairs = {pair for number in chosen for pair in combinations(members[number], 2)}
    return [jobs[number] for number in chosen], len(pairs)


def comparable_targets(architectures: Iterable[Architecture], linker: Version) -> list[Architecture]:
    """Return a target for each architecture that fragments were compiled for, as close to it as the linker allows."""
    known = linkable_architectures(linker)
    targets = (
        a if can_link_for(linker, a) else next((Architecture(n) for n in known if n >= a.number and not a.suffix), None)
        for a in architectures
    )
    return sorted({target for target in targets if target is not None})


def _compare(job: LinkJob) -> None:
    plan, fragments = job.plan(), job.kernel.resolution.fragments
    inputs = [
        LinkInput(InputKind.FATBIN, plan.database.read(image), fragment.key.text)
        for fragment, image in zip(fragments, plan.images, strict=True)
    ]
    store, workers = job.family.session.kernel_cache.store, default_workers() if len(inputs) > _MANY else 1
    provided, target = [f.provides for f in fragments], plan.target
    if conflict := ConflictSearch(inputs, provided, target, plan.options, store, workers).find():
        raise conflict.error()
