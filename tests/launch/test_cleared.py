"""What the compiled core made does nothing, and says so, when it is called after the garbage collector has cleared it.

A cycle that is taken apart may call its own parts: an object of an extension type in it may do so when it is freed.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import exercise_core, launch_core

pytestmark = pytest.mark.one_major

_TP_CLEAR = 51  # typeslots.h
_EXTENTS = (1, 1, 1, 1, 1, 1, 0)


class Driver:
    """Counts launches."""

    def __init__(self) -> None:
        self.launches = 0
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launch)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _launch(self, *_: int) -> int:
        self.launches += 1
        return 0


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def core() -> ModuleType:
    return launch_core.core()


def clear(thing: object) -> None:
    """Clear an object as the collector does."""
    find = ctypes.pythonapi.PyType_GetSlot
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(find(type(thing), _TP_CLEAR))(thing)


def make_call(core: ModuleType, driver: Driver, *, last: object = None, **parts: Any) -> Any:
    """A Call for a pointer and an integer; ``last`` is what it drops last."""
    rows = (
        (core.POINTER, 8, 8, False, False, 2, 32, object(), None, int),
        (core.INTEGER, 4, 4, True, False, 0, 0, None, None, last or int),
    )
    known: dict[str, Any] = {
        "stream_type": exercise_core.Stream,
        "prepare": lambda _: core.make_state(1, 0),
        "learn_array": lambda _: True,
        "learn_stream": lambda _: "cuda_stream",
        "fallback": lambda *_, **__: "fallback",
    }
    known |= parts
    return core.make_call(rows, driver.address, 1, *known.values())


def make_bound(core: ModuleType, driver: Driver, fallback: object, stream: object = None) -> Any:
    arguments = ((8, bytes(8)), (4, bytes(4)))
    return core.make_bound(driver.address, core.make_state(1, 0), _EXTENTS, 99, stream, arguments, fallback)


def launch(call: Any, array: object = None, stream: object = None) -> object:
    return call(Launcher(), stream, 1, 1, array, 5)


class Launcher:
    _compiled_state: object


def refuses(use: Callable[[], object]) -> bool:
    with pytest.raises(TypeError):
        use()
    return True


@pytest.fixture
def cleared(core: ModuleType, driver: Driver) -> Any:
    """A Call that has launched what it has learnt, and is cleared."""
    call = make_call(core, driver)
    array = exercise_core.Array(None, 0x1000)
    launch(call, None, exercise_core.ForeignStream(7))
    assert driver.launches == 1
    assert launch(call, array) == "fallback"  # of another dtype
    clear(call)
    driver.launches = 0
    return call


def test_a_cleared_call_launches_nothing(cleared: Any, driver: Driver) -> None:
    arguments: list[tuple[object, object]] = [
        (None, None),
        (exercise_core.Array(object(), 0x1000), None),  # of any dtype, were the declared one only gone
        (object(), exercise_core.Stream()),
        (None, exercise_core.ForeignStream(7)),
        (5, object()),
    ]
    for array, stream in arguments:
        assert refuses(lambda array=array, stream=stream: launch(cleared, array, stream))  # type: ignore[misc]
    assert refuses(cleared)
    assert refuses(lambda: cleared(Launcher()))
    assert refuses(lambda: cleared(Launcher(), None, 1, 1))
    assert refuses(lambda: cleared(Launcher(), None, 1, 1, None, 5, shared_memory=4))
    assert not driver.launches


def test_a_cleared_call_reads_no_address(cleared: Any) -> None:
    for argument in (exercise_core.Array(object(), 0x1000), 5, object(), None):
        assert cleared.read_address(argument) is None


def test_a_cleared_call_can_be_cleared_visited_and_given_another_way(cleared: Any, driver: Driver) -> None:
    clear(cleared)
    assert not gc.get_referents(cleared)[1:]  # but its type
    assert refuses(lambda: cleared.fallback)
    cleared.fallback = lambda *_: "later"
    assert launch(cleared) == "later"
    assert not driver.launches


def test_a_cleared_bound_launch_launches_nothing(core: ModuleType, driver: Driver) -> None:
    bound = make_bound(core, driver, lambda: "fallback", exercise_core.Stream())
    bound.kept = bound
    bound()
    assert driver.launches == 1
    clear(bound)
    assert refuses(bound)
    assert refuses(lambda: bound(1))
    assert refuses(lambda: bound.__reduce_ex__(4))
    assert bound.__wrapped__ is None
    assert not hasattr(bound, "kept")
    clear(bound)
    assert driver.launches == 1


def test_a_cleared_table_is_empty_and_a_cleared_look_up_refuses(core: ModuleType) -> None:
    def answer(*_: object) -> str:
        return "asked"

    lookup, table = core.make_lookup(answer), core.make_table()
    asked = type("Asked", (), {"look": lookup, "_compiled_table": table})()
    table.remember((1,), (), "known")
    assert (asked.look(1), asked.look(2)) == ("known", "asked")
    clear(table)
    assert asked.look(1) == "asked"
    table.remember((1,), (), "again")
    assert asked.look(1) == "again"
    clear(lookup)
    assert refuses(lambda: asked.look(1))
    assert refuses(lookup)
    assert lookup.__wrapped__ is None


def test_an_object_whose_method_is_gone_refuses(core: ModuleType) -> None:
    called = core.make_called_class(type("Base", (), {"__call__": lambda _: "called"}), lambda _: "called")()
    assert called() == "called"
    del called._called_method
    assert refuses(called)


def test_a_cleared_module_makes_nothing_and_its_objects_still_work(driver: Driver, tmp_path: Path) -> None:
    core = exercise_core.load(launch_core.build(tmp_path, "-O1", "-UNDEBUG"), launch_core.NAME)
    rows, state = ((core.POINTER, 8, 8, 0, 0, 0, 0, None, None, int),), core.make_state(1, 0)
    bound = make_bound(core, driver, lambda: "fallback", exercise_core.Stream())
    call = make_call(core, driver, prepare=lambda _: state)
    uses: list[Callable[[], object]] = [
        core.make_table,
        partial(core.make_lookup, int),
        partial(core.make_state, 1, 0),
        partial(core.make_call, rows, driver.address, 1, *[None] * 5),
        partial(core.make_bound, driver.address, state, _EXTENTS, 1, None, (), None),
    ]
    for use in uses:
        use()
    clear(core)
    del core  # what pytest would print of it is gone
    assert all(map(refuses, uses))
    array = exercise_core.Array(None, 0x1000)
    bound()
    assert driver.launches == 1  # the names that it looks up are there
    assert launch(call, array, exercise_core.Stream()) == "fallback"
    assert call(Launcher(), None, 1, 1, None, 5, shared_memory=4) == "fallback"


# --- used while they are cleared ---


class Dying:
    """Makes an object whose end uses another one, as that of an extension type may, and notes what comes of it."""

    def __init__(self, use: Callable[[Any], object]) -> None:
        self.outcomes: list[object] = []
        self._use = use
        self._address = 0
        self._function = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._end)

    def make(self) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(1, None, ctypes.cast(self._function, ctypes.c_void_p))

    def uses(self, thing: object) -> None:
        """Have it used, without a reference that the collector would see."""
        self._address = id(thing)

    def _end(self, _: int) -> None:
        try:
            self.outcomes.append(self._use(ctypes.cast(self._address, ctypes.py_object).value))
        except TypeError as error:
            self.outcomes.append(type(error))


def use_call(call: Any) -> object:
    assert call.read_address(object()) is None
    return launch(call)


_PARTS = ("fallback", "learn_array", "learn_stream", "prepare", "stream_type", "last")


@pytest.mark.parametrize("part", _PARTS)
def test_a_call_used_while_it_is_cleared_launches_nothing(core: ModuleType, driver: Driver, part: str) -> None:
    dying = Dying(use_call)
    call = make_call(core, driver, **{part: dying.make()})
    dying.uses(call)
    clear(call)
    assert dying.outcomes == [TypeError]
    assert not driver.launches


@pytest.mark.parametrize("part", ["fallback", "attribute"])
def test_a_bound_launch_used_while_it_is_cleared_launches_nothing(core: ModuleType, driver: Driver, part: str) -> None:
    dying = Dying(lambda bound: bound())
    bound = make_bound(core, driver, dying.make() if part == "fallback" else int)
    if part == "attribute":
        bound.kept = dying.make()
    dying.uses(bound)
    clear(bound)
    assert dying.outcomes == [TypeError]
    assert not driver.launches


def test_a_look_up_used_while_it_is_cleared_refuses(core: ModuleType) -> None:
    dying = Dying(lambda lookup: lookup(Launcher(), 1))
    lookup = core.make_lookup(dying.make())
    dying.uses(lookup)
    clear(lookup)
    assert dying.outcomes == [TypeError]


def test_a_table_used_while_it_is_cleared_is_empty(core: ModuleType) -> None:
    lookup, dying = core.make_lookup(lambda *_: "asked"), Dying(lambda table: asked.look(1))
    table = core.make_table()
    asked = type("Asked", (), {"look": lookup, "_compiled_table": table})()
    table.remember((1,), (), dying.make())
    dying.uses(table)
    clear(table)
    assert dying.outcomes == ["asked"]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected until a test asks for it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_what_the_collector_takes_apart_launches_nothing(core: ModuleType, driver: Driver) -> None:
    ends = [Dying(use_call), Dying(lambda bound: bound())]
    call, bound = make_call(core, driver, prepare=ends[0].make()), make_bound(core, driver, int)
    call.fallback = [call]  # a cycle, of which the call is cleared first because it is older
    bound.kept = (bound, ends[1].make())
    for end, thing in zip(ends, (call, bound), strict=True):
        end.uses(thing)
    del call, bound, thing
    gc.collect()
    assert [end.outcomes for end in ends] == [[TypeError], [TypeError]]
    assert not driver.launches
