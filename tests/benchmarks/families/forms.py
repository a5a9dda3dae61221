"""One kernel in all forms that are compared."""

from __future__ import annotations

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
    "whole_base": "whole program, for compute_75",
    "whole_native": "whole program, for the device",
    "ptx_base": "PTX linked without LTO, compute_75",
    "ptx_native": "PTX linked without LTO, the device",
    "mixed": "LTO, one fragment not optimised",
    "pointer": "LTO, callback through a pointer",
}
#: What each is held against: the same work, at the same architecture.
RATIOS = {
    "lto/whole, base": ("lto_base", "whole_base"),
    "lto/whole, native": ("lto_native", "whole_native"),
    "lto base/whole native": ("lto_base", "whole_native"),
    "separate/lto, base": ("ptx_base", "lto_base"),
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
    forms: dict[str, Form] = {}
    for name, family in (("base", base), ("native", native)):
        (compiled_for,) = family.record.architectures
        for mode in ("lto", "ptx"):
            plan = family.plan(arch=target, link_mode=mode, **configuration)
            forms[f"{mode}_{name}"] = Form(plan, plan.link())
        forms[f"whole_{name}"] = _cubin(plan, compile_whole(plan, compiled_for, target))
    plan = forms["lto_base"].plan
    mixed = _mixed(base, plan, configuration, target)
    forms["mixed"] = Form(mixed, mixed.link())
    (compiled_for,) = base.record.architectures
    pointing = pointers.with_pointers(base.planner(**configuration), plan, compiled_for, target)
    forms["pointer"] = Form(pointing, pointing.link())
    return {name: forms[name] for name in FORMS}


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


def _cubin(plan: Plan, code: bytes) -> Form:
    return Form(plan, LinkedKernel(code, plan.entry.entry, plan.target.sm, "", 0.0))
