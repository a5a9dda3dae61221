"""The compiled core (``_launch.c``), if it was built and is not turned off: what is asked and called through it.

Whatever the core does not know, and every error, it leaves to the method in Python that it stands before.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper, wraps
from importlib import import_module
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.types import cpp_name, is_exact
from jitlto.cuda import device

_INTERFACE = 9  # as in _launch.c
_MODULE = "jitlto.launch._launch"
_MOST_ANSWERS = 1 << 15  # as in _table.c
_SPELLED = object()  # marks a request whose values are spelled, or that is for one of several kinds of devices
_Class = TypeVar("_Class")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def extension() -> ModuleType | None:
    """Return the extension module; None if it was not built or is turned off.

    Raises:
        JitltoError: If the settings require it, and it cannot be imported.
    """
    wanted = config.current().extension
    if wanted == "off":
        return None
    try:
        module = import_module(_MODULE)
        if getattr(module, "INTERFACE", None) != _INTERFACE:
            raise ImportError(f"{module.__file__} was built from another version of jitlto")
    except ImportError as error:
        if wanted == "required":
            raise JitltoError(
                f"the compiled core of launches cannot be imported: {error}",
                code="jitlto-extension-missing",
                where="JITLTO_EXTENSION",
                hint="install jitlto from a wheel for this platform, or where there is a C compiler",
            ) from error
        return None
    return module


def called(cls: type[_Class]) -> type[_Class]:
    """Return the class below a class whose objects the core calls, or the class itself without the core.

    The core asks what an object has in ``_quick`` before it calls ``__call__``.
    """
    core = extension()
    return cls if core is None else core.make_called_class(cls)


class Table:
    """Requests and their answers, where there is no core: the same as its ``Table``."""

    def __init__(self) -> None:
        self._answers: dict[object, Any] = {}

    def find(self, values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Return an answer by its arguments and the names of the last of them; None if there is none."""
        return self._answers.get((names, values, *map(type, values)))  # to Python 1, 1.0 and True are equal

    def remember(self, values: tuple[Any, ...], names: tuple[str, ...], answer: object) -> None:
        """Keep an answer."""
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[(names, values, *map(type, values))] = answer

    def forget(self) -> None:
        """Remove all entries."""
        self._answers.clear()


def make_table() -> Any:
    """Return an empty table: the core's, or else a :class:`Table`."""
    core = extension()
    return Table() if core is None else core.make_table()


def remembered(
    place: Callable[[], int],
) -> Callable[[Callable[_Arguments, _Answer]], Callable[_Arguments, _Answer]]:
    """Have a method's answers kept in the table that the object has in ``_quick``; the core asks that itself.

    Args:
        place: Returns 0 if an answer holds for all devices, else a number of those for which it does.
    """

    key = partial(_key, place)

    def decorate(method: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
        core = extension()
        if core is not None:
            return update_wrapper(core.make_lookup(method, key), method)

        @wraps(method)
        def ask(self: Any, /, *args: Any, **how: Any) -> Any:  # as lookup_ask() in _table.c
            table, names, values = self._quick, tuple(how), key((*args, *how.values()))
            answer = None if values is None else table.find(values, names)
            if answer is None:
                answer = method(self, *args, **how)
                if values is not None:
                    table.remember(values, names, answer)
            return answer

        return ask  # type: ignore[return-value]  # of a method

    return decorate


def _key(place: Callable[[], int], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what stands for the values of a request; None if they may mean something else the next time."""
    try:
        number = place()
        spelled = tuple(map(_spell, values))
        is_plain = number == 0 and all(map(operator.is_, spelled, values))
        return values if is_plain else (*spelled, number, _SPELLED)
    except (JitltoError, TypeError):
        return None  # no device, or a wrong value, which the method reports


def _spell(value: Any) -> Any:
    """Return what a value means: itself, or a text if it may change or be equal to another one."""
    if value is None or is_exact(value):
        return value
    return repr(sorted(value.items())) if isinstance(value, Mapping) else f"{type(value).__name__} {cpp_name(value)}"


def _after_fork() -> None:
    # What the core keeps belongs to the parent's context; the ways in Python ask for the device, which is an error.
    core = sys.modules.get(_MODULE)
    if core is not None and device.is_used():
        core.forget()


os.register_at_fork(after_in_child=_after_fork)
