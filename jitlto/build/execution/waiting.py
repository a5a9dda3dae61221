"""Tasks that wait for a worker: the most expensive first, except those that would wait there for another.

The first compile with some leading includes reads them for all that share them. Those that begin before it ends would
wait for it, so that others are taken first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Iterator
from math import inf

from jitlto.build.execution.task import Missing, Task


def in_order(missing: Iterable[Missing]) -> list[Missing]:
    """Return sources with the first of each head first, which workers then read at the same time, side by side.

    Otherwise those come first that are known to take longest.
    """
    longest = sorted(missing, key=lambda each: inf if each.seconds is None else each.seconds, reverse=True)
    first = {each.request.head: each for each in reversed(longest)}
    return sorted(longest, key=lambda each: first[each.request.head] is not each)


class WaitingTasks:
    """A queue of tasks."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []  # by rank
        self._reading: dict[Hashable, Task] = {}  # leading includes → the task that reads them
        self._read: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def add(self, task: Task) -> None:
        """Add a task."""
        insort(self._tasks, task, key=lambda task: task.rank)

    def pop(self) -> Task:
        """Remove and return the task to begin next."""
        places = range(len(self._tasks) - 1, -1, -1)
        task = self._tasks.pop(next((n for n in places if self._tasks[n].head not in self._reading), -1))
        if task.sharers > 1 and task.head not in self._read:
            self._reading.setdefault(task.head, task)
        return task

    def end(self, task: Task) -> None:
        """Note that a task that was returned has ended, in whatever way."""
        if self._reading.get(task.head) is task:
            del self._reading[task.head]
            self._read.add(task.head)

    def remove_answered(self) -> None:
        """Remove the tasks that have an answer."""
        self._tasks = [task for task in self._tasks if task.answer is None]
