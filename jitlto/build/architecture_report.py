"""Which fragments would make other code for later architectures than those they are compiled for, and what is gained.

A sample is compared, so that it takes a small part of the build: of each group first the fragments whose values name
16-bit and 8-bit types, then those with values that no other in the sample has.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.build.architecture_notes import ArchitectureNote, ArchitectureReport, Gain, NotCompared
from jitlto.build.cache.cache import Cache
from jitlto.build.execution import transport
from jitlto.build.execution.request import CompileRequest
from jitlto.compile.architecture_tests import comparable_architectures, find_features
from jitlto.compile.architectures import RENAMES, Known, narrow_tests, points_to_compare
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.cuda import nvjitlink
from jitlto.record.fragment import FragmentKey, ImageKind
from jitlto.record.headers import split_leading_includes

_KIND, _REVISION = "architectures", 2  # of entries in the build cache
_PART = 0.12  # of a build's estimated time is for compiling a sample; links and small builds make it twice as much
# A comparison reads all includes of a source; in a build, sources with the same includes read them once and take this.
_MILLISECONDS, _FRACTION = 50, 0.125
_NVCC = 1000  # milliseconds to start nvcc
# Values of parameters by how likely code with them differs.
_LIKELY = (re.compile(r"half|bf16|bfloat|fp[468]|e4m3|e5m2|e8m0|float(?:4|6|8|16)"), re.compile(r"bf|fp[468]|e\dm\d"))
_NO_LINKER = "nvJitLink is not installed"
_NOT_SAMPLED = 'the sample has none of their fragments; archs = "auto" compares all'
_FAILED = "the comparison failed"

#: Submits a job with the function to run.
Submit = Callable[..., "Future[_Found]"]


class _Result(Struct, frozen=True):
    """What comparing one fragment gave; as kept in the build cache."""

    gains: tuple[Gain, ...] = ()
    is_renamed: bool = False
    obstacle: str = ""


_NOTHING = _Result()
_Found = tuple[_Result, Known]
_Kept = TypeVar("_Kept", _Result, ArchitectureReport)


@dataclass
class _Item:
    """A fragment whose code may differ."""

    key: FragmentKey
    job: CompileJob
    compiled: CompiledSource
    points: tuple[Architecture, ...]
    source_key: str
    cost: int  # estimated milliseconds of a compile for one architecture
    result: _Result = _NOTHING
    known: Known | None = None
    group: str = field(init=False)
    #: The includes that a compile of the item begins with, and its options.
    head: tuple[bytes, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.group = _group_of(self.key)
        self.head = split_leading_includes(self.job.source.text)[0], self.job.options


def compare_architectures(
    requests: Sequence[CompileRequest],
    sources: Mapping[int, CompiledSource],
    submit: Submit,
    cache: Cache | None,
    *,
    changed: bool,
) -> ArchitectureReport:
    """Compare a sample of a build's fragments, except those of families that ship such code already.

    Args:
        requests, sources: The build's, by position.
        submit: Runs a function with a job in a worker.
        cache: Where results are looked up and stored.
        changed: Whether anything was compiled; if not, the report of the last build with these fragments is returned.
    """
    try:
        linker: Version | None = nvjitlink.version()
    except JitltoError:
        linker = None  # nothing can be linked here
    identity = [_REVISION, str(linker), [_identify(requests[p], sources[p]) for p in sorted(sources)]]
    whole = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    if not changed and (known := _read(cache, whole, ArchitectureReport)) is not None:
        return known
    open_positions = [p for p in sorted(sources) if not requests[p].config.candidates]
    reasons = _untested_features(requests[p] for p in sorted(sources))
    notes: tuple[ArchitectureNote, ...] = ()
    for position in sources.keys() - set(open_positions):
        if _is_renamed(sources[position]):
            reasons[RENAMES].add(_group_of(requests[position].key))
    if linker is None:
        reasons[_NO_LINKER].update(_group_of(requests[p].key) for p in open_positions)
    else:
        totals = Counter(_group_of(requests[p].key) for p in open_positions)
        items, milliseconds = _find_items(requests, sources, open_positions, linker)
        sample = _compare_sample(items, int(_PART * milliseconds), submit, cache)
        notes = _make_notes(sample, totals)
        reasons[_NOT_SAMPLED].update({item.group for item in items} - {item.group for item in sample})
        for item in sample:
            reasons[item.result.obstacle].add(item.group)
    missing = (
        NotCompared(tuple(sorted(groups)), reason, reason == _NOT_SAMPLED)
        for reason, groups in reasons.items()
        if reason and groups
    )
    report = ArchitectureReport(notes, tuple(sorted(missing, key=lambda each: (each.groups, each.reason))))
    if cache:
        cache.put(_KIND, whole, msgspec.json.encode(report))
    return report


def _read(cache: Cache | None, key: str, kind: type[_Kept]) -> _Kept | None:
    """Return what an earlier build stored; None if there is nothing, or it is damaged."""
    data = cache.find(_KIND, [key]).get(key, (None, None))[0] if cache else None
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        return msgspec.json.decode(data, type=kind) if data is not None else None
    return None


def _identify(request: CompileRequest, compiled: CompiledSource) -> list[str]:
    images = hashlib.sha256(b"".join(data for kind, _, data in compiled.images if kind is ImageKind.LTOIR))
    return [str(request.key), images.hexdigest(), *map(str, request.config.candidates)]


def _is_renamed(compiled: CompiledSource) -> bool:
    """Return whether names contain the architecture, as those of CUB's types do."""
    return any(f"_SM_{10 * compiled.target.number}" in symbol.name for symbol in compiled.provides)


