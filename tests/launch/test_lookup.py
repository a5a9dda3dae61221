"""The compiled core's look-ups: the same arguments, the same answer; nothing is kept or dropped that should not be."""

import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import launch_core

SAME = np.dtype("f4")
TEXT = "launcher($self, /, *, entry=None, **configuration)\n--\n\nReturn the launcher."


class Answer:
    """What is looked up."""


class Asked:
    """An object with a look-up, and what reached the function behind it."""

    __slots__ = ("__weakref__", "_quick", "calls")
    launcher: Any

    def __init__(self) -> None:
        self._quick: Any = [None] * 32
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []


def answer(asked: Asked, *args: Any, **how: Any) -> Answer:
    """Answer anew, and remember it."""
    asked.calls.append((args, how))
    made = Answer()
    launch_core.core().remember(asked._quick, (*args, *how.values()), tuple(how), made)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    use(monkeypatch, answer)
    return Asked()


def use(monkeypatch: pytest.MonkeyPatch, method: Callable[..., Any]) -> None:
    monkeypatch.setattr(Asked, "_ask_launcher", method, raising=False)
    monkeypatch.setattr(Asked, "launcher", launch_core.core().make_lookup(Asked, TEXT), raising=False)


def clear(asked: Asked) -> None:
    asked._quick[:] = [None] * 32


def test_the_same_arguments_get_the_same_answer(asked: Asked) -> None:
    requests: list[Callable[[], Any]] = [
        asked.launcher,
        lambda: asked.launcher("float", 1),
        lambda: asked.launcher("float", True),
        lambda: asked.launcher(data_type="float", n=1),
        lambda: asked.launcher(n=1, data_type="float"),
        lambda: asked.launcher("float", n=1),
        lambda: asked.launcher("float", n=int("100000")),
        lambda: asked.launcher("".join(["flo", "at"]), n=2),
        lambda: asked.launcher(**{"".join(["data_", "type"]): "double"}),  # as a parser of JSON makes names
        lambda: asked.launcher(dtype=SAME),
        lambda: asked.launcher("float", None),
    ]
    answers = []
    for request in requests:  # a later one may take the place of an earlier one
        answers.append(request())
        assert request() is answers[-1]
        clear(asked)
        assert request() is not answers[-1]
    assert len(set(map(id, answers))) == len(answers)
    assert len(asked.calls) == 2 * len(answers)


@pytest.mark.parametrize("table", [[], {}, None])
def test_without_a_table_the_method_is_asked(asked: Asked, monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    use(monkeypatch, lambda *args, **how: (args, how))
    asked._quick = table
    assert asked.launcher(1, a=2) == ((asked, 1), {"a": 2})
    del asked._quick
    assert asked.launcher(1) == ((asked, 1), {})
    for wrong in ((), (SAME,)):
        with pytest.raises(TypeError):
            Asked.launcher(*wrong)


def test_it_is_described_as_the_method_is(asked: Asked) -> None:
    assert str(inspect.signature(asked.launcher)) == "(*, entry=None, **configuration)"
    assert asked.launcher.__doc__ == "Return the launcher."


def test_a_full_table_takes_no_more(asked: Asked) -> None:
    answers = [asked.launcher(number) for number in range(40)]
    assert [asked.launcher(number) is answers[number] for number in range(40)] == [True] * 32 + [False] * 8


def test_what_the_function_raises_is_raised(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KeyError("no")

    use(monkeypatch, refuse)
    with pytest.raises(KeyError, match="no"):
        asked.launcher(a=[])


def test_every_reference_is_given_back(asked: Asked) -> None:
    made, remember = Answer(), launch_core.core().remember
    values = (object(), SAME)
    before = [sys.getrefcount(thing) for thing in (made, *values)]
    for _ in range(10):
        remember(asked._quick, values, (), made)
        assert asked.launcher(*values) is made
    clear(asked)
    assert [sys.getrefcount(thing) for thing in (made, *values)] == before
    for wrong in ((1, (), made), (values, [], made), (values, ())):
        with pytest.raises(TypeError):
            remember(asked._quick, *wrong)
    own, made = Asked(), Answer()
    gone = weakref.ref(made)
    remember(own._quick, values, (), made)
    del made
    gc.disable()
    try:
        del own
        assert gone() is None  # without the garbage collector
    finally:
        gc.enable()
