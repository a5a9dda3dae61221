"""What the compiled core made launches nothing when it is called after the garbage collector has cleared it.

A cycle that is taken apart may call its own parts: an object of an extension type in it may do so when it is freed.
"""

import ctypes
import gc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.support import exercise_core, launch_core

_TP_CLEAR = 51  # typeslots.h


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


def make_launcher(core: ModuleType, driver: Driver, *, last: object = None, **parts: Any) -> Any:
    """A launcher for a pointer and an integer; ``last`` is what its signature drops last."""
    rows = (
        (core.POINTER, 8, 8, False, 2, 32, object(), None, refuse),
        (core.INTEGER, 4, 4, True, 0, 0, None, None, last or int),
    )
    known: dict[str, Any] = {
        "stream_type": exercise_core.Stream,
        "learn_array": lambda _: True,
        "learn_stream": lambda _: "cuda_stream",
    }
    known |= parts
    launcher = core.make_called_class(Plain)()
    launcher._kernel = 1
    launcher._quick = core.make_signature(rows, driver.address, 0, 1, *known.values())
    return launcher


def refuse(_: object) -> bytes:
    raise ValueError


class Plain:
    """A launcher's Python way."""

    __slots__ = ("__dict__", "__weakref__")

    def __call__(self, *_: object, **__: object) -> str:
        return "plainly"


def launch(launcher: Any, array: object = None, stream: object = None, **how: object) -> object:
    return launcher(stream, 1, 1, array, 5, **how)


@pytest.fixture
def cleared(core: ModuleType, driver: Driver) -> Any:
    """A launcher that has launched what its signature has learnt, which then is cleared."""
    launcher = make_launcher(core, driver)
    launch(launcher, None, exercise_core.ForeignStream(7))
    assert driver.launches == 1
    assert launch(launcher, exercise_core.Array(None, 0x1000)) == "plainly"  # of another dtype
    clear(launcher._quick)
    driver.launches = 0
    return launcher


def test_a_cleared_signature_launches_nothing(cleared: Any, driver: Driver) -> None:
    arguments: list[tuple[object, object]] = [
        (None, None),
        (exercise_core.Array(object(), 0x1000), None),  # of any dtype, were the declared one only gone
        (object(), exercise_core.Stream()),
        (None, exercise_core.ForeignStream(7)),
        (5, object()),
    ]
    for array, stream in arguments:
        assert launch(cleared, array, stream) == "plainly"
    assert cleared() == cleared(None, 1, 1) == launch(cleared, shared_memory=4) == "plainly"
    clear(cleared._quick)
    assert not gc.get_referents(cleared._quick)[1:]  # but its type
    assert not driver.launches


def test_a_cleared_launcher_launches_nothing(core: ModuleType, driver: Driver) -> None:
    launcher = make_launcher(core, driver)
    launch(launcher)
    assert driver.launches == 1
    for _ in range(2):
        clear(launcher)
        assert launch(launcher) == launcher() == "plainly"
    assert driver.launches == 1


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
        self.outcomes.append(self._use(ctypes.cast(self._address, ctypes.py_object).value))


_PARTS = ("learn_array", "learn_stream", "stream_type", "last")


@pytest.mark.parametrize("part", _PARTS)
def test_a_signature_used_while_it_is_cleared_launches_nothing(core: ModuleType, driver: Driver, part: str) -> None:
    launchers: list[Any] = []
    dying = Dying(lambda _: launch(launchers[0]))
    launchers.append(make_launcher(core, driver, **{part: dying.make()}))
    dying.uses(launchers[0])
    clear(launchers[0]._quick)
    assert dying.outcomes == ["plainly"]
    assert not driver.launches


def test_a_launcher_used_while_it_is_cleared_launches_nothing(core: ModuleType, driver: Driver) -> None:
    dying = Dying(launch)
    launcher = make_launcher(core, driver)
    launcher._quick = dying.make()
    dying.uses(launcher)
    clear(launcher)
    assert dying.outcomes == ["plainly"]
    assert not driver.launches


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
    end = Dying(launch)
    launcher = make_launcher(core, driver, learn_stream=end.make())
    launcher.kept = launcher  # a cycle
    end.uses(launcher)
    del launcher
    gc.collect()
    assert len(end.outcomes) == 1
    assert not driver.launches
