"""Looking for tasks in shared stores, which may not be open yet when a build first asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jitlto.build.cache.cache import Cache, TakenUnit
from jitlto.build.execution.task import Task


@dataclass
class SharedLookup:
    """The look-ups of one build in shared stores.

    A program's first connection may take longer than a build may wait. Then compiling begins, and what still waits for
    a worker when the stores have opened is looked for again.
    """

    cache: Cache | None
    _unasked: list[Task] = field(default_factory=list, init=False)

    @property
    def has_stores(self) -> bool:
        return self.cache is not None and self.cache.shared is not None

    @property
    def is_pending(self) -> bool:
        """Whether the stores were not open when something was looked for."""
        return bool(self._unasked)

    def find(self, tasks: Iterable[Task]) -> list[tuple[Task, TakenUnit]]:
        """Return those tasks whose compiled sources stores have."""
        if self.cache is None or self.cache.shared is None:
            return []
        tasks = list(tasks)
        taken = self.cache.find_shared({task.place: (task.source_key, task.request.config) for task in tasks})
        if self.cache.shared.stores.is_opening:
            self._unasked += [task for task in tasks if task.place not in taken]
        return [(task, taken[task.place]) for task in tasks if task.place in taken]

    def find_again(self, waiting: Iterable[Task]) -> list[tuple[Task, TakenUnit]]:
        """Return those tasks that still wait and that stores have, which were not open when they were looked for."""
        if not self._unasked or self.cache is None or self.cache.shared is None or self.cache.shared.stores.is_opening:
            return []
        unasked = {id(task) for task in self._unasked}
        self._unasked = []
        return self.find(task for task in waiting if id(task) in unasked)
