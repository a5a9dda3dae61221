"""The order in which tasks are taken: heads are read side by side, and none waits for another that could run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jitlto.build.execution.task import Missing
from jitlto.build.execution.waiting import WaitingTasks, in_order


def missing(head: str, seconds: float | None = None) -> Missing:
    request: Any = SimpleNamespace(head=head)
    return Missing("key", request, [], 1, seconds)


def task(cost: int, head: str, sharers: int = 4) -> Any:
    return SimpleNamespace(rank=(cost, [0]), cost=cost, head=head, sharers=sharers, answer=None)


def test_the_first_of_each_head_comes_before_all_others() -> None:
    each = [missing("a", 1.0), missing("a", 3.0), missing("b", 2.0), missing("a"), missing("c", 0.5)]
    assert [(m.request.head, m.seconds) for m in in_order(each)] == [
        ("a", None), ("b", 2.0), ("c", 0.5), ("a", 3.0), ("a", 1.0),
    ]  # fmt: skip


def test_tasks_that_would_wait_for_another_are_taken_last() -> None:
    waiting = WaitingTasks()
    for number, head in enumerate("aaabb"):
        waiting.add(task(number, head))
    first = waiting.pop()
    assert [first.cost, waiting.pop().cost, waiting.pop().cost] == [4, 2, 3]  # b, a, and b because a waits as well
    waiting.end(first)
    waiting.add(task(9, "b"))
    assert waiting.pop().cost == 9


def test_a_head_of_one_source_is_no_reason_to_wait() -> None:
    waiting = WaitingTasks()
    for cost in range(3):
        waiting.add(task(cost, "a", sharers=1))
    assert [waiting.pop().cost for _ in range(3)] == [2, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.booleans()), max_size=20))
def test_every_task_is_taken_once(drawn: list[tuple[int, str, bool]]) -> None:
    waiting = WaitingTasks()
    every = [task(cost, head) for cost, head, _ in drawn]
    for each in every:
        waiting.add(each)
    taken = []
    for _, _, ends in drawn:
        taken.append(waiting.pop())
        if ends:
            waiting.end(taken[-1])
    assert not waiting
    assert {id(each) for each in taken} == {id(each) for each in every}


def test_answered_tasks_leave() -> None:
    waiting = WaitingTasks()
    one, two = task(1, "a"), task(2, "a")
    waiting.add(one)
    waiting.add(two)
    two.answer = object()
    waiting.remove_answered()
    assert list(waiting) == [one]
