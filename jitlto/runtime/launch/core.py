"""Whether launches use the compiled core: ``_launch.c``, if it was built and is not turned off."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from jitlto import config
from jitlto.errors import JitltoError

_INTERFACE = 3  # as in _launch.c


def extension() -> ModuleType | None:
    """Return the extension module; None if it was not built or is turned off.

    Raises:
        JitltoError: If the settings require it, and it cannot be imported.
    """
    wanted = config.current().extension
    if wanted == "off":
        return None
    try:
        module = import_module("jitlto.runtime.launch._launch")
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
