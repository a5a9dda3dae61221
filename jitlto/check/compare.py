"""Comparison of the inline functions of fragments that meet in a kernel, on what is compiled."""

import heapq
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import combinations

from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import JitltoError, LinkError, ToolchainError
from jitlto.base.mangling import is_toolkit_name
from jitlto.base.versions import Architecture
from jitlto.build.causes import Found, found_in
from jitlto.build.proof import FamilyProof
from jitlto.check.links import LinkJob, Work, require_readable
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_link_for, linkable_architectures
from jitlto.cuda.nvjitlink import stored_input
from jitlto.link.definitions import CONFLICT, ConflictSearch, LinkedAlone, conflict
from jitlto.link.parallel import default_workers
from jitlto.plan.enumeration import Kernel
from jitlto.plan.images import linked_kind
from jitlto.plan.user_code.inputs import make_stub
from jitlto.record.fragment import BINARY, Fragment, ImageKind
from jitlto.runtime.family import KernelFamily

_MANY = 8  # inputs of a comparison that uses all cores by itself


def compare_family(family: KernelFamily, proof: FamilyProof, work: Work) -> tuple[list[Found], list[Found], int | None]:
    """Compare the inline functions of every two fragments that meet in a kernel, for each architecture of a family.

    Returns:
        Failures, notes, and the number of pairs of fragments; None if they could not be compared.
    """
    try:
        linker = nvjitlink.version()
        make_stub([], family.session.kernel_cache.store)  # what callers install need not bring NVRTC
        require_readable(family.index.fragments, str(family.database.path))
    except JitltoError as reason:
        message, code = f"inline functions are not compared: {reason.diagnostic.message}", "build-uncompared"
        note = Diagnostic.at(None, message, code, Severity.NOTE, hint=reason.hint)
        return [], [found_in(note, family.name, {})], None
    # For each architecture that fragments were compiled for, one as close to it as the linker allows.
    able, known = partial(can_link_for, linker), [Architecture(number) for number in linkable_architectures(linker)]
    images = [(f.key, i) for f in family.index.fragments for i in f.images if i.toolchain == BINARY]
    binaries, wanted = {key for key, _ in images}, {*family.record.architectures, *(i.architecture for _, i in images)}
    found = (a if able(a) else next((b for b in known if b.number >= a.number and not a.suffix), None) for a in wanted)
    targets = sorted({target for target in found if target is not None})
    chosen = [kernel for kernel in choose_kernels(proof.kernels) if kernel.resolution.device]
    members = [sorted(fragment.key.text for fragment in kernel.resolution.fragments) for kernel in chosen]
    pairs = {pair for keys in members for pair in combinations(keys, 2)}
    every = (LinkJob.make(family, kernel, target) for target in targets for kernel in chosen)
    # A compiled file may be for fewer architectures.
    jobs = [j for j in every if binaries.isdisjoint(f.key for f in j.plan.fragments) or j.has_images()]
    failures = []
    linked = {target: LinkedAlone() for target in targets}
    for job, error in work.do(partial(_compare, family, linked), jobs, "comparison", _alike)[0]:
        if isinstance(error, ToolchainError):
            raise error
        if error.code == CONFLICT:  # of sources, whatever the target
            failures.append(found_in(error.diagnostic, job.plan.entry.key.text, job.kernel.configuration))
        else:
            failures.append(job.failure(error))
    texts, notes = _compare_compiled(family.name, chosen)
    return [*failures, *texts], notes, len(pairs) if targets else None


