"""Objects of the classes that the compiled core makes behave as those of the class above, and are freed as they are."""

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import launch_core


class Echo:
    """Returns what it is called with."""

    __slots__ = ("__dict__", "__weakref__", "slot")

    def __init__(self, name: str = "plain", *, other: object = None) -> None:
        self.name, self.other = name, other

    def __call__(self, *args: object, **how: object) -> tuple[object, ...]:
        """Return the arguments."""
        return (self.name, *args, how)


class Failing(Echo):
    """Raises what it is called with."""

    __slots__ = ()

    def __call__(self, number: int) -> Any:  # type: ignore[override]
        raise KeyError(number)


@pytest.fixture(params=["python", "compiled"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes objects of a class, or of that which the core makes of it."""
    compiled = request.param == "compiled"
    return lambda *args, cls=Echo, **how: classes(cls, compiled)(*args, **how)


@functools.cache
def classes(cls: type, compiled: bool) -> Any:
    return launch_core.core().make_called_class(cls) if compiled else cls


def test_all_ways_to_call_pass_the_arguments_on(make: Any) -> None:
    echo = make("x", other=1)
    assert (echo.name, echo.other) == ("x", 1)
    assert echo() == ("x", {})
    assert echo(1, "two") == ("x", 1, "two", {})
    assert echo(1, a=2, b=3) == ("x", 1, {"a": 2, "b": 3})
    assert echo(*range(20), a=2) == ("x", *range(20), {"a": 2})
    assert echo.__call__(1, a=2) == type(echo).__call__(echo, 1, a=2) == ("x", 1, {"a": 2})
    assert list(map(echo, (1, 2))) == [("x", 1, {}), ("x", 2, {})]
    assert functools.partial(echo, 1, a=2)(3) == ("x", 1, 3, {"a": 2})
    assert sorted([3, 1, 2], key=make(other=echo)) == [1, 2, 3]


def test_errors_are_raised_and_nothing_is_left_behind(make: Any) -> None:
    failing = make(cls=Failing)
    before = sys.getrefcount(failing)
    for _ in range(20):
        with pytest.raises(KeyError):
            failing(1)
        with pytest.raises(TypeError):
            failing(1, 2)  # type: ignore[call-arg]
    assert sys.getrefcount(failing) == before


def test_objects_are_freed_with_the_cycles_that_they_are_in(make: Any) -> None:
    method, before = Echo.__call__, 0
    for number in range(3):
        echo = make()
        echo.other, echo.slot = echo, [echo]  # type: ignore[attr-defined]
        gone = weakref.ref(echo)
        echo(1)
        del echo
        gc.collect()
        assert gone() is None
        before = before if number else sys.getrefcount(method)
    assert sys.getrefcount(method) == before


@pytest.mark.parametrize("base", [int, object, type])
def test_only_classes_of_python_may_be_above(base: type) -> None:
    with pytest.raises(TypeError):
        launch_core.core().make_called_class(base)
