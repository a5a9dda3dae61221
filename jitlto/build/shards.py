"""Sharding: assignment of fragments to N jobs, the same on every machine, and the record of the resulting part."""

from __future__ import annotations

import hashlib
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


def assign_shards(compiles: Mapping[FragmentKey, str], count: int) -> dict[FragmentKey, int]:
    """Assign each fragment to a shard from 1 to ``count``: in turn, so that each gets some of every group.

    Args:
        compiles: What is equal for fragments that one compile makes, which go to one shard; in any order.
        count: The number of shards.
    """
    first = {compiles[key]: None for key in sorted(compiles)}
    numbers = {compile_: number % count + 1 for number, compile_ in enumerate(first)}
    return {key: numbers[compile_] for key, compile_ in compiles.items()}


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
