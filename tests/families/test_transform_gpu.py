"""The family `transform` on a GPU: a caller's own function, linked in both modes."""

from typing import Any

import numpy as np
import pytest

from jitlto.runtime.family import KernelFamily

pytestmark = pytest.mark.gpu

_SQUARE_PLUS_ONE = """
__device__ float user_transform(float x) { return x * x + 1.0f; }
__device__ double user_transform(double x) { return x * x + 1.0; }
"""
_LOGISTIC = """
__device__ float user_transform(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ double user_transform(double x) { return 1.0 / (1.0 + exp(-x)); }
"""


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
@pytest.mark.parametrize(("data_type", "dtype"), [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("source", [_SQUARE_PLUS_ONE, _LOGISTIC])
@pytest.mark.parametrize("size", [1, 1000, 1_000_003])
def test_a_users_function_gives_numpys_result(
    transform: KernelFamily, link_mode: str, data_type: str, dtype: Any, source: str, size: int
) -> None:
    import cupy as cp

    values = np.random.default_rng().uniform(-8, 8, size).astype(dtype)
    output = cp.full(size + 1, np.nan, dtype)
    launcher = transform.planner(data_type=dtype).add_source(source).launcher(link_mode=link_mode)
    launcher(cp.cuda.get_current_stream(), 64, 256, cp.asarray(values), output, size)
    exact = values.astype(np.float64)
    expected = exact**2 + 1 if source is _SQUARE_PLUS_ONE else 1 / (1 + np.exp(-exact))
    result = cp.asnumpy(output)
    # exp in single precision is within 2 units in the last place, and the quotient adds one more.
    np.testing.assert_allclose(result[:-1], expected, rtol=8 * np.finfo(dtype).eps)
    assert np.isnan(result[-1]), "wrote past the end"


def test_both_link_modes_give_the_same_bits(transform: KernelFamily) -> None:
    import cupy as cp

    values = cp.asarray(np.random.default_rng().standard_normal(4097).astype(np.float32))
    results = []
    for link_mode in ("lto", "ptx"):
        output = cp.empty_like(values)
        # fmaf leaves the optimiser nothing to contract differently.
        launcher = transform.planner(data_type="float").add_source(
            "__device__ float user_transform(float x) { return fmaf(x, x, 1.0f); }"
        ).launcher(link_mode=link_mode)  # fmt: skip
        launcher(None, 17, 128, values, output, values.size)
        results.append(cp.asnumpy(output))
    np.testing.assert_array_equal(*results)
