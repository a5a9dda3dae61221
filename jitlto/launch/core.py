"""Whether launches use the compiled core: ``_launch.c``, if it was built and is not turned off."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from jitlto.base import config
from jitlto.base.errors import JitltoError

_INTERFACE = 8  # as in _launch.c
_Made = TypeVar("_Made")


def extension() -> ModuleType | None:
    """Return the extension module; None if it was not built or is turned off.

    Raises:
        JitltoError: If the settings require it, and it cannot be imported.
    """
    wanted = config.current().extension
    if wanted == "off":
        return None
    try:
        module = import_module("jitlto.launch._launch")
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


def new_called(cls: type[_Made], core: ModuleType | None, wrap: Callable[[Any], Any] | None = None) -> _Made:
    """Make an object for ``cls.__new__``; with the core, one that is called without a tuple and a dict of arguments.

    Args:
        cls: A class of Python, with a method ``__call__``.
        core: The extension module.
        wrap: Makes of that method what is called in its place.
    """
    if core is None:
        return object.__new__(cls)
    made = _called_class(cls, core, wrap)  # type: ignore[arg-type]  # a class can be hashed
    return made.__new__(made)  # type: ignore[no-any-return]


@cache
def _called_class(cls: type[Any], core: ModuleType, wrap: Callable[[Any], Any] | None) -> Any:
    method = vars(cls).get("__call__", cls.__call__)
    return core.make_called_class(cls, wrap(method) if wrap else method)
