"""What a check links and compares: all that no earlier check has proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jitlto.base.errors import JitltoError
from jitlto.build.proofs import Proofs
from jitlto.build.shards import Shard
from jitlto.check.link_all import LinkJob

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Scope:
    """What a check links and compares, and whom it tells.

    Args:
        shard: Its share of all links and comparisons.
        proofs: What need not be done again.
        workers: The number of parallel links.
        on_links: Called with the number of links or comparisons.
        on_link: Called with the position of each that is finished.
    """

    shard: Shard
    proofs: Proofs
    workers: int | None
    on_links: Callable[[int], object]
    on_link: Callable[[int], object]

    def run(
        self,
        work: Callable[[Sequence[T], int | None], Iterable[tuple[int, T, R | None]]],
        jobs: Sequence[T],
        key: Callable[[T], str | None],
    ) -> Iterator[tuple[int, T, R | None]]:
        """Do what has not been proved before; yield the position of each such job, the job, and what was found.

        Args:
            work: Does jobs in parallel, as :func:`jitlto.check.link_all.link_all`; it finds None where all is well.
            key: Returns the key of the proof that a job makes.
        """
        self.on_links(len(jobs))
        keys = list(map(key, jobs))
        self.proofs.fetch(keys)
        left = []
        for position in range(len(jobs)):
            if self.proofs.has(keys[position]):
                self.on_link(position)
            else:
                left.append(position)
        for number, job, found in work([jobs[position] for position in left], self.workers):
            position = left[number]
            self.on_link(position)
            if found is None:
                self.proofs.add(keys[position])
            yield position, job, found

    def link_key(self, job: LinkJob, of: str, *inputs: object) -> str | None:
        """Return the key of a proof about a kernel; None if it cannot be linked, or an image is damaged."""
        try:
            plan = job.plan()
            return self.proofs.image_key(plan.database, plan.images, of, plan.digest, *inputs)
        except JitltoError:
            return None  # whoever links it says why