def _group_of(key: FragmentKey) -> str:
    return f"{key.family}/{key.group}"


def _untested_features(requests: Iterable[CompileRequest]) -> defaultdict[str, set[str]]:
    """Return the groups whose sources test for features of an architecture that their images lack, by reason."""
    features: defaultdict[str, set[str]] = defaultdict(set)
    for request in requests:
        if not any(architecture.suffix for architecture in request.config.architectures):
            features[_group_of(request.key)].update(find_features(request.own_closure))
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for group, names in features.items():
        numbered = [name for name in sorted(names) if len(name) > 1]
        what = " and ".join(f"compute_{name}" for name in numbered) or "one architecture or family"
        if names:
            groups[f"its sources test for features of {what}, for which archs asks no image"].add(group)
    return groups


def _find_items(
    requests: Sequence[CompileRequest],
    sources: Mapping[int, CompiledSource],
    positions: Sequence[int],
    linker: Version,
) -> tuple[list[_Item], float]:
    """Return the fragments whose code may differ, and the estimated milliseconds of compiling all."""
    items: dict[str, _Item] = {}
    heads: dict[object, int] = {}
    milliseconds = 0.0
    for position in positions:
        request, compiled = requests[position], sources[position]
        config, tool = request.config, request.config.toolchain
        text, source = request.rendered.source, request.closure
        cost = 60 + source.text.count(b"template") + (0 if tool.header_roots() else _NVCC)
        head = split_leading_includes(source.text)[0], config.options, None if tool.header_roots() else position
        heads[head] = max(cost, heads.get(head, 0))
        milliseconds += _MILLISECONDS + _FRACTION * cost
        if compiled.target.suffix:  # links for no later architecture
            continue
        candidates = comparable_architectures(compiled.target, tool.version, linker)
        tests = config.find_tests(text, source, candidates)
        job = request.job()
        job = replace(job, tests=narrow_tests(tool, job, compiled, tests))
        if job.tests and (points := points_to_compare(job.tests, compiled)):
            item = _Item(request.key, job, compiled, points, request.cache_key, cost)
            items.setdefault(item.source_key, item)
    return list(items.values()), milliseconds + sum(heads.values())


def _compare_sample(items: Sequence[_Item], budget: int, submit: Submit, cache: Cache | None) -> Sequence[_Item]:
    """Compare a sample for the latest architecture, and the first of each differing group for all."""
    sample = _choose(items, budget)
    _run(sample, submit, cache, latest=True)
    first = {item.group: item for item in reversed(sample) if item.result.gains}
    left = budget - sum(item.cost for item in sample)
    detailed = [i for i in sample if first.get(i.group) is i and (left := left - i.cost * (len(i.points) - 1)) >= 0]
    _run(detailed, submit, cache, latest=False)
    return sample


