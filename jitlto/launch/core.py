"""The compiled core (``_launch.c``), if it was built and is not turned off: what is asked and called through it.

Whatever the core does not know, and every error, it leaves to the method in Python that it stands before.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import ModuleType, NoneType
from typing import Any, ParamSpec, TypeVar, cast

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.types import cpp_name, is_exact
from jitlto.cuda import device

_INTERFACE = 15  # as in _launch.c
_MODULE = "jitlto.launch._launch"
_MOST_ANSWERS = 1 << 15
_exact: set[type] = {str, int, bool, type, NoneType}  # equal values of one of these are the same; others are added
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
    if core is None:
        return cls
    made: type[_Class] = core.make_called_class(cls)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):  # so that nobody sees a difference
        setattr(made, name, getattr(cls, name))
    return made


def looked_up(cls: type[_Class]) -> type[_Class]:
    """Have the core look in what a class's method ``launcher`` has answered before the method is called."""
    core, owner = extension(), cast("Any", cls)
    if core is not None:
        method = owner.launcher
        defaults = "".join(f", {name}={value!r}" for name, value in method.__wrapped__.__kwdefaults__.items())
        text = f"launcher($self, /, *{defaults}, **configuration)\n--\n\n{method.__doc__}"
        owner._ask_launcher, owner.launcher = method, core.make_lookup(cls, text)
    return cls


class Answers(list[Any]):
    """What a method has answered: a dict of all, and a table of what holds on all devices, which the core reads.

    The table is the list itself. Its length is a power of two, and half of its places are free, which hold None.
    """

    __slots__ = ("_count", "known")

    def __init__(self) -> None:
        super().__init__([None] * 256)
        self._count = 0
        self.known: dict[Any, Any] = {}

    def show(self, core: ModuleType, values: tuple[Any, ...], names: tuple[str, ...], answer: object) -> None:
        """Put an answer into the table; an empty one replaces it when it is full: what is missed is put in again."""
        self._count += 1
        if 2 * self._count > len(self):
            self[:] = [None] * min(4 * len(self), 2 * _MOST_ANSWERS)
            self._count = 1
        core.remember(self, values, names, answer)

    def clear(self) -> None:
        """Forget all."""
        self[:] = [None] * len(self)
        self._count = 0
        self.known.clear()


def remembered(method: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Have a method's answers kept in the :class:`Answers` that the object has in ``_quick``, by device."""

    core = extension()

    @wraps(method)
    def ask(self: Any, /, *args: Any, **how: Any) -> Any:
        values, names, answers = (*args, *how.values()), tuple(how), self._quick
        try:
            number = device.place()
            spelled = values if _exact.issuperset(map(type, values)) else tuple(map(_spell, values))
        except (JitltoError, TypeError):  # no device, or a wrong value, which the method reports
            return method(self, *args, **how)
        key = (number, names, spelled, *map(type, values))  # to Python 1, 1.0 and True are equal
        answer = answers.known.get(key)
        if answer is None:
            answer = method(self, *args, **how)
            if len(answers.known) >= _MOST_ANSWERS:
                answers.clear()
            answers.known[key] = answer
        if core is not None and number == 0 and spelled is values:
            answers.show(core, values, names, answer)
        return answer

    return ask  # type: ignore[return-value]


def _spell(value: Any) -> Any:
    """Return what a value means: itself, or a text if it may change or be equal to another one."""
    if value is None or is_exact(value):
        _exact.add(type(value))
        return value
    return repr(sorted(value.items())) if isinstance(value, Mapping) else cpp_name(value)


def _after_fork() -> None:
    # What the core keeps belongs to the parent's context; the ways in Python ask for the device, which is an error.
    core = sys.modules.get(_MODULE)
    if core is not None and device.is_used:
        core.forget()


os.register_at_fork(after_in_child=_after_fork)
