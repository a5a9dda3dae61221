"""Words of messages."""

from __future__ import annotations

import pytest

from jitlto.model.text import abbreviate, pluralize, suggest


@pytest.mark.parametrize(
    ("count", "what", "said"),
    [
        (0, "kernel", "0 kernels"),
        (1, "kernel", "1 kernel"),
        (1, "history", "1 history"),
        (38, "history", "38 histories"),
    ],
)
def test_a_number_of_things(count: int, what: str, said: str) -> None:
    assert pluralize(count, what) == said


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("optn", ["options", "option", "key"]) == "did you mean 'option'?"
    assert suggest("zzz", ["option"]) == ""
    assert suggest("zzz", ["option"], "the keys are option") == "the keys are option"


def test_a_value_in_a_message_is_short_and_never_fails() -> None:
    class Failing:
        def __repr__(self) -> str:
            raise RuntimeError

    assert abbreviate("a") == "'a'"
    assert len(abbreviate("x" * 10**6)) < 250
    assert abbreviate(10**5000) == "<int>"
    assert abbreviate(Failing()) == "<Failing>"
