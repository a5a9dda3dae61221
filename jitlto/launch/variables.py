"""Variables of a loaded kernel: where the host reads and writes what ``__device__`` and ``__constant__`` declare."""

import re
from dataclasses import dataclass
from typing import Any

from jitlto.base.errors import LaunchError
from jitlto.base.mangling import demangle
from jitlto.base.text import abbreviate, suggest
from jitlto.cuda import device
from jitlto.cuda.elf import read_variables
from jitlto.cuda.libraries import driver

# What compilers put before names with internal linkage; and what people leave out or write as they like.
_UNNAMED = re.compile(r"\b_INTERNAL_\w+::|\(anonymous ?namespace\)::|\A::|\s")


@dataclass(frozen=True)
class Variable:
    """Memory of a variable on one device: valid for as long as the launcher lives, which this keeps alive.

    An array library sees its bytes (``__cuda_array_interface__``): ``cupy.asarray(variable).view("float32")``.

    Args:
        address: The device address.
        size: In bytes.
        launcher (Launcher): Whose code it is part of.
    """

    address: int
    size: int
    launcher: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def find_variable(launcher: Any, library: Any, name: str) -> Variable:
    """Return a variable in the current context; ``library`` is the driver's handle of the launcher's code.

    See :meth:`jitlto.Launcher.variable`.
    """
    names = {each: _UNNAMED.sub("", demangle(each)) for each in sorted(read_variables(launcher.cubin))}
    wanted = _UNNAMED.sub("", name)
    found = [name] if name in names else [each for each, called in names.items() if called == wanted]
    if len(found) == 1:
        device.ensure_context()
        with device.allowed_in_captures():  # the driver may load the code only now
            for get in (driver.cuLibraryGetGlobal, driver.cuLibraryGetManaged):
                status, address, size = get(library, found[0].encode())
                if not status:
                    return Variable(int(address), int(size), launcher)
        what = f"the driver gives no address of {abbreviate(name)} ({status.name})"
        hint = f"make a device of {launcher.linked.target} current"
    elif found:
        what, hint = f"several variables are called {abbreviate(name)}", f"give one of {', '.join(found)}"
    else:
        known = ", ".join(sorted({*names.values()})[:10])
        hint = f"it has {known or 'none'}; a static one in a function may have been removed"
        what, hint = f"the linked code has no variable {abbreviate(name)}", suggest(name, names.values(), hint)
    raise LaunchError(what, code="launch-variable", where=launcher.chosen.kernel, hint=hint)
