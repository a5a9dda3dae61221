"""A plan becomes a linked kernel, by nvJitLink."""

import time

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import ArchitectureError
from jitlto.cuda import nvjitlink
from jitlto.cuda.nvfatbin import holds_ltoir
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan


def link_plan(store: CacheDir | None, plan: Plan, *, ptx: bool = False) -> LinkedKernel:
    """Link a plan, without looking into any cache for it.

    Args:
        store: The user's cache, for what comparing its inputs needs.
        plan: The plan.
        ptx: Link into PTX, even if the target needs a cubin.

    Raises:
        LinkError: Or a subclass, if the plan does not link.
    """
    target, flags = plan.link_target, plan.flags
    supplied = [item for user in plan.supplied for mode, item in user.images if mode == target.link_mode]
    base = target.jit_base
    binary = [i for i in supplied if i.kind is not InputKind.LTOIR and not holds_ltoir(i.data)]
    if ptx:  # what is not LTO-IR is linked after it was optimised
        supplied = [item for item in supplied if item not in binary]
    elif base and binary:
        raise ArchitectureError(
            f"{', '.join(i.name for i in binary)} cannot become part of PTX for {base.compute}: it is not LTO-IR",
            code="link-architecture-input",
            hint="give its source or LTO-IR, or install an nvJitLink that links for the target",
        )
    images = zip(plan.fragments, plan.images, strict=True)
    begin = time.perf_counter()
    with plan.services.events.step("link", plan.entry.key.text):
        inputs = [LinkInput(InputKind.FATBIN, plan.database.read(i), fragment.key.text) for fragment, i in images]
        linked = nvjitlink.link([*inputs, *supplied], target.linked_for, flags, ptx=ptx or base is not None)
    seconds = time.perf_counter() - begin
    if base and not ptx:
        nvjitlink.check_linked_ptx(linked)
    if supplied:
        from jitlto.link.conflicts import check_conflicts  # imported lazily: few plans have inputs

        check_conflicts(list(zip(plan.fragments, inputs, strict=True)), plan.supplied, target, plan.options, store)
    return LinkedKernel(linked.data, plan.entry.entry, target.code, linked.log, seconds)
