"""Sharding: assignment of fragments to N jobs, the same on every machine, and the record of the resulting part."""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jitlto.base.errors import BuildError
from jitlto.base.text import check_type
from jitlto.build.cache.keys import CompileConfig
from jitlto.families.templates import RenderedSource
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import FragmentKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Job ``number`` of the ``count`` jobs of a build, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``.

        Raises:
            BuildError: If ``text`` is not of this form, or I is not from 1 to N.
        """
        check_type(text, str, "a shard must be text")
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            hint = "write I/N with I from 1 to N: 2/4 is the second of four"
            raise BuildError(f"invalid shard {text!r}", code="build-invalid-shard", hint=hint)
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def share(self, items: Sequence[T]) -> list[T]:
        """Return this job's share of items that cost about the same: every item is in exactly one."""
        return list(items[self.number - 1 :: self.count])


@dataclass(frozen=True, slots=True)
class ShardItem:
    """A fragment to compile."""

    key: FragmentKey
    compile: str  # equal for fragments that one compile makes: they go to one shard, and the cost counts once
    cost: int  # in milliseconds


def balance(costs: Sequence[int], count: int) -> list[int]:
    """Balance costs over shards: in descending order, each goes to the shard with the smallest sum so far.

    The largest sum is at most 4/3 of the optimum (R. L. Graham, *Bounds on multiprocessing timing anomalies*,
    SIAM J. Appl. Math. 17, 1969). Ties go to the earlier cost and the earlier shard.

    Returns:
        list of int: The shard of each cost, from 0 to ``count`` - 1.
    """
    sums = [(0, number) for number in range(count)]
    shards = [0] * len(costs)
    for position in sorted(range(len(costs)), key=lambda position: (-costs[position], position)):
        total, number = sums[0]
        shards[position] = number
        heapq.heapreplace(sums, (total + costs[position], number))
    return shards


def assign_shards(items: Iterable[ShardItem], count: int) -> dict[FragmentKey, int]:
    """Assign each fragment to a shard from 1 to ``count``; the order of the items does not matter."""
    compiles: dict[str, list[ShardItem]] = {}
    for item in sorted(items, key=lambda item: item.key):
        compiles.setdefault(item.compile, []).append(item)
    shards = balance([max(item.cost for item in same) for same in compiles.values()], count)
    return {item.key: shard + 1 for same, shard in zip(compiles.values(), shards, strict=True) for item in same}


def select_fragments(items: Iterable[ShardItem], shard: Shard) -> frozenset[FragmentKey]:
    """Select the fragments that a shard compiles; every fragment is in exactly one shard."""
    return frozenset(key for key, number in assign_shards(items, shard.count).items() if number == shard.number)


def make_ci_matrix(items: Sequence[ShardItem], count: int) -> dict[str, list[dict[str, object]]]:
    """Describe the shards in the form of GitHub Actions' ``strategy.matrix``.

    Returns:
        dict: ``{"include": [{"shard": "1/4", "number": 1, "fragments": 12, "cost": 3400}, ...]}``: the argument of
            ``--shard``, its number, the number of fragments that it compiles, and their cost in milliseconds.
    """
    numbers = assign_shards(items, count)
    include: list[dict[str, object]] = []
    for number in range(1, count + 1):
        own = [item for item in items if numbers[item.key] == number]
        costs: dict[str, int] = {}
        for item in own:
            costs[item.compile] = max(item.cost, costs.get(item.compile, 0))
        shard = str(Shard(number, count))
        include.append({"shard": shard, "number": number, "fragments": len(own), "cost": sum(costs.values())})
    return {"include": include}


def digest_source(rendered: RenderedSource, config: CompileConfig) -> str:
    """Return the SHA-256 of everything the author wrote for a fragment.

    Of the headers only the family's own count: the toolkit's belong to the compiler, which a part records separately.
    """
    source = config.own_closure(rendered.source).sha256
    how = [" ".join(config.images), " ".join(map(str, config.architectures)), *config.options]
    if config.candidates:
        how.insert(1, "auto")
    parts = [source, rendered.group.entry or "", *rendered.params, *how]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_part_record(
    shard: Shard,
    contents: Mapping[FragmentKey, str],
    faults: Iterable[tuple[str, str, str]],
    toolchains: Mapping[str, str],
    advice: Sequence[str],
) -> PartRecord:
    """Create the record of a shard, including the data that the merge checks.

    Args:
        contents: The :func:`digest_source` of every fragment of the whole build.
        faults: What no interface declares as a fragment of this shard requires it.
        toolchains: The identity of each family's compiler.
        advice: Warnings about the matrices.
    """
    lines = sorted(f"{key} {digest}" for key, digest in contents.items())
    return PartRecord(
        shard.number,
        shard.count,
        hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        tuple(sorted(contents)),
        tuple(sorted(toolchains.items())),
        tuple(sorted(faults)),
        tuple(advice),
    )
