"""The family ``segment_reduce``: every kernel plans and links, and takes a caller's functions."""

import re

import pytest

from docs.examples.operators import declare_segment_reduce
from docs.examples.segment_reduce import Launch
from jitlto.cuda.nvjitlink import find_undefined
from jitlto.runtime.family import KernelFamily
from tests.support.segment_reduce_reference import DTYPES, INDICES, REDUCTIONS
from tests.support.shipped import ARCHS, check_links, check_plans, cover

CHOSEN = {"reduce": "sum", "data_type": "float", "index_type": "int64_t", "veclen": "4"}
#: The relu of an element times its weight; both are found by an index.
LOAD = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct gathered {
  const long long* indices;
  const float* weights;
};

__device__ void segment_load(const TYPE* values, unsigned long long element, unsigned int column, unsigned int width,
                             void* info, float (&value)[VECLEN]) {
  const gathered from = *static_cast<const gathered*>(info);
  segment_reduce::load_vector<VECLEN>(values, from.indices[element] * width + column, value);
  const float weight = from.weights[element];
  for (int i = 0; i < VECLEN; ++i) { value[i] = weight * fmaxf(value[i], 0.0f); }
}
"""
#: The row plus a bias of each column.
STORE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ void segment_store(TYPE* output, unsigned long long row, unsigned int column, unsigned int width,
                              const float (&value)[VECLEN], void* info) {
  float sum[VECLEN];
  segment_reduce::load_vector<VECLEN>(static_cast<const TYPE*>(info), column, sum);
  for (int i = 0; i < VECLEN; ++i) { sum[i] += value[i]; }
  segment_reduce::store_vector<VECLEN>(output + row * width + column, sum);
}
"""


def source(text: str, chosen: dict[str, str]) -> str:
    """A caller's function for a kernel."""
    return text.replace("TYPE", chosen["data_type"]).replace("VECLEN", chosen["veclen"])


def test_there_is_one_kernel_of_each_entrypoint(segment_reduce: KernelFamily) -> None:
    check_plans(segment_reduce, 1)


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_link_and_nothing_is_left_to_call(segment_reduce: KernelFamily, arch: str) -> None:
    check_links(segment_reduce, arch, cover(segment_reduce, 2)[ARCHS.index(arch) :: 2])


@pytest.mark.parametrize("veclen", ["1", "4", "8"])
def test_elements_are_read_in_the_widest_accesses(segment_reduce: KernelFamily, veclen: str) -> None:
    for data_type in DTYPES:
        size = int(veclen) * (4 if data_type == "float" else 2)
        if size > 16:
            continue
        plan = segment_reduce.plan(arch="sm_90", **CHOSEN | {"data_type": data_type, "veclen": veclen})  # type: ignore[arg-type]
        access = {2: "u16", 4: "[uf]32", 8: "v2.u32", 16: "v4.u32"}[size]
        assert re.search(rf"ld\.global\.nc\.{access}", plan.link_ptx())


def test_a_callers_functions_take_the_place_of_the_shipped_ones(segment_reduce: KernelFamily) -> None:
    for data_type, veclen in (("float", "4"), ("__half", "8"), ("__nv_bfloat16", "1")):
        chosen = CHOSEN | {"data_type": data_type, "veclen": veclen}
        for given in ((LOAD,), (STORE,), (LOAD, STORE)):
            planner = segment_reduce.planner(**chosen)
            for text in given:
                planner.add_source(source(text, chosen))
            plan = planner.plan(arch="sm_90")
            kept = {"segment_load": LOAD, "segment_store": STORE}
            groups = {"segment_reduce_kernel", *(name for name, text in kept.items() if text not in given)}
            assert {fragment.key.group for fragment in plan.fragments} == groups
            assert plan.calls_left() == []
            assert find_undefined(plan.link().cubin) == []


def test_the_operator_fits_the_family(segment_reduce: KernelFamily) -> None:
    for index, reduce, dtype, width in zip(
        (name for name in INDICES.values() for _ in range(3)), REDUCTIONS * 2, [*DTYPES.values()] * 2, (1, 6, 8) * 2,
        strict=True,
    ):  # fmt: skip
        operator = declare_segment_reduce(segment_reduce, index)
        call = operator.resolve(operator.bind([((1000, width), dtype), ((101,), index), reduce]))
        assert call.results == (((100, width), dtype),)
        plan = segment_reduce.plan(arch="sm_90", **call.configuration)  # type: ignore[arg-type]
        assert len(plan.chosen.signature) == len(call.parameters)
        assert call.launch is not None
        assert call.launch.grid == Launch.of(100, width, dtype).grid


@pytest.mark.parametrize(
    ("rows", "width", "dtype", "expected"),
    [
        (1000, 1, "float32", (1000, 1)),
        (1000, 1024, "bfloat16", (1024, 8)),
        (1000, 33, "float16", (1024, 1)),
        (100_000, 128, "float32", (4167, 4)),
        (100_000, 100, "float32", (5000, 4)),
        (0, 64, "float32", (0, 4)),
        (10, 0, "float32", (0, 4)),
    ],
)
def test_the_example_launches_as_many_blocks_as_rows_and_tiles_take_and_as_long_rows_need(
    rows: int, width: int, dtype: str, expected: tuple[int, int]
) -> None:
    assert Launch.of(rows, width, dtype) == Launch(expected[0], 256, expected[1])
