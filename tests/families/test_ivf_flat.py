"""The family ``ivf_flat``: 341 fragments; every combination of them plans, and links into a kernel without calls."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from jitlto.check.covering_array import choose_cover
from jitlto.cuda import ptx
from jitlto.plan.plan import Plan
from jitlto.record.fragment import Role, SymbolKind
from jitlto.runtime.family import KernelFamily

Configuration = dict[str, str]

# Accumulator and vector lengths of each data type.
TYPES = {
    "float": ("float", ("1", "4")),
    "__half": ("float", ("1", "8")),
    "uint8_t": ("uint32_t", ("1", "16")),
    "int8_t": ("int32_t", ("1", "16")),
}
CAPACITIES = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "256")
KERNELS: list[Configuration] = [
    {
        "data_type": data_type,
        "acc_type": acc_type,
        "veclen": veclen,
        "capacity": capacity,
        "order": order,
        "compute_norm": compute_norm,
        "metric_name": metric_name,
        "post_lambda_name": post_lambda_name,
        "filter_name": filter_name,
    }
    for data_type, (acc_type, veclens) in TYPES.items()
    for veclen, capacity, order, compute_norm, metric_name, post_lambda_name, filter_name in product(
        veclens,
        CAPACITIES,
        ("ascending", "descending"),
        ("true", "false"),
        ("euclidean", "inner_product"),
        ("identity", "sqrt", "compose"),
        ("none", "bitset"),
    )
]


def covering(strength: int, **chosen: str) -> list[Configuration]:
    """Kernels that have all values, all pairs of them or the like, of those with the values that were chosen."""
    kernels = [each for each in KERNELS if each.items() >= chosen.items()]
    return [kernels[place] for place in choose_cover(kernels, strength)[0]]


def faults(plan: Plan, fragments: int = 4) -> list[str]:
    """What a linked kernel must not have, and has: read from the PTX that link-time optimisation makes of it.

    At least so many functions cross the borders of its fragments.
    """
    text = plan.link_ptx()
    module = ptx.parse_ptx(text)
    found = [f"requires {symbol.name}" for symbol in module.requires]
    symbols = [symbol for fragment in plan.fragments for symbol in (*fragment.provides, *fragment.requires)]
    crossing = {symbol.name for symbol in symbols if symbol.kind is SymbolKind.FUNCTION}
    if len(crossing) < fragments:
        found.append(f"is made of {sorted(crossing)} only")
    found += [f"names {name}" for name in crossing if re.search(rf"(?<![\w$.]){re.escape(name)}(?![\w$.])", text)]
    found += [f"calls: {call}" for call in re.findall(r"\bcall\b[^;]*;", text)]
    found += ["keeps variables in local memory"] * ("__local_depot" in text)
    cubin = plan.link().cubin
    if cubin[:4] != b"\x7fELF" or plan.entry.entry.encode() not in cubin:
        found.append("is no cubin of the entrypoint")
    return found


def failures(family: KernelFamily, arch: str, configurations: Sequence[Configuration], fragments: int = 4) -> list[str]:
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        answers = pool.map(lambda each: faults(family.plan(arch=arch, **each), fragments), configurations)
        return [f"{each}: {fault}" for each, found in zip(configurations, answers, strict=True) for fault in found]


def test_there_are_341_fragments(ivf_flat: KernelFamily) -> None:
    fragments = ivf_flat.database.fragments("ivf_flat")
    groups = Counter(fragment.key.group for fragment in fragments)
    assert groups == {"metric": 16, "post_lambda": 3, "interleaved_scan": 320, "filter": 2}
    assert len(fragments) == 341
    assert {fragment.key.group for fragment in fragments if fragment.role is Role.ENTRYPOINT} == {"interleaved_scan"}


def test_every_combination_plans_and_there_is_no_other(ivf_flat: KernelFamily) -> None:
    wanted = {tuple(sorted(each.items())) for each in KERNELS}
    assert len(wanted) == 3840
    assert {tuple(sorted(each.items())) for each in ivf_flat.configurations()} == wanted
    digests = set()
    for each in KERNELS:
        plan = ivf_flat.plan(arch="sm_90", **each)
        assert plan.configuration == each
        assert sorted(fragment.key.group for fragment in plan.fragments) == sorted(
            ("interleaved_scan", "metric", "post_lambda", "filter")
        )
        digests.add(plan.digest)
    assert len(digests) == 3840


def test_all_pairs_of_variants_link_and_nothing_is_left_to_call(ivf_flat: KernelFamily) -> None:
    assert failures(ivf_flat, "sm_90", covering(2, capacity="16") + covering(1)) == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_all_variants_link_for_other_architectures(ivf_flat: KernelFamily, arch: str) -> None:
    assert failures(ivf_flat, arch, covering(1)) == []


@pytest.mark.skipif(
    "JITLTO_TEST_LINK_ALL" not in os.environ, reason="minutes; JITLTO_TEST_LINK_ALL=1 links all kernels"
)
def test_all_kernels_link_and_nothing_is_left_to_call(
    ivf_flat: KernelFamily, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.perf_counter()
    found = failures(ivf_flat, "sm_90", KERNELS)
    with capsys.disabled():
        print(f"\nlinked {len(KERNELS)} kernels for sm_90 in {time.perf_counter() - begin:.0f} s: {len(found)} faults")
    assert found == []


@pytest.mark.parametrize("data_type", ["uint8_t", "int8_t"])
def test_bytes_are_taken_four_at_a_time(ivf_flat: KernelFamily, data_type: str) -> None:
    chosen = {
        **next(each for each in KERNELS if each["data_type"] == data_type and each["veclen"] == "16"),
        "metric_name": "euclidean",
        "compute_norm": "false",
    }
    text = ivf_flat.plan(arch="sm_90", **chosen).link_ptx()
    assert "vabsdiff4" in text
    assert text.count("dp4a") == text.count("vabsdiff4")
    text = ivf_flat.plan(arch="sm_90", **{**chosen, "metric_name": "inner_product"}).link_ptx()
    assert "dp4a" in text
    assert "vabsdiff4" not in text