def _compare_compiled(family: str, kernels: Sequence[Kernel]) -> tuple[list[Found], list[Found]]:
    """Compare the weak functions of fragments without LTO-IR, as PTX has them; return failures, and a note on the rest.

    Other releases write other PTX for the same text.
    """
    failures, compiled = dict[tuple[Fragment, ...], Found](), set[str]()
    for kernel in kernels:
        for pair in combinations(kernel.resolution.fragments, 2):
            keys = [each.key.text for each in pair if linked_kind(each, ImageKind.LTOIR) is not ImageKind.LTOIR]
            compiled.update(keys)
            if not keys or len({image.ptx_isa for each in pair for image in each.images_of(ImageKind.PTX)}) != 1:
                continue
            one, other = (dict(each.bodies) for each in pair)
            both = (name for name in sorted(one.keys() & other.keys()) if not is_toolkit_name(name))
            if differing := [name for name in both if one[name] != other[name]]:
                error = conflict(pair[0].key.text, pair[1].key.text, differing)
                failures.setdefault(pair, found_in(error, keys[0], kernel.configuration))
    if not compiled:
        return [], []
    message = "functions already compiled to machine code, inlined in PTX, or in PTX of another release or in a fatbin "
    message += f"are not compared: those of {', '.join(sorted(compiled))}"
    note = Diagnostic.at(None, message, "build-uncompared", Severity.NOTE, hint="give LTO-IR too")
    return [*failures.values()], [found_in(note, family, {})]


def choose_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Choose kernels that have every fragment, and in which every two meet that meet in any of a family's kernels."""
    members = [{fragment.key.text: "" for fragment in kernel.resolution.fragments} for kernel in kernels]
    return [kernels[number] for number in choose_cover(members, 2)]


def choose_cover(configurations: Sequence[Mapping[str, str]], strength: int) -> list[int]:
    """Return the places of configurations that contain every combination of ``strength`` values that occurs in any.

    Greedy and deterministic: each step takes the first configuration with the most combinations not covered yet. A
    configuration with fewer than ``strength`` parameters counts as one combination. Nearly every fault depends on the
    values of a few parameters (D. R. Kuhn, R. N. Kacker, Y. Lei, «Practical Combinatorial Testing», NIST SP 800-142).
    """
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    remaining = []
    for configuration in configurations:
        items = sorted(configuration.items())
        found = combinations(items, min(strength, len(items)))
        remaining.append({numbers.setdefault(combination, len(numbers)) for combination in found})
    # Counts of combinations not covered yet only shrink, so the greatest old count is the maximum if still right.
    queue = [(-len(own), place) for place, own in enumerate(remaining)]
    heapq.heapify(queue)
    covered: set[int] = set()
    chosen = []
    while len(covered) < len(numbers):
        bound, place = heapq.heappop(queue)
        remaining[place] -= covered
        if len(remaining[place]) == -bound:
            chosen.append(place)
            covered |= remaining[place]
        elif remaining[place]:
            heapq.heappush(queue, (-len(remaining[place]), place))
    return sorted(chosen)


def _alike(job: LinkJob) -> Hashable:
    """Return what kernels have in common that are compared in one link: all but their entrypoints."""
    return job.plan.target, tuple(fragment.key.text for fragment in job.kernel.resolution.device)


def _compare(
    family: KernelFamily, linked: Mapping[Architecture, LinkedAlone], jobs: Sequence[LinkJob]
) -> list[JitltoError | None]:
    """Compare the fragments of some kernels at once, and where they do not agree, of each alone."""
    plan = jobs[0].plan
    every = {f.key: (f, image) for job in jobs for f, image in zip(job.plan.fragments, job.plan.images, strict=True)}
    pairs = [pair for pair in every.values() if pair[1].kind is ImageKind.LTOIR]
    inputs = [stored_input(plan.database.read(image), fragment.key.text) for fragment, image in pairs]
    workers = default_workers() if len(jobs) == 1 and len(inputs) > _MANY else 1
    how = plan.options, family.session.kernel_cache.store, workers, linked[plan.target]
    try:
        search = ConflictSearch(inputs, [fragment.provides for fragment, _ in pairs], plan.target, *how)
        if len(jobs) == 1:
            return [search.find()]
        if search.agree():
            return [None] * len(jobs)
    except LinkError as error:  # perhaps two kernels have one name
        if len(jobs) == 1:
            return [error]
    return [error for job in jobs for error in _compare(family, linked, [job])]
