"""Comparison of the inline functions of fragments that meet in a kernel, on what is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from jitlto.base.errors import JitltoError, ToolchainError
from jitlto.base.versions import Architecture, Version
from jitlto.build.findings import Finding, Kind, link_failure, message_of
from jitlto.build.proof import FamilyProof
from jitlto.check.covering_array import choose_cover
from jitlto.check.link_all import LinkJob, require_readable
from jitlto.check.scope import Scope
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_link_for, linkable_architectures
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.link.definitions import CONFLICT, find_conflict
from jitlto.link.parallel import default_workers, run_parallel
from jitlto.plan.user_code.inputs import make_stub
from jitlto.runtime.family import KernelFamily

_MANY = 8  # inputs of a comparison that uses all cores by itself


@dataclass(frozen=True, slots=True)
class FamilyComparison:
    """The result for one family; ``pairs`` is how many pairs of fragments were compared, None if none could be."""

    failures: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    pairs: int | None = None


def compare_family(family: KernelFamily, proof: FamilyProof, scope: Scope) -> FamilyComparison:
    """Compare the inline functions of every two fragments that meet in a kernel, for each architecture of a family.

    Of several shares, each compares some kernels' fragments; ``pairs`` is the number of all.
    """
    try:
        linker = nvjitlink.version()
        make_stub([], family.session.kernel_cache.store)  # what callers install need not bring NVRTC
        require_readable(family.database.planned(family.name)[1], "lto", str(family.database.path))
    except JitltoError as reason:
        message = f"inline functions are not compared: {message_of(reason)}"
        return FamilyComparison(notes=(Finding(Kind.UNCOMPARED, message, reason.hint, family.name, code=reason.code),))
    jobs: list[LinkJob] = []
    pairs = None
    for target in comparable_targets(family.record.architectures, linker):
        chosen, pairs = choose_comparisons([LinkJob(family, kernel, target, "lto") for kernel in proof.kernels])
        jobs += chosen
    found: dict[int, Finding] = {}
    work = scope.run(
        partial(run_parallel, _compare), scope.shard.share(jobs), lambda j: scope.link_key(j, "comparison")
    )
    for position, job, error in work:
        if isinstance(error, ToolchainError):
            raise error
        if error is not None:
            found[position] = _finding(job, error)
    return FamilyComparison(tuple(found[position] for position in sorted(found)), (), pairs)


def _finding(job: LinkJob, error: JitltoError) -> Finding:
    subject, configuration = str(job.kernel.resolution.entry.key), job.kernel.configuration
    if error.code == CONFLICT:
        return Finding(Kind.DEFINITION, message_of(error), error.hint, subject, configuration, code=error.code)
    return link_failure(error, subject, configuration, job.arch.sm)


def choose_comparisons(jobs: Sequence[LinkJob]) -> tuple[list[LinkJob], int]:
    """Choose kernels in which every two fragments meet that meet in any kernel.

    Args:
        jobs: Every kernel of a family, for one target.

    Returns:
        The kernels, and the number of pairs of fragments.
    """
    members = [dict.fromkeys((f.key.text for f in job.kernel.resolution.fragments), "") for job in jobs]
    cover, _ = choose_cover(members, 2)
    chosen = [jobs[number] for number in cover if len(members[number]) > 1]
    return chosen, len({pair for job in chosen for pair in combinations(sorted(_keys(job)), 2)})


def _keys(job: LinkJob) -> list[str]:
    return [fragment.key.text for fragment in job.kernel.resolution.fragments]


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
    if conflict := find_conflict(
        inputs, [f.provides for f in fragments], plan.link_target.linked_for, plan.options, store, workers
    ):
        raise conflict.error()
