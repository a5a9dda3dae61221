"""Comparison of the inline functions of fragments that meet in a kernel, on what is compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError, LinkError, ToolchainError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture, Version
from jitlto.build.findings import Finding, Kind, link_failure, message_of
from jitlto.check.alone import find_suspects
from jitlto.check.covering_array import choose_cover
from jitlto.check.link_all import LinkJob, require_readable
from jitlto.check.prove import FamilyProof
from jitlto.check.scope import Scope
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import can_link_for, can_read, linkable_architectures
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.cuda.ptx import Module
from jitlto.link.definitions import CONFLICT, find_conflict, strong_names
from jitlto.link.parallel import default_workers, run_parallel
from jitlto.plan.user_code.inputs import read_ltoir
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Symbol, SymbolKind
from jitlto.runtime.family import KernelFamily

_FEW = 8
_HIDDEN_HINT = "the link keeps the one that is not inline for both: define it inline in both, or rename one"


@dataclass(frozen=True, slots=True)
class FamilyComparison:
    """The result for one family; ``pairs`` is how many pairs of fragments were compared, None if none could be."""

    failures: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    pairs: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A kernel whose fragments are compared with each other.

    Args:
        positions: Those of the fragments that no other comparison covers.
    """

    job: LinkJob
    positions: tuple[int, ...]

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All of the kernel."""
        return self.job.kernel.resolution.fragments

    @property
    def is_large(self) -> bool:
        """Whether to link each fragment alone first, because so many links of all would take long."""
        return len(self.positions) > _FEW


def compare_family(family: KernelFamily, proof: FamilyProof, scope: Scope) -> FamilyComparison:
    """Compare the inline functions of every two fragments that meet in a kernel, for each architecture of a family.

    Of several shares, each compares some kernels' fragments; ``pairs`` is the number of all.
    """
    try:
        linker = nvjitlink.version()
        require_readable(family.database.planned(family.name)[1], "lto", str(family.database.path))
    except JitltoError as reason:
        message = f"inline functions are not compared: {message_of(reason)}"
        return FamilyComparison(notes=(Finding(Kind.UNCOMPARED, message, reason.hint, family.name, code=reason.code),))
    comparisons: list[Comparison] = []
    pairs = None
    for target in comparable_targets(family.record.architectures, linker):
        chosen, pairs = choose_comparisons([LinkJob(family, kernel, target, "lto") for kernel in proof.kernels])
        comparisons += chosen
    few = {fragment.key for each in comparisons if not each.is_large for fragment in each.fragments}
    failures = list(_find_hidden(family, proof, scope, few))

    def key(comparison: Comparison) -> str | None:
        strong = sorted(_strong_names(comparison))
        what = "comparison of many" if comparison.is_large else "comparison"
        return scope.link_key(comparison.job, what, comparison.positions, strong)

    found: dict[int, Finding] = {}
    for position, comparison, error in scope.run(partial(run_parallel, _compare), scope.shard.share(comparisons), key):
        if isinstance(error, ToolchainError):
            raise error
        if error is not None:
            found[position] = _finding(comparison.job, error)
    return FamilyComparison((*failures, *(found[position] for position in sorted(found))), (), pairs)


def _finding(job: LinkJob, error: JitltoError) -> Finding:
    subject, configuration = str(job.kernel.resolution.entry.key), job.kernel.configuration
    if error.code == CONFLICT:
        return Finding(Kind.DEFINITION, message_of(error), error.hint, subject, configuration, code=error.code)
    return link_failure(error, subject, configuration, job.arch.sm)


def choose_comparisons(jobs: Sequence[LinkJob]) -> tuple[list[Comparison], int]:
    """Choose kernels in which every two fragments that meet in any kernel are compared once.

    Args:
        jobs: Every kernel of a family, for one target.

    Returns:
        The comparisons, and the number of pairs of fragments.
    """
    members = [dict.fromkeys((f.key.text for f in job.kernel.resolution.fragments), "") for job in jobs]
    cover, _ = choose_cover(members, 2)
    seen: set[frozenset[FragmentKey]] = set()
    chosen = []
    for number in cover:
        fragments = jobs[number].kernel.resolution.fragments
        pairs = {pair: frozenset(fragments[n].key for n in pair) for pair in combinations(range(len(fragments)), 2)}
        new = {position for pair, keys in pairs.items() if keys not in seen for position in pair}
        seen.update(pairs.values())
        if new:
            chosen.append(Comparison(jobs[number], tuple(sorted(new))))
    return chosen, len(seen)


def comparable_targets(architectures: Iterable[Architecture], linker: Version) -> list[Architecture]:
    """Return a target for each architecture that fragments were compiled for, as close to it as the linker allows."""
    known = linkable_architectures(linker)
    targets = (
        a if can_link_for(linker, a) else next((Architecture(n) for n in known if n >= a.number and not a.suffix), None)
        for a in architectures
    )
    return sorted({target for target in targets if target is not None})


def _compare(comparison: Comparison) -> None:
    plan, fragments = comparison.job.plan(), comparison.fragments
    inputs = [
        LinkInput(InputKind.FATBIN, plan.database.read(image), fragment.key.text)
        for fragment, image in zip(fragments, plan.images, strict=True)
    ]
    target = plan.link_target.linked_for
    fronts, pairs = comparison.positions, [*combinations(comparison.positions, 2)]
    if comparison.is_large:
        store = comparison.job.family.session.kernel_cache.store
        suspects = find_suspects(inputs, fragments, target, plan.options)
        for position in suspects.differing:
            _check_hidden(inputs[position], fragments[position], fragments, store)
        named = {*suspects.differing, *suspects.unclear}
        cleared = next((position for position in range(len(inputs)) if position not in named), None)
        if cleared is not None:  # it means what all that are cleared mean
            fronts = (cleared, *sorted(named.intersection(fronts)))
            pairs = [pair for pair in pairs if not named.isdisjoint(pair)]
    workers = default_workers() if comparison.is_large else 1
    conflict = find_conflict(inputs, fronts, pairs, target, plan.options, _strong_names(comparison), workers)
    if conflict is not None:
        raise conflict.error()


def _check_hidden(
    content: LinkInput, fragment: Fragment, fragments: Sequence[Fragment], store: CacheDir | None
) -> None:
    """Check that no function is inline in a fragment, and not in another of a kernel."""
    own = {symbol.name for symbol in (*fragment.provides, *fragment.requires)}
    wanted = {name: (each, s) for each in fragments for name, s in _strong_functions(each).items() if name not in own}
    module = read_ltoir(content, [symbol for _, symbol in wanted.values()], store, "-O0")
    if hidden := sorted(_defined(module) & wanted.keys()):
        what = _say_hidden(hidden[0], fragment.key, wanted[hidden[0]][0].key)
        raise LinkError(what, code=CONFLICT, hint=_HIDDEN_HINT)


def _defined(module: Module | None) -> set[str]:
    return {name for name, each in module.declarations.items() if each.defined} if module else set()


def _say_hidden(name: str, one: FragmentKey, other: FragmentKey) -> str:
    return f"{demangle(name)} is inline in {one}, but not in {other}"


def _strong_functions(fragment: Fragment) -> dict[str, Symbol]:
    return {s.name: s for s in fragment.provides if not s.weak and s.kind is SymbolKind.FUNCTION}


def _strong_names(comparison: Comparison) -> set[str]:
    return strong_names(symbol for f in comparison.fragments for symbol in (*f.provides, *f.requires))


def _find_hidden(
    family: KernelFamily, proof: FamilyProof, scope: Scope, keys: Collection[FragmentKey]
) -> Iterator[Finding]:
    """Find functions that are inline in one fragment and not in another: the link keeps the latter in every order."""
    fragments = [f for f in family.database.planned(family.name)[1] if f.key in keys]
    strong = {fragment.key: _strong_functions(fragment) for fragment in fragments}
    wanted = {name: symbol for symbols in strong.values() for name, symbol in symbols.items()}
    every = scope.proofs.key("wanted", sorted(wanted))
    store = family.session.kernel_cache.store
    linker = nvjitlink.version()
    hidden: dict[FragmentKey, set[str]] = defaultdict(set)
    own = {f.key: {symbol.name for symbol in (*f.provides, *f.requires)} for f in fragments}
    asked = [
        (fragment, image)
        for fragment in scope.shard.share(fragments)
        if not wanted.keys() <= own[fragment.key]
        for image in fragment.images_of(ImageKind.LTOIR)
        if can_read(image, linker)
    ]

    def find(item: tuple[Fragment, Image]) -> set[str] | None:
        fragment, image = item
        content = LinkInput(InputKind.FATBIN, family.database.read(image), fragment.key.text)
        module = read_ltoir(content, list(wanted.values()), store, "-O0")
        return _defined(module) & wanted.keys() - own[fragment.key] or None

    def key(item: tuple[Fragment, Image]) -> str | None:
        fragment, image = item
        names = sorted(name for name in own[fragment.key] if name in wanted)
        about = image.sha256, str(image.architecture), str(linker), every, names
        return scope.proofs.image_key(family.database, (image,), "hidden", *about)

    for _, (fragment, _), found in scope.run(partial(run_parallel, find), asked, key):
        if isinstance(found, JitltoError):
            raise found
        if isinstance(found, set):
            hidden[fragment.key] |= found
    reported: set[tuple[FragmentKey, FragmentKey]] = set()
    for kernel in proof.kernels if hidden else ():
        among = [fragment for fragment in kernel.resolution.fragments if fragment.key in keys]
        for one, other in permutations(among, 2):
            names = hidden.get(one.key, set()) & strong[other.key].keys()
            if names and (one.key, other.key) not in reported:
                reported.add((one.key, other.key))
                what = _say_hidden(min(names), one.key, other.key)
                subject, configuration = str(one.key), kernel.configuration
                yield Finding(Kind.DEFINITION, what, _HIDDEN_HINT, subject, configuration, code=CONFLICT)
