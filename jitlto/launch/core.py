"""The compiled core (``_launch.c``), if it was built and is not turned off: what is asked and called through it.

Whatever the core does not know, and every error, it leaves to the method in Python that it stands before.
"""

import operator
import os
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper, wraps
from importlib import import_module
from types import ModuleType, NoneType
from typing import Any, ParamSpec, TypeVar

from jitlto.base import config
from jitlto.base.errors import JitltoError
from jitlto.base.types import cpp_name, is_exact
from jitlto.cuda import device

_INTERFACE = 11  # as in _launch.c
_MODULE = "jitlto.launch._launch"
_MOST_ANSWERS = 1 << 15
_exact: set[type] = {str, int, bool, type, NoneType}  # equal values of one of these are the same; others are added
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
    if core is None:
        return cls
    made: type[_Class] = core.make_called_class(cls)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):  # so that nobody sees a difference
        setattr(made, name, getattr(cls, name))
    return made


def remembered(
    place: Callable[[], int],
) -> Callable[[Callable[_Arguments, _Answer]], Callable[_Arguments, _Answer]]:
    """Have a method's answers kept in the dict that the object has in ``_quick``; the core looks there itself first.

    Args:
        place: Returns 0 if an answer holds for all devices, else a number of those for which it does.
    """

    def decorate(method: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
        core = extension()
        find, remember = (core.find, core.remember) if core else (_find, _remember)

        @wraps(method)
        def ask(self: Any, /, *args: Any, **how: Any) -> Any:
            values = (*args, *how.values()) if how else args
            try:
                number = place()
                if number or not _exact.issuperset(map(type, values)):
                    values = _spell_all(values, number)
            except (JitltoError, TypeError):  # no device, or a wrong value, which the method reports
                return method(self, *args, **how)
            names, answers = tuple(how), self._quick
            answer = find(answers, values, names)
            if answer is None:
                answer = method(self, *args, **how)
                if len(answers) >= _MOST_ANSWERS:
                    answers.clear()
                remember(answers, values, names, answer)
            return answer

        return ask if core is None else update_wrapper(core.make_lookup(ask), method)  # type: ignore[return-value]

    return decorate


def _find(answers: dict[Any, Any], values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """Return an answer by its arguments and the names of the last of them, as the core does; None if there is none."""
    return answers.get((names, values, *map(type, values)))  # to Python 1, 1.0 and True are equal


def _remember(answers: dict[Any, Any], values: tuple[Any, ...], names: tuple[str, ...], answer: object) -> None:
    answers[(names, values, *map(type, values))] = answer


def _spell_all(values: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    """Return what stands for the values of a request: the same where each is what it means, for all devices."""
    spelled = tuple(map(_spell, values))
    return values if number == 0 and all(map(operator.is_, spelled, values)) else (*spelled, number, _SPELLED)


def _spell(value: Any) -> Any:
    """Return what a value means: itself, or a text if it may change or be equal to another one."""
    if value is None or is_exact(value):
        _exact.add(type(value))
        return value
    return repr(sorted(value.items())) if isinstance(value, Mapping) else f"{type(value).__name__} {cpp_name(value)}"


def _after_fork() -> None:
    # What the core keeps belongs to the parent's context; the ways in Python ask for the device, which is an error.
    core = sys.modules.get(_MODULE)
    if core is not None and device.is_used():
        core.forget()


os.register_at_fork(after_in_child=_after_fork)
