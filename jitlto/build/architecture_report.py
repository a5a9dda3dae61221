"""Which fragments would make other code for later architectures than those they are compiled for, and what is gained.

A sample is compared, so that it takes a small part of the build: of each group first the fragments whose values name
16-bit and 8-bit types, then those with values that no other in the sample has.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from jitlto.build.cache.cache import Cache
from jitlto.build.compilers.architectures import points_to_compare
from jitlto.build.compilers.base import CompiledSource, CompileJob
from jitlto.build.execution import transport
from jitlto.build.execution.costs import estimate
from jitlto.build.execution.scheduler import CompileRequest
from jitlto.cuda import nvjitlink
from jitlto.errors import JitltoError
from jitlto.model.architecture_tests import comparable_architectures
from jitlto.model.fragment import FragmentKey, ImageKind
from jitlto.model.headers import split_leading_includes
from jitlto.model.text import pluralize
from jitlto.model.versions import Architecture

_KIND, _REVISION = "architectures", 1  # of entries in the build cache
# A comparison takes 0.6 (those that include CUB) to 2 times as long as a compile with PTX.
_SHARE = {True: 8, False: 12}  # one in so many fragments is compared,
_LEAST = 3  # but so many of those that compile in less than _SHORT milliseconds: starting a build takes longer
_SHORT = 500
_LIKELY = re.compile(r"half|bf16|bfloat|fp[468]|e4m3|e5m2|e8m0|float(?:4|6|8|16)")

#: Submits a job with the function to run.
Submit = Callable[..., Future["tuple[Gain, ...]"]]


class Gain(Struct, frozen=True):
    """What a fragment gains by LTO-IR for an architecture: its machine instructions there, linked alone."""

    architecture: str
    before: int
    after: int


class ArchitectureNote(Struct, frozen=True):
    """A group whose code differs by architecture.

    Args:
        group: ``family/group``.
        where: The values that the differing fragments of the sample have, and the others do not, by parameter; empty if
            all differ, or no one parameter decides.
        gains: Of one of them.
        example: Its key.
        compared, of: The number of fragments of the group that were compared, and of all.
    """

    group: str
    where: dict[str, tuple[str, ...]]
    gains: tuple[Gain, ...]
    example: str
    compared: int
    of: int

    def __str__(self) -> str:
        values = " and ".join(f"{name}={' or '.join(values)}" for name, values in self.where.items())
        gained = ", ".join(f"{g.after} instead of {g.before} on sm_{g.architecture}" for g in self.gains)
        which = f"fragments with {values}" if values else "fragments"
        return (
            f"{self.group}: {which} would have other code for later architectures: {gained} machine instructions in "
            f'{self.example} (compared: {self.compared} of {pluralize(self.of, "fragment")}); archs = "auto" ships it'
        )


_Kept = TypeVar("_Kept", Gain, ArchitectureNote)


@dataclass
class _Item:
    """A fragment whose code may differ."""

    key: FragmentKey
    job: CompileJob
    compiled: CompiledSource
    points: tuple[Architecture, ...]
    source_key: str
    gains: tuple[Gain, ...] = ()
    values: frozenset[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = frozenset(self.key.parameters)

    @property
    def head(self) -> tuple[bytes, tuple[str, ...]]:
        """The includes that a compile of the item begins with, and its options."""
        return split_leading_includes(self.job.source.text)[0], self.job.options


def compare_architectures(
    requests: Sequence[CompileRequest],
    sources: Mapping[int, CompiledSource],
    submit: Submit,
    cache: Cache | None,
    *,
    changed: bool,
) -> tuple[ArchitectureNote, ...]:
    """Compare a sample of a build's fragments, except those of families that ship such code already.

    Args:
        requests, sources: The build's, by position.
        submit: Runs a function with a job in a worker.
        cache: Where results are looked up and stored.
        changed: Whether anything was compiled; if not, the notes of the last build with these fragments are returned.
    """
    try:
        linker = nvjitlink.version()
    except JitltoError:
        return ()  # nothing can be linked here
    open_positions = [p for p in sorted(sources) if not requests[p].config.candidates]
    identity = [_REVISION, str(linker), [_identify(requests[p], sources[p]) for p in open_positions]]
    whole = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    if not changed and (known := _read(cache, whole, ArchitectureNote)) is not None:
        return known
    items = _find_items(requests, sources, open_positions)
    sample = _choose(items, len(open_positions), has_ptx=any(_has_ptx(sources[p]) for p in open_positions))
    _run(sample, submit, cache, latest=True)
    differing = {
        group: [item for item in sample if item.gains and _group(item) == group] for group in map(_group, sample)
    }
    first = [group[0] for group in differing.values() if group]
    _run(first, submit, cache, latest=False)
    totals = [_group_of(requests[p].key) for p in open_positions]
    notes = tuple(
        _note(item, [each for each in sample if _group(each) == _group(item)], totals.count(_group(item)))
        for item in first
    )
    if cache:
        cache.store.put(_KIND, whole, msgspec.json.encode(notes))
    return notes


def _read(cache: Cache | None, key: str, kind: type[_Kept]) -> tuple[_Kept, ...] | None:
    """Return what an earlier build stored; None if there is nothing, or it is damaged."""
    data = cache.store.get(_KIND, key) if cache else None
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        return msgspec.json.decode(data, type=tuple[kind, ...]) if data is not None else None  # type: ignore[valid-type]
    return None


def _identify(request: CompileRequest, compiled: CompiledSource) -> list[str]:
    images = hashlib.sha256(b"".join(data for kind, _, data in compiled.images if kind is ImageKind.LTOIR))
    return [str(request.key), images.hexdigest()]


def _has_ptx(compiled: CompiledSource) -> bool:
    return any(kind is ImageKind.PTX for kind, _, _ in compiled.images)


def _group(item: _Item) -> str:
    return _group_of(item.key)


def _group_of(key: FragmentKey) -> str:
    return f"{key.family}/{key.group}"


def _find_items(
    requests: Sequence[CompileRequest], sources: Mapping[int, CompiledSource], positions: Sequence[int]
) -> list[_Item]:
    items: dict[str, _Item] = {}
    for position in positions:
        request, compiled = requests[position], sources[position]
        config, tool = request.config, request.config.toolchain
        base = compiled.target
        if base.suffix or tool.name != "nvrtc":  # nvcc's headers are not in the source, so everything may differ
            continue
        candidates = comparable_architectures(base, tool.version, nvjitlink.version())
        tests = config.find_tests(request.rendered.source, request.closure, candidates)
        if points := points_to_compare(tests, compiled):
            job = request.job(request.closure, tests)
            items.setdefault(request.source_key, _Item(request.key, job, compiled, points, request.source_key))
    return list(items.values())


def _choose(items: Sequence[_Item], total: int, *, has_ptx: bool) -> list[_Item]:
    """Choose a sample: the likeliest to differ first, then of each group those with values that no other has."""
    is_short = all(estimate(item.job.source, 1) < _SHORT for item in items)
    most = max(_LEAST if is_short else 1, total // _SHARE[has_ptx])
    chosen: list[_Item] = []
    seen: Counter[tuple[str, str]] = Counter()  # values of fragments in the sample
    left = {item.key: item for item in items}

    def rank(item: _Item) -> tuple[int, int, int, FragmentKey]:
        own = [each for each in chosen if _group(each) == _group(item)]
        new = item.values - frozenset[tuple[str, str]]().union(*(each.values for each in own))
        likely = sum(1 for pair in item.values if _LIKELY.search(pair[1]) and not seen[pair])
        return (-likely, len(own) if new or not own else total, -len(new), item.key)

    while left and len(chosen) < most:
        best = min(left.values(), key=rank)
        if rank(best)[1] == total:  # no group has a value left that is not in the sample
            break
        chosen.append(left.pop(best.key))
        seen.update(best.values)
    return chosen


def _run(items: Sequence[_Item], submit: Submit, cache: Cache | None, *, latest: bool) -> None:
    """Compare the code of each item: for the latest architecture only, or for all."""
    running: list[tuple[_Item, str, Future[tuple[Gain, ...]]]] = []
    for item in items:
        points = item.points[-1:] if latest else item.points
        identity = [_REVISION, item.source_key, item.job.source.sha256, str(nvjitlink.version()), *map(str, points)]
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        if (known := _read(cache, key, Gain)) is not None:
            item.gains = known
            continue
        images = tuple(image for image in item.compiled.images if image[0] is ImageKind.LTOIR)
        base = replace(item.compiled, images=images)
        sharers = sum(other.head == item.head for other in items)
        running.append((item, key, submit(replace(item.job, sharers=sharers), run=partial(_compare, base, points))))
    for item, key, future in running:
        try:
            item.gains = future.result()
        except JitltoError:
            continue  # a worker died: this is only advice
        if cache:
            cache.store.put(_KIND, key, msgspec.json.encode(item.gains))


def _compare(compiled: CompiledSource, points: Sequence[Architecture], job: CompileJob) -> tuple[Gain, ...]:
    """Compare in a worker."""
    found = transport.compare_job(job, compiled, points)
    return tuple(Gain(str(v.architecture), v.instructions_before, v.instructions) for v in found.variants)


def _note(item: _Item, sample: Sequence[_Item], total: int) -> ArchitectureNote:
    differing = [each for each in sample if each.gains or each.key == item.key]
    same = [each for each in sample if each not in differing]
    where: dict[str, tuple[str, ...]] = {}
    for name, _ in item.key.parameters if same else ():
        values = [{dict(each.key.parameters)[name] for each in group} for group in (differing, same)]
        if not values[0] & values[1]:
            where = {name: tuple(sorted(values[0]))}
            break
    return ArchitectureNote(_group(item), where, item.gains, str(item.key), len(sample), total)
