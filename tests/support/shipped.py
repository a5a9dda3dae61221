"""What holds of every shipped family: its kernels plan, and link without a call between their fragments."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from jitlto.base.versions import Architecture
from jitlto.check.compare import choose_cover
from jitlto.cuda import device, ptx
from jitlto.families import declaration
from jitlto.families.matrix import load_matrix
from jitlto.plan.plan import Plan
from jitlto.record.fragment import ImageKind, Role, SymbolKind
from jitlto.runtime.family import KernelFamily

Configuration = dict[str, str]
#: Beside sm_90: the oldest and the newest kind of device that CUDA 12.9 and 13 both know.
ARCHS = ("sm_80", "sm_120")
#: How many fragments each group of a shipped family has.
GROUPS = {
    "transform": {"apply_transform": 2},
    "search": {"search_kernel": 24, "compute_distance": 4, "apply_filter": 4},
    "fft": {"fft_kernel": 156, "fft_load": 12, "fft_store": 12},
    "transport": {
        "transport_kernel": 1, "absorb": 2, "apply_boundary": 3, "cross_boundary": 2, "distance_to_boundary": 2,
        "distance_to_collision": 1, "get_cross_sections": 2, "get_domain": 2, "locate": 2, "random_block": 2,
        "roulette": 2, "sample_cosine": 2, "sample_group": 2, "sample_source": 3, "tally": 2, "turn": 2,
    },
    "segment_reduce": {"segment_reduce_kernel": 66, "segment_load": 11, "segment_store": 11},
    "ivf_flat": {"metric": 16, "post_lambda": 3, "interleaved_scan": 320, "filter": 2},
    "ivf_flat_batch": {
        "sort_probes": 4, "tiled_scan": 16, "select_probed": 18, "select_columns": 18, "index_step": 9,
        "convert_rows": 4, "store_rows": 3,
    },
}  # fmt: skip


#: Groups of more fragments are thinned out, unless this is in the environment or there is a GPU to launch all kernels.
MANY = 100
# By family: whether all values are left, or all pairs of them; transforms of one kind differ by their sizes alone.
_LEFT = {"fft": 1}
ALL = "JITLTO_TEST_LINK_ALL"


def thin(name: str, directory: Path) -> declaration.FamilyDeclaration:
    """A shipped family, of whose large groups as many fragments are left as have all values, or all pairs of them.

    The largest, to which no caller adds code, have LTO-IR alone: PTX takes as long again.
    """
    family, groups = declaration.load_family(declaration.find_family(name)), []
    uses = tuple(thin(used.name, directory) for used in family.uses)
    images = (ImageKind.LTOIR,) if name.startswith("ivf_flat") else family.images
    for group in family.groups:
        matrix, path = group.matrix, directory / f"{name}_{group.name}.json"
        if matrix and (loaded := load_matrix(matrix)).count > MANY:
            combinations = [{key: str(value) for key, value in each.items()} for each in loaded.combinations()]
            path.write_text(
                json.dumps([combinations[place] for place in choose_cover(combinations, _LEFT.get(name, 2))])
            )
            matrix = path
        groups.append(replace(group, matrix=matrix))
    return replace(family, groups=tuple(groups), uses=uses, images=images)


def tiered(name: str) -> declaration.FamilyDeclaration:
    """A shipped family with two tiers on the current device."""
    arch = device.architecture()

    def change(family: declaration.FamilyDeclaration) -> declaration.FamilyDeclaration:
        return replace(family, sass=(arch,), link=msgspec.structs.replace(family.link, tiered=True))

    (family,) = declaration.change_all([declaration.load_family(declaration.find_family(name))], change)
    return family


def cover(family: KernelFamily, strength: int, **chosen: str) -> list[Configuration]:
    """Kernels that have all values, all pairs of them or the like, of those with the values that were chosen."""
    kernels = [each for each in family.configurations() if each.items() >= chosen.items()]
    return [kernels[place] for place in choose_cover(kernels, strength)]


def check_plans(family: KernelFamily, each: int) -> None:
    """The fragments are those declared, and each entrypoint has so many configurations, which plan to kernels."""
    fragments = family.database.fragments(family.name)
    found, declared = Counter(fragment.key.group for fragment in fragments), GROUPS[family.name]
    assert found.keys() == declared.keys()
    assert all(found[name] == count or found[name] < count > MANY for name, count in declared.items())
    digests = set()
    for configuration in family.configurations():
        plan = family.plan(arch="sm_90", **configuration)  # type: ignore[arg-type]
        assert plan.configuration == {n: value for n, value in configuration.items() if n != "entry"}
        digests.add(plan.digest)
    assert len(digests) == each * sum(fragment.role is Role.ENTRYPOINT for fragment in fragments)


def check_links(family: KernelFamily, arch: str, configurations: Iterable[Configuration]) -> None:
    """Kernels link, and nothing is left to call in any of them."""
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        plans = [family.plan(arch=arch, **each) for each in configurations]  # type: ignore[arg-type]
        every_fourth = [place % 4 == 0 for place in range(len(plans))]  # assembling takes as long again
        faults = pool.map(_faults, plans, every_fourth)
        found = [f"{plan.configuration}: {fault}" for each in faults for plan, fault in each]
    assert plans
    assert found == []


def _faults(plan: Plan, assembled: bool) -> list[tuple[Plan, str]]:
    """What the PTX that link-time optimisation makes of a kernel must not have, and has, and perhaps its cubin."""
    text, crossing = plan.link_ptx(), crossing_functions(plan)
    module = ptx.parse_ptx(text)
    found = [f"requires {symbol.name}" for symbol in module.requires]
    found += ["calls no other fragment"] * (not crossing and len(plan.fragments) > 1)
    found += [f"names {name}" for name in crossing if re.search(rf"(?<![\w$.]){re.escape(name)}(?![\w$.])", text)]
    found += [f"calls: {call}" for call in re.findall(r"\bcall\b[^;]*;", text)]
    found += ["keeps variables in local memory"] * ("__local_depot" in text and plan.family != "transport")
    found += ["another target"] * (module.target != plan.target)
    if not assembled:
        return [(plan, fault) for fault in found]
    linked = plan.link()
    is_whole = linked.cubin[:4] == b"\x7fELF" and plan.entry.entry.encode() in linked.cubin
    found += ["is no cubin of the entrypoint"] * (not is_whole or linked.architecture != plan.target)
    found += [f"the cubin names {name}" for name in crossing if name.encode() in linked.cubin]
    return [(plan, fault) for fault in found]


def crossing_functions(plan: Plan) -> set[str]:
    """The functions that fragments of a plan require of others."""
    return {s.name for fragment in plan.fragments for s in fragment.requires if s.kind is SymbolKind.FUNCTION}


def check_ptx_keeps_calls(family: KernelFamily, configuration: Configuration) -> None:
    """PTX links too, and its cubin calls what crosses the borders of fragments."""
    plan = family.plan(arch="sm_90", link_mode="ptx", **configuration)  # type: ignore[arg-type]
    cubin, crossing = plan.link().cubin, crossing_functions(plan)
    assert crossing
    assert all(symbol.encode() in cubin for symbol in crossing)
    assert plan.target == Architecture(90)
