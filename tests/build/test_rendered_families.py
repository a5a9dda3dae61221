"""How the sources of families are compiled."""

from pathlib import Path

import pytest

from jitlto.build.rendered_families import RenderedFamilies
from jitlto.families.declaration import load_family
from tests.support.families import MINI, tiered, write_family

TIERED = tiered(MINI, sass='"80", "90"')


def candidates(directory: Path, line: str) -> set[int]:
    """The architectures for which code of ``op`` is compared."""
    op = MINI["op.cu.jinja"].replace('#include "op.cuh"\n', f'#include "op.cuh"\n{line}\n')
    families = RenderedFamilies([load_family(write_family(directory, TIERED | {"op.cu.jinja": op}))])
    return {each.number for request in families.requests for each in request.config.candidates}


@pytest.mark.parametrize(
    "line",
    [
        "#if __CUDA_ARCH__ >= 800",
        "NV_IF_TARGET(NV_PROVIDES_SM_80, (return 1;))",
        "cuda::device::current_arch_traits().warp_size",
        "__nv_bfloat16 sum;",
        "#include <cuda_fp8.h>",
        "#include <cuda/barrier>",
        "#include <cooperative_groups.h>",
        "#include <cute/tensor.hpp>",
        "#include <cutlass/arch/arch.h>",
    ],
)
def test_what_may_differ_by_architecture_is_compared_for_those_of_cubins(tmp_path: Path, line: str) -> None:
    assert candidates(tmp_path, line) == {75, 80, 90}


@pytest.mark.parametrize(
    "line", ["", "#include <cuda_fp16.h>", "double search_of_fp64;", "struct acute {};", "// a barrier"]
)
def test_what_means_the_same_for_all_is_compiled_once(tmp_path: Path, line: str) -> None:
    assert candidates(tmp_path, line) == set()


def test_a_header_that_only_nvcc_finds_may_name_architectures(tmp_path: Path) -> None:
    assert candidates(tmp_path, "#include HEADER") == {75, 80, 90}
