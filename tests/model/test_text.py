"""Words of messages."""

from __future__ import annotations

import pytest

from jitlto.model.text import pluralize


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
