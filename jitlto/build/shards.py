"""Sharding a build: which fragments each of N jobs compiles, the same on every machine, and what a part says of it."""

from __future__ import annotations

import hashlib
import heapq
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jitlto.build.cache.keys import Recipe
from jitlto.build.templates import RenderedSource
from jitlto.errors import BuildError
from jitlto.model.family_record import FamilyRecord, PartRecord
from jitlto.model.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the jobs of a build: number ``number`` of ``count``, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``.

        Raises
        ------
        BuildError
            If ``text`` is something else, or I is not from 1 to N.
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not match:
            raise BuildError(f"not a shard: {text!r}", hint="write I/N: 2/4 is the second of four")
        number, count = int(match[1]), int(match[2])
        if not 1 <= number <= count:
            counted = f"from 1/{count} to {count}/{count}" if count else "from 1/N to N/N"
            raise BuildError(f"there is no shard {text}", hint=f"shards are counted {counted}")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True)
class ShardItem:
    """A fragment to compile.

    Parameters
    ----------
    key : FragmentKey
        Its name.
    compile : str
        Equal for fragments that one compile makes: they go to one shard, at the cost of one.
    cost : int
        In milliseconds.
    """

    key: FragmentKey
    compile: str
    cost: int


def balance(costs: Sequence[int], count: int) -> list[int]:
    """Spread costs evenly: the longest first, each to whoever has the least so far.

    The largest sum is at most 4/3 of the least possible (R. L. Graham, *Bounds on multiprocessing timing anomalies*,
    SIAM J. Appl. Math. 17, 1969). Of equal costs the earlier goes first, of equal sums the first one takes it.

    Parameters
    ----------
    costs : sequence of int
        Not negative.
    count : int
        Over how many, at least 1; more than there are costs leaves some without any.

    Returns
    -------
    list of int
        For each cost, to whom it goes, from 0.
    """
    sums = [(0, number) for number in range(count)]
    taken = [0] * len(costs)
    for position in sorted(range(len(costs)), key=lambda position: (-costs[position], position)):
        total, number = sums[0]
        taken[position] = number
        heapq.heapreplace(sums, (total + costs[position], number))
    return taken


def assign_shards(items: Iterable[ShardItem], count: int) -> dict[FragmentKey, int]:
    """The number of the shard that compiles each fragment, from 1 to ``count``; the order of items does not matter."""
    compiles: dict[str, list[ShardItem]] = {}
    for item in sorted(items, key=lambda item: item.key):
        compiles.setdefault(item.compile, []).append(item)
    taken = balance([max(item.cost for item in same) for same in compiles.values()], count)
    return {item.key: number + 1 for same, number in zip(compiles.values(), taken, strict=True) for item in same}


def select_fragments(items: Iterable[ShardItem], shard: Shard) -> frozenset[FragmentKey]:
    """The fragments that one shard compiles. Every fragment is in exactly one of the ``shard.count`` shards."""
    return frozenset(key for key, number in assign_shards(items, shard.count).items() if number == shard.number)


def make_ci_matrix(items: Sequence[ShardItem], count: int) -> dict[str, list[dict[str, object]]]:
    """The shards in the form of GitHub Actions' ``strategy.matrix``.

    Returns
    -------
    dict
        ``{"include": [{"shard": "1/4", "fragments": 12, "cost": 3400}, ...]}``: the argument of ``--shard``, how many
        fragments it compiles, and what it costs in milliseconds.
    """
    numbers = assign_shards(items, count)
    fragments, compiles = [0] * count, [dict[str, int]() for _ in range(count)]
    for item in items:
        index = numbers[item.key] - 1
        fragments[index] += 1
        compiles[index][item.compile] = max(item.cost, compiles[index].get(item.compile, 0))
    return {
        "include": [
            {
                "shard": str(Shard(index + 1, count)),
                "fragments": fragments[index],
                "cost": sum(compiles[index].values()),
            }
            for index in range(count)
        ]
    }


def digest_source(rendered: RenderedSource, recipe: Recipe) -> str:
    """SHA-256 of what the author wrote that makes a fragment.

    Parameters
    ----------
    rendered : RenderedSource
        The source.
    recipe : Recipe
        How it is compiled. Of the headers only the family's own count: the toolkit's belong to the compiler, which a
        part names apart.
    """
    source = recipe.own.closure(rendered.source.encode()).sha256
    how = [" ".join(recipe.images), " ".join(map(str, recipe.architectures)), *recipe.options]
    parts = [source, rendered.group.entry or "", *rendered.params, *how]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_part_record(
    shard: Shard,
    contents: Mapping[FragmentKey, str],
    families: Iterable[FamilyRecord],
    includes: Mapping[FragmentKey, frozenset[str]],
    toolchains: Mapping[str, str],
    advice: Sequence[str],
) -> PartRecord:
    """What a shard's database says of itself and leaves to the merge.

    Parameters
    ----------
    shard : Shard
        Which one.
    contents : mapping of FragmentKey to str
        :func:`digest_source` of every fragment of the whole.
    families : iterable of FamilyRecord
        All of the whole.
    includes : mapping of FragmentKey to frozenset of str
        The headers that the source of each fragment of this shard can reach.
    toolchains : mapping of str to str
        Family → its compiler's identity.
    advice : sequence of str
        On the matrices.
    """
    interfaces = {family.name: set(map(os.path.normpath, family.interfaces)) for family in families}
    reached = ((key, tuple(sorted(names & interfaces[key.family]))) for key, names in includes.items())
    lines = sorted(f"{key} {digest}" for key, digest in contents.items())
    return PartRecord(
        shard.number,
        shard.count,
        hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        tuple(sorted(contents)),
        tuple(sorted(toolchains.items())),
        tuple(sorted((key, names) for key, names in reached if names)),
        tuple(advice),
    )
