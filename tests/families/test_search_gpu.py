"""All 96 kernels of `search` on a GPU, against NumPy in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load
from tests.support.search_reference import DTYPES, Case, check, make_case

pytestmark = pytest.mark.gpu

_DIMENSIONS = (1, 3, 64, 100, 128)
_ROWS, _QUERIES = 1237, 19


@pytest.fixture(scope="module")
def family(shipped_path: Path) -> KernelFamily:
    """The family to test."""
    return load("search", shipped_path)


def _search(
    launcher: Any, configuration: dict[str, str], case: Case, *, offset: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Run one kernel, its outputs poisoned first; ``offset`` elements of misalignment before dataset and queries."""
    import cupy as cp

    def on_device(array: np.ndarray[Any, Any]) -> Any:
        whole = cp.empty(array.size + offset, array.dtype)
        part = whole[offset:].reshape(array.shape)
        part[...] = cp.asarray(array)
        return part

    n, dim = case.dataset.shape
    m = len(case.queries)
    words = case.filter_words()
    indices = cp.full(m, 12345, DTYPES[configuration["idx_type"]])
    distances = cp.full(m, np.nan, DTYPES[configuration["out_type"]])
    optimized = configuration["optimized_name"] == "optimized"
    # Fewer blocks than queries in the one, fewer threads in the other: the strides over queries are tested too.
    grid, block = (max(1, m // 2), 128) if optimized else (1, 8)
    bits = None if words is None or words.size == 0 else cp.asarray(words)
    arguments = (on_device(case.dataset), on_device(case.queries), indices, distances, n, m, dim, bits)
    launcher(cp.cuda.get_current_stream(), grid, block, *arguments)
    return cp.asnumpy(indices), cp.asnumpy(distances)


def agrees(
    rng: np.random.Generator, launcher: Any, configuration: dict[str, str], rows: int, dim: int, offset: int
) -> None:
    """One kernel on random rows that begin ``offset`` elements into an allocation, half of them filtered if any."""
    rate = 0.5 if configuration["filter_name"] == "filter_bitset" else None
    case = make_case(rng, rows, 5, dim, configuration["data_type"], pass_rate=rate)
    result = _search(launcher, configuration, case, offset=offset)
    check(*result, case, configuration["distance_name"], configuration["out_type"], configuration["idx_type"])


def _cases(rng: np.random.Generator, configuration: dict[str, str]) -> list[Case]:
    data_type, filtered = configuration["data_type"], configuration["filter_name"] == "filter_bitset"
    rate = 0.5 if filtered else None
    cases = [make_case(rng, _ROWS, _QUERIES, dim, data_type, pass_rate=rate) for dim in _DIMENSIONS]
    cases.append(make_case(rng, _ROWS, _QUERIES, 20, data_type, pass_rate=rate, ties=True))
    cases.append(make_case(rng, 0, _QUERIES, 64, data_type, pass_rate=rate))
    cases.append(make_case(rng, 1, 1, 128, data_type, pass_rate=1.0 if filtered else None))
    if filtered:
        cases.append(make_case(rng, _ROWS, _QUERIES, 100, data_type, pass_rate=0.0))
    return cases


def test_all_kernels_agree_with_numpy(family: KernelFamily) -> None:
    """Every kernel, on fresh random data of several shapes, with all rows filtered and with no rows."""
    wanted = list(family.configurations())
    assert len(wanted) == 96
    rng = np.random.default_rng()
    for configuration in wanted:
        launcher = family.launcher(**configuration)
        for case in _cases(rng, configuration):
            result = _search(launcher, configuration, case)
            check(*result, case, configuration["distance_name"], configuration["out_type"], configuration["idx_type"])


def test_pointers_that_are_not_aligned_are_read_rightly(family: KernelFamily) -> None:
    """A dataset that begins one element into an allocation allows no wide access, and must not get any."""
    rng = np.random.default_rng()
    for configuration in list(family.configurations()):
        agrees(rng, family.launcher(**configuration), configuration, 301, 64, 1)