def _choose(items: Sequence[_Item], budget: int) -> list[_Item]:
    """Choose a sample: the likeliest to differ first, then of each group those with values that no other has.

    At least one is chosen, and more as long as their cost is within the budget.
    """
    chosen: list[_Item] = []
    seen: Counter[tuple[str, str]] = Counter()  # values of fragments in the sample
    sizes: Counter[str] = Counter()  # and how many there are of each group,
    covered: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # with these values

    def rank(item: _Item) -> tuple[int, float, int, FragmentKey]:
        new = sum(1 for pair in item.key.parameters if pair not in covered[item.group])
        unseen = [value for name, value in item.key.parameters if not seen[name, value]]
        likely = sum(1 for value in unseen for pattern in _LIKELY if pattern.search(value))
        count = sizes[item.group]
        return -likely, count if new or not count else float("inf"), -new, item.key

    # A rank only falls while others are chosen, so the first that still has its rank is the best.
    heap = [(rank(item), number) for number, item in enumerate(items)]
    heapq.heapify(heap)
    while heap:
        known, number = heap[0]
        if (now := rank(items[number])) != known:
            heapq.heapreplace(heap, (now, number))
            continue
        item = items[number]
        if now[1] == float("inf"):  # no group has a value left that is not in the sample
            break
        if chosen and sum(each.cost for each in chosen) + item.cost > budget:
            break
        heapq.heappop(heap)
        chosen.append(item)
        seen.update(item.key.parameters)
        sizes[item.group] += 1
        covered[item.group].update(item.key.parameters)
    return chosen


def _run(items: Sequence[_Item], submit: Submit, cache: Cache | None, *, latest: bool) -> None:
    """Compare the code of each item: for the latest architecture only, or for all."""
    running: list[tuple[_Item, str, Future[_Found]]] = []
    sharers = Counter(item.head for item in items)
    keys: list[str] = []
    for item in items:
        how = ["latest" if latest else "all", str(nvjitlink.version()), *map(str, item.points)]
        identity = [_REVISION, item.source_key, item.job.source.sha256, *how]
        keys.append(hashlib.sha256(json.dumps(identity).encode()).hexdigest())
    for item, key in zip(items, keys, strict=True):
        if (kept := _read(cache, key, _Result)) is not None:
            item.result = kept
            continue
        images = tuple(image for image in item.compiled.images if image[0] is ImageKind.LTOIR)
        compare = partial(_compare, replace(item.compiled, images=images), item.points, latest, item.known)
        running.append((item, key, submit(replace(item.job, sharers=sharers[item.head]), run=compare)))
    for item, key, future in running:
        try:
            item.result, item.known = future.result()
        except JitltoError as error:  # such as a worker that died: this is only advice
            item.result = item.result if item.result.gains else _Result(obstacle=f"{_FAILED}: {error.what}")
            continue
        if cache:
            cache.put(_KIND, key, msgspec.json.encode(item.result))


def _compare(
    compiled: CompiledSource, points: Sequence[Architecture], latest: bool, known: Known | None, job: CompileJob
) -> _Found:
    """Compare in a worker."""
    found = transport.compare_job(job, compiled, points, latest=latest, renamed=True, known=known)
    gains = tuple(Gain(str(v.architecture), v.instructions_before, v.instructions) for v in found.variants)
    result = _Result(gains, any(v.is_renamed for v in found.variants), found.obstacle)
    return result, found.known if latest and gains else Known()


def _make_notes(sample: Sequence[_Item], totals: Mapping[str, int]) -> tuple[ArchitectureNote, ...]:
    groups: dict[str, list[_Item]] = {}
    for item in sample:
        if not item.result.obstacle:
            groups.setdefault(item.group, []).append(item)
    return tuple(
        _note(items, totals[group]) for group, items in groups.items() if any(item.result.gains for item in items)
    )


def _note(items: Sequence[_Item], total: int) -> ArchitectureNote:
    differing = [item for item in items if item.result.gains]
    same = [dict(item.key.parameters) for item in items if not item.result.gains]
    first = differing[0]
    where: dict[str, tuple[str, ...]] = {}
    for name, _ in first.key.parameters if same else ():
        values = {dict(item.key.parameters)[name] for item in differing}
        if not values & {each[name] for each in same}:
            where = {name: tuple(sorted(values))}
            break
    result = first.result
    return ArchitectureNote(
        first.group, where, result.gains, str(first.key), len(items), total, is_renamed=result.is_renamed
    )
