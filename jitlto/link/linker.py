"""A plan becomes a linked kernel, by nvJitLink."""

import re
import time

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import LinkError
from jitlto.base.mangling import demangle
from jitlto.cuda import nvjitlink
from jitlto.cuda.elf import read_writable
from jitlto.cuda.nvfatbin import holds_ltoir
from jitlto.cuda.nvjitlink import InputKind, stored_input
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan
from jitlto.record.fragment import ImageKind


def link_plan(store: CacheDir | None, plan: Plan, *, ptx: bool = False, is_first: bool = False) -> LinkedKernel:
    """Link a plan, without looking into any cache for it.

    Args:
        store: The user's cache, for what comparing its inputs needs.
        plan: The plan.
        ptx: Link into PTX, not into a cubin.
        is_first: For the first launches, before the kernel with LTO takes its place.

    Raises:
        LinkError: Or a subclass, if the plan does not link, or one for the first launches has variables: what is
            written to them would be lost.
    """
    target, flags = plan.target, plan.flags
    supplied = [item for user in plan.supplied for item in user.for_mode(plan.link_mode)]
    if ptx:  # what is not LTO-IR is linked after it was optimised
        supplied = [item for item in supplied if item.kind is InputKind.LTOIR or holds_ltoir(item.data)]
    pairs = zip(plan.fragments, plan.images, strict=True)
    images = [(fragment, image) for fragment, image in pairs if not ptx or image.kind is ImageKind.LTOIR]
    begin = time.perf_counter()
    with plan.services.events.step("link", plan.entry.key.text):
        inputs = [stored_input(plan.database.read(i), fragment.key.text) for fragment, i in images]
        everything = [*inputs, *supplied, *(item for item, _ in plan.libraries if not ptx)]
        try:
            linked = nvjitlink.link(everything, target, flags, ptx=ptx)
        except LinkError as error:
            few = re.search(nvjitlink.FEW_REGISTERS, error.what)
            if plan.link_mode != "sass" or not supplied or not few:
                raise
            # A caller's PTX gets no more registers than the kernel may use that calls it.
            limited = (*(flag for flag in flags if "maxrregcount" not in flag), f"-maxrregcount={few[1]}")
            linked = nvjitlink.link(everything, target, limited, ptx=ptx)
    seconds = time.perf_counter() - begin
    if supplied:
        from jitlto.link.conflicts import check_conflicts  # imported lazily: few plans have inputs

        own = zip(images, inputs, strict=True)
        fragments = [(fragment, each) for (fragment, i), each in own if i.kind is images[0][1].kind]
        check_conflicts(fragments, plan.supplied, target, plan.link_mode, plan.options, store)
    if is_first and (variables := read_writable(linked.data)):
        what = f"it has variables, which one module must hold: {', '.join(sorted(map(demangle, variables)))}"
        hint = "pass them as arguments; tables belong into __constant__ memory"
        raise LinkError(what, code="link-variables", where=plan.entry.key.text, hint=hint)
    layer = "fast" if is_first else "link"
    return LinkedKernel(linked.data, plan.entry.entry, target.sm, linked.log, seconds, layer)
