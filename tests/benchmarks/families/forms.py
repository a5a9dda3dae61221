"""One kernel in all forms that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass

from jitlto.base.versions import Architecture
from jitlto.plan.plan import LinkedKernel, Plan
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import pointers
from tests.benchmarks.families.compile import compile_whole

#: Each form, in words.
FORMS = {
    "lto_base": "LTO, fragments for compute_75",
    "lto_native": "LTO, fragments for the device",
    "whole_native": "whole program, for the device",
    "ptx_native": "PTX linked without LTO, the device",
    "mixed": "LTO, one fragment not optimised",
    "pointer": "LTO, callback through a pointer",
}
#: What each is held against: the same work, at the same architecture.
RATIOS = {
    "lto/whole, native": ("lto_native", "whole_native"),
    "lto base/whole native": ("lto_base", "whole_native"),
    "separate/lto, native": ("ptx_native", "lto_native"),
    "mixed/lto": ("mixed", "lto_base"),
    "pointer/lto": ("pointer", "lto_base"),
}


@dataclass(frozen=True)
class Form:
    """A kernel, linked: not loaded yet."""

    plan: Plan
    linked: LinkedKernel


def make(
    configuration: Mapping[str, str], base: KernelFamily, native: KernelFamily, target: Architecture
) -> dict[str, Form]:
    """All forms of one kernel.

    Parameters
    ----------
    configuration : mapping
    base, native : KernelFamily
        The family, compiled for the base architecture and for the target.
    target : Architecture
    """
    plan, own = (family.plan(arch=target, **configuration) for family in (base, native))
    (compiled_for,) = base.record.architectures
    plans = {
        "lto_base": plan,
        "lto_native": own,
        "ptx_native": native.plan(arch=target, link_mode="ptx", **configuration),
        "mixed": _mixed(base, plan, configuration, target),
        "pointer": pointers.with_pointers(base.planner(**configuration), plan, compiled_for, target),
    }
    forms = {name: Form(each, each.link()) for name, each in plans.items()}
    whole = LinkedKernel(compile_whole(own, target), own.entry.entry, target.sm, "", 0.0)
    return {name: forms.get(name) or Form(own, whole) for name in FORMS}


def _mixed(family: KernelFamily, plan: Plan, configuration: Mapping[str, str], target: Architecture) -> Plan:
    """A group's fragment as PTX in a link of LTO-IR: what a library would be that has no LTO-IR."""
    group = pointers.NOT_OPTIMISED[plan.family]
    fragment = next(f for f in plan.fragments if f.key.group == group)
    (image,) = fragment.images_of(ImageKind.PTX)
    return (
        family.planner(**configuration)
        .add_binary(family.database.read(image), "fatbin", f"{group}.ptx")
        .plan(arch=target)
    )
