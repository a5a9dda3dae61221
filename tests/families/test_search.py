"""The family ``search``: all of its kernels plan, a covering set links for every target, and no call is left."""

from __future__ import annotations

import re
from itertools import product

import pytest

from jitlto.base.versions import Architecture
from jitlto.check.covering_array import choose_cover
from jitlto.cuda import nvjitlink, ptx
from jitlto.record.fragment import Role, SymbolKind
from jitlto.runtime.family import KernelFamily

Configuration = dict[str, str]

KERNELS: list[Configuration] = [
    {
        "data_type": data_type,
        "out_type": out_type,
        "idx_type": idx_type,
        "optimized_name": optimized_name,
        "veclen": veclen,
        "distance_name": distance_name,
        "filter_name": filter_name,
    }
    for (data_type, out_type), idx_type, (optimized_name, veclen), distance_name, filter_name in product(
        [("float", "float"), ("float", "double"), ("__half", "float")],
        ["uint32_t", "int64_t"],
        [("optimized", "1"), ("optimized", "4"), ("standard", "8"), ("standard", "16")],
        ["euclidean", "inner_product"],
        ["filter_none", "filter_bitset"],
    )
]
#: Kernels with all pairs of values for one target, with all values for others that CUDA 12.9 and 13 both know.
CASES = [
    (KERNELS[place], target)
    for target, strength in (("sm_90", 2), ("sm_80", 1), ("sm_100", 1), ("sm_120", 1))
    for place in choose_cover(KERNELS, strength)[0]
]


@pytest.mark.parametrize(("configuration", "target"), CASES)
def test_kernel_links_and_nothing_is_left_to_call(
    search: KernelFamily, configuration: Configuration, target: str
) -> None:
    plan = search.plan(arch=target, **configuration)
    assert plan.configuration == configuration
    text = plan.link_ptx()
    module = ptx.parse_ptx(text)
    assert module.target == Architecture.parse(target)

    # Nothing unresolved: no declaration of a function or variable that the module does not define.
    assert module.requires == ()
    # Nothing of another fragment: neither defined beside the kernel, nor named anywhere else.
    entry = plan.entry.entry
    symbols = [symbol for fragment in plan.fragments for symbol in (*fragment.provides, *fragment.requires)]
    crossing = {symbol.name for symbol in symbols if symbol.kind is SymbolKind.FUNCTION}
    assert len(crossing) >= 2, "a kernel without device fragments would prove nothing"
    functions = {d.name for d in module.declarations.values() if d.kind is SymbolKind.FUNCTION}
    assert functions & crossing == set()
    assert not any(re.search(rf"(?<![\w$.]){re.escape(symbol)}(?![\w$.])", text) for symbol in crossing)
    # And so no call but, at most, to what the toolkit itself provides.
    called = {callee for call in re.findall(r"\bcall\b[^;]*;", text) for callee in re.findall(r"_Z\w+", call)}
    assert called == set()
    assert [d.name for d in module.declarations.values() if d.kind is SymbolKind.KERNEL] == [entry]

    linked = plan.link()
    assert linked.entry == entry
    assert linked.architecture == Architecture.parse(target)
    assert linked.cubin[:4] == b"\x7fELF"
    assert entry.encode() in linked.cubin
    assert not any(symbol.encode() in linked.cubin for symbol in crossing)


def test_there_are_96_kernels_of_32_fragments(search: KernelFamily) -> None:
    fragments = search.database.fragments("search")
    count = {group: sum(f.key.group == group for f in fragments) for group in {f.key.group for f in fragments}}
    assert count == {"search_kernel": 24, "compute_distance": 4, "apply_filter": 4}
    assert len(fragments) == 32
    assert [f.key.group for f in fragments if f.role is Role.ENTRYPOINT] == ["search_kernel"] * 24
    assert len(KERNELS) == 96
    assert len({search.plan(arch="sm_90", **configuration).digest for configuration in KERNELS}) == 96


def test_ptx_links_too_and_keeps_the_calls(search: KernelFamily) -> None:
    plan = search.plan(arch="sm_90", link_mode="ptx", **KERNELS[0])
    cubin = plan.link().cubin
    crossing = {s.name for f in plan.fragments for s in f.requires}
    assert crossing
    assert all(symbol.encode() in cubin for symbol in crossing)


def test_the_fragments_link_with_the_nvjitlink_at_hand(search: KernelFamily) -> None:
    linker = nvjitlink.version()
    versions = {image.version for f in search.database.fragments("search") for image in f.images}
    assert all(version.major == linker.major and version <= linker for version in versions)
