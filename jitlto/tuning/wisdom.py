"""Wisdom: which variant of a kernel was measured to be the best for a problem on a device, with the evidence.

Entries are values, and what is chosen is a function of the evidence alone: two processes with the same wisdom choose
the same. Merging keeps, of two entries with one key, that with more evidence, so it does not matter in which order, how
often and in which groups files are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf, log2
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from jitlto.base.cached import cached_property
from jitlto.record.tuning import Pairs, Variant

#: Relative difference below which two times count as equal.
TIE = 0.018

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Count = Annotated[int, Meta(ge=0, le=(1 << 62))]
Sizes = tuple[tuple[Name, Count], ...]


class Trial(Struct, frozen=True):
    """The times of one variant: their median, and how many were taken."""

    variant: Variant
    seconds: Annotated[float, Meta(gt=0, le=1e6)]
    count: Annotated[int, Meta(ge=1, le=1 << 40)]


class Entry(Struct, frozen=True, dict=True):
    """What was measured for one bucket of problems on one device."""

    family: Name
    entry: Name  # the group of the entrypoint
    configuration: Pairs  # the problem's values of parameters, sorted
    bucket: Sizes  # of the problem's sizes, sorted
    device: Name  # its kind, with all that decides how fast kernels are
    #: The first is of the variant that is used without wisdom.
    trials: Annotated[tuple[Trial, ...], Meta(min_length=1, max_length=10_000)]

    @property
    def default(self) -> Trial:
        """The trial of the variant that is used without wisdom."""
        return self.trials[0]

    @property
    def key(self) -> tuple[object, ...]:
        """What is measured: entries with one key are about the same."""
        return self.family, self.entry, self.configuration, self.bucket, self.device

    @cached_property
    def encoded(self) -> bytes:
        """The entry in its canonical form."""
        return msgspec.json.encode(self, order="sorted")

    @property
    def chosen(self) -> Trial:
        """The trial of the variant to use."""
        return self.ranked()[0]

    @property
    def speed_up(self) -> float:
        """How many times as fast as the default the chosen variant is."""
        return self.default.seconds / self.chosen.seconds

    def ranked(self, allows: Callable[[Variant], bool] = lambda _: True) -> list[Trial]:
        """Return the trials of the variants that may be used, the one to use first; none if they decide nothing.

        That is the fastest, or the first of those that tie with it: the default goes before all others.
        """
        trials = [trial for trial in self.trials if allows(trial.variant)]
        if not trials or (trials == [self.default] != list(self.trials)):
            return []
        tied = min(trial.seconds for trial in trials) * (1 + TIE)
        return sorted(trials, key=lambda trial: max(trial.seconds, tied))

    def distance(self, bucket: Sizes, exact: Collection[str] = ()) -> float:
        """Return by how much a bucket differs: infinitely if in its names, or in a size that counts exactly.

        What a kernel may be used for can depend on these.
        """
        pairs = list(zip(self.bucket, bucket, strict=False))
        alike = len(self.bucket) == len(bucket) and all(
            name == other and (value == wanted or name not in exact) for (name, value), (other, wanted) in pairs
        )
        return sum(abs(log2((a + 1) / (b + 1))) for (_, a), (_, b) in pairs) if alike else inf


class Wisdom:
    """Entries, at most one of each key: that with more evidence. Immutable; equal entries have equal bytes."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        best = {entry.key: entry for entry in sorted(entries, key=_evidence)}
        self.entries = tuple(sorted(best.values(), key=lambda entry: entry.encoded))

    def merge(self, *others: Wisdom) -> Wisdom:
        """Return all entries."""
        return Wisdom(entry for each in (self, *others) for entry in each.entries)

    def replace(self, *entries: Entry) -> Wisdom:
        """Return this with entries in place of those with the same keys."""
        keys = {each.key for each in entries}
        return Wisdom((*(each for each in self.entries if each.key not in keys), *entries))

    def find(
        self,
        family: str,
        entry: str,
        configuration: Mapping[str, str],
        bucket: Sizes,
        device: str,
        exact: Collection[str] = (),
    ) -> list[Entry]:
        """Return what was measured on a kind of device for a configuration: the nearest bucket, most evidence first."""
        key = family, entry, tuple(sorted(configuration.items())), device
        about = [each for each in self.entries if (each.family, each.entry, each.configuration, each.device) == key]
        near = [each for each in about if each.distance(bucket, exact) < inf]
        return sorted(near, key=lambda each: (each.distance(bucket), -_evidence(each)[0], each.encoded))


def _evidence(entry: Entry) -> tuple[int, bytes]:
    return sum(trial.count for trial in entry.trials), entry.encoded
