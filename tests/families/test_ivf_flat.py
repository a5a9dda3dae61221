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

from jitlto.base.errors import UnknownValueError
from jitlto.check.covering_array import choose_cover
from jitlto.cuda import ptx
from jitlto.plan.plan import Plan
from jitlto.record.fragment import Role, SymbolKind
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises

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


def covering(strength: int) -> list[Configuration]:
    return [KERNELS[place] for place in choose_cover(KERNELS, strength)[0]]


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


def test_a_data_type_decides_its_accumulator(ivf_flat: KernelFamily) -> None:
    given = {name: value for name, value in KERNELS[0].items() if name != "acc_type"}
    assert ivf_flat.plan(arch="sm_90", **given).configuration == KERNELS[0]


def test_a_vector_length_of_another_type_is_an_error(ivf_flat: KernelFamily) -> None:
    with raises(UnknownValueError, "plan-unknown-value-combination", "veclen=16", hint="1, 4"):
        ivf_flat.plan(arch="sm_90", **{**KERNELS[0], "veclen": "16"})


def test_callers_see_the_declared_names_and_types(ivf_flat: KernelFamily) -> None:
    plan = ivf_flat.plan(arch="sm_90", **KERNELS[-1])
    assert [str(parameter) for parameter in plan.entry.signature] == [
        "signed char const* vectors",
        "long long const* ids",
        "unsigned int const* list_sizes",
        "unsigned int const* list_groups",
        "signed char const* queries",
        "unsigned int const* probes",
        "unsigned int const* probe_offsets",
        "void const* filter_data",
        "float* distances",
        "long long* neighbours",
        "unsigned int num_probes",
        "unsigned int blocks_per_query",
        "unsigned int num_chunks",
        "unsigned int row_length",
    ]


def test_all_pairs_of_variants_link_and_nothing_is_left_to_call(ivf_flat: KernelFamily) -> None:
    assert failures(ivf_flat, "sm_90", covering(2)) == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_120"])
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


def test_ids_are_not_read_where_nobody_filters(ivf_flat: KernelFamily) -> None:
    """Only for the few results: in a list that is scanned each would be 8 bytes of traffic beside a vector."""
    chosen = {**KERNELS[0], "capacity": "16", "post_lambda_name": "identity"}
    loads = {}
    for name in ("none", "bitset"):
        text = ivf_flat.plan(arch="sm_90", **{**chosen, "filter_name": name}).link_ptx()
        loads[name] = len(re.findall(r"ld\.global\S*\.\w64", text))
    assert loads == {"none": 1, "bitset": 2}


def test_the_dispatcher_takes_dtypes_and_numbers(ivf_flat: KernelFamily) -> None:
    import numpy

    for dtype, name in ((numpy.float16, "__half"), (numpy.uint8, "uint8_t"), (numpy.dtype("int8"), "int8_t")):
        plan = ivf_flat.plan(
            arch="sm_90",
            data_type=dtype,
            veclen=1,
            capacity=16,
            order="ascending",
            compute_norm=True,
            metric_name="euclidean",
            post_lambda_name="sqrt",
            filter_name="none",
        )
        assert plan.configuration["data_type"] == name


@pytest.mark.slow  # imports CuPy
def test_the_capacity_is_the_next_power_of_two_and_beyond_256_there_is_no_selection() -> None:
    scan = pytest.importorskip("docs.examples.ivf_flat.scan", exc_type=ImportError)
    for k in range(1, 257):
        capacity = scan.capacity_for(k)
        assert str(capacity) in CAPACITIES
        assert capacity // 2 < k <= capacity
    assert scan.capacity_for(257) == 0


@pytest.mark.slow  # imports CuPy
def test_vectors_are_read_16_bytes_at_a_time_unless_that_reads_much_in_vain() -> None:
    lists = pytest.importorskip("docs.examples.ivf_flat.lists", exc_type=ImportError)
    dims = (1, 7, 32, 100, 128, 768)
    assert [lists.veclen_for(dim, "float32") for dim in dims] == [1, 4, 4, 4, 4, 4]
    assert [lists.veclen_for(dim, "float16") for dim in dims] == [1, 8, 8, 8, 8, 8]
    assert [lists.veclen_for(dim, "uint8") for dim in dims] == [1, 1, 16, 16, 16, 16]
