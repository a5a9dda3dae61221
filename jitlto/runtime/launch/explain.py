"""What a loaded kernel is made of, and what it takes of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitlto.cuda import device
from jitlto.frozen import Frozen
from jitlto.model.mangling import demangle

if TYPE_CHECKING:
    from cuda.core import Kernel

    from jitlto.runtime.launch.launcher import Launcher


class Resources(Frozen):
    """What a kernel takes.

    Parameters
    ----------
    registers : int
        Of a thread.
    shared : int
        Static shared memory of a block, in bytes.
    local : int
        Local memory of a thread, in bytes: spilled registers and arrays.
    constant : int
        Constant memory, in bytes.
    threads : int
        The most threads that a block may have.
    """

    registers: int
    shared: int
    local: int
    constant: int
    threads: int


def resources(kernel: Kernel) -> Resources:
    """What a kernel takes of the current device."""
    attributes = kernel.attributes[device.ordinal()]
    return Resources(
        attributes.num_regs,
        attributes.shared_size_bytes,
        attributes.local_size_bytes,
        attributes.const_size_bytes,
        attributes.max_threads_per_block,
    )


def explain(launcher: Launcher) -> str:
    """As :meth:`Launcher.explain`."""
    plan, takes = launcher.plan, launcher.resources
    origin = {"link": "linked", "disk": "found in the user's cache", "pack": "found in a pack"}[launcher.linked.layer]
    lines = [
        demangle(launcher.linked.entry),
        *(f"  {parameter}" for parameter in launcher.signature),
        *(f"{name} = {value}" for name, value in plan.configuration.items()),
        *(f"fragment {fragment.key}" for fragment in plan.fragments),
        *(f"supplied {item.symbols.name}" for item in plan.supplied),
        f"digest {launcher.chosen.digest}",
        f"{origin} for {launcher.linked.target} ({plan.link_mode}) in {1000 * launcher.linked.seconds:.1f} ms",
        f"{len(launcher.cubin)} bytes of code",
        f"{takes.registers} registers and {takes.local} bytes of local memory a thread",
        f"{takes.shared} bytes of shared memory a block, at most {takes.threads} threads a block",
    ]
    return "\n".join(lines)
