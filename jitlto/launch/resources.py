"""The device resources that a loaded kernel uses, and a readable description of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jitlto.base.frozen import Frozen
from jitlto.base.mangling import demangle
from jitlto.cuda import device

if TYPE_CHECKING:
    from jitlto.base.types import Parameter
    from jitlto.cuda.libraries import Kernel
    from jitlto.plan.cache_entry import LinkedKernel
    from jitlto.plan.plan import Plan

#: :attr:`LinkedKernel.layer` → its description; any other layer is shown as it is.
_ORIGINS = {
    "link": "linked",
    "disk": "found in the user's cache",
    "pack": "found in a pack",
    "store": "found in a shared store",
}


class Resources(Frozen):
    """The resources that a kernel uses.

    Args:
        registers: Registers per thread.
        shared: Static shared memory per block, in bytes.
        local: Local memory per thread, in bytes: spilled registers and arrays.
        constant: Constant memory, in bytes.
        threads: The largest number of threads per block.
    """

    registers: int
    shared: int
    local: int
    constant: int
    threads: int


def read_resources(kernel: Kernel) -> Resources:
    """Return the resources that a kernel uses on the current device."""
    attributes = kernel.attributes[device.ordinal()]
    return Resources(
        attributes.num_regs,
        attributes.shared_size_bytes,
        attributes.local_size_bytes,
        attributes.const_size_bytes,
        attributes.max_threads_per_block,
    )


def describe(
    plan: Plan, digest: str, signature: Sequence[Parameter], linked: LinkedKernel, resources: Resources
) -> str:
    """Return the text of :meth:`Launcher.explain <jitlto.Launcher.explain>`."""
    origin = _ORIGINS.get(linked.layer, linked.layer)
    lines = [
        demangle(linked.entry),
        *(f"  {parameter}" for parameter in signature),
        *(f"{name} = {value}" for name, value in plan.configuration.items()),
        *(f"fragment {fragment.key}" for fragment in plan.fragments),
        *(f"user input {item.symbols.name}" for item in plan.supplied),
        f"digest {digest}",
        f"{origin} for {linked.target} ({plan.link_mode}) in {1000 * linked.seconds:.1f} ms",
        f"{len(linked.cubin)} bytes of code",
        f"{resources.registers} registers and {resources.local} bytes of local memory per thread",
        f"{resources.shared} bytes of shared memory per block, at most {resources.threads} threads per block",
        *(f"warning of {text}" for text in linked.warnings),
    ]
    return "\n".join(lines)
