"""The reductions of the family ``segment_reduce`` without a GPU: its sources on the CPU, against NumPy."""

import zlib
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from tests.support.segment_reduce_host import COMPILER, Host, misaligned
from tests.support.segment_reduce_reference import INDICES, REDUCTIONS, check, exact, offsets_of, reduced, stored

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="there is no g++")]

Configuration = dict[str, str]
_FLOAT, _HALF, _BFLOAT16 = (
    [
        {"reduce": reduce, "data_type": data_type, "index_type": index, "veclen": veclen}
        for reduce, index, veclen in chosen
    ]
    for data_type, chosen in (
        ("float", [*product(REDUCTIONS, ["int64_t"], "14"), ("sum", "int32_t", "2"), ("max", "int32_t", "4")]),
        ("__half", [("sum", "int64_t", "8"), ("mean", "int32_t", "1"), ("max", "int64_t", "4")]),
        ("__nv_bfloat16", [("mean", "int64_t", "8"), ("sum", "int32_t", "2")]),
    )
)
_KERNELS = [*_FLOAT, *_HALF, *_BFLOAT16]
# Side by side: of rows that are long early and others, the fewest and the most; and of tiles, the last of which is not
# full. All are odd, so that `veclen` is the largest by which the width can be divided.
_VECTORS = (1, 3, 7, 9, 25, 31, 33, 127)
_GUARD = 5


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"), _KERNELS)


def _lengths(rng: np.random.Generator) -> Iterator[Any]:
    """Numbers of elements of rows: many rows of a few, long ones between them, empty ones in all places, and none."""
    few = rng.integers(0, 9, 300)
    few[[0, 1, 50, -1]] = 0
    yield few
    skewed = np.full(40, 5)
    skewed[[3, 4, 20, 39]] = 513, 700, 129, 1100
    yield skewed
    yield np.array([1500, 128, 512, 0, 600])
    yield np.zeros(10, int)
    yield np.zeros(0, int)


def _reduce(
    host: Host, chosen: Configuration, values: Any, offsets: Any, places: int = 0, blocks: int | None = None
) -> Any:
    """Run a kernel on arrays that begin so many elements behind an aligned address; what is beside them is kept."""
    rows, width = len(offsets) - 1, values.shape[1]
    numbers = stored(values, chosen["data_type"])
    given = misaligned(numbers.shape, numbers.dtype, places)
    given[...] = numbers
    memory = misaligned(((rows * width) + _GUARD,), numbers.dtype, places)
    memory[...] = poison = stored(np.full(1, 77.0), chosen["data_type"])
    output = memory[: rows * width].reshape(rows, width)
    host.reduce(chosen, given, offsets.astype(INDICES[chosen["index_type"]]), output, blocks)
    assert (memory[rows * width :] == poison).all(), "wrote behind the output"
    return output


@pytest.mark.parametrize("chosen", _KERNELS, ids=lambda each: "-".join(each.values()))
def test_kernels_agree_with_numpy(host: Host, chosen: Configuration) -> None:
    rng = np.random.default_rng(zlib.crc32(repr(chosen).encode()))
    veclen = int(chosen["veclen"])
    for vectors, places in zip(_VECTORS, (0, 1) * 4, strict=True):
        for lengths in _lengths(rng):
            offsets = offsets_of(lengths)
            values = exact(stored(rng.standard_normal((offsets[-1], vectors * veclen)), chosen["data_type"]))
            result = _reduce(host, chosen, values, offsets, places)
            check(exact(result), values, offsets, chosen["reduce"], chosen["data_type"], f"{vectors} vectors")


@pytest.mark.parametrize("chosen", [each for each in _KERNELS if each["reduce"] == "max"], ids=lambda e: e["data_type"])
def test_a_maximum_is_nan_where_an_element_is(host: Host, chosen: Configuration) -> None:
    values = np.tile(np.array([1.0, np.nan, -np.inf, np.inf, -2.0, np.nan])[:, None], int(chosen["veclen"]))
    values[1, -1] = 0.5
    offsets = np.array([0, 1, 3, 3, 5, 6])
    result = exact(_reduce(host, chosen, values, offsets))
    np.testing.assert_array_equal(result, reduced(values, offsets, "max"))


@pytest.mark.parametrize("chosen", [_FLOAT[0], _FLOAT[1]], ids=lambda each: each["veclen"])
@pytest.mark.parametrize("vectors", [1, 7, 31])
def test_a_row_does_not_depend_on_the_others(host: Host, chosen: Configuration, vectors: int) -> None:
    rng = np.random.default_rng(vectors)
    width = vectors * int(chosen["veclen"])
    lengths = np.array([3, 130, 7, 600, 0, 60, 2000, 1, 300, 512])
    values, offsets = rng.standard_normal((lengths.sum(), width)), offsets_of(lengths)
    whole = _reduce(host, chosen, values, offsets)
    for row, (begin, end) in enumerate(pairwise(offsets)):
        before = int(rng.integers(0, 40))
        padded = np.concatenate([np.full((before, width), 1e30), values[begin:end]])
        alone = _reduce(host, chosen, padded, offsets_of(np.array([*[1] * before, end - begin])))
        np.testing.assert_array_equal(alone[-1], whole[row], f"row {row} of {end - begin}")


@pytest.mark.parametrize("vectors", [1, 7, 31, 127])
def test_a_result_does_not_depend_on_the_number_of_blocks(host: Host, vectors: int) -> None:
    rng = np.random.default_rng(vectors)
    lengths = rng.integers(0, 9, 700)
    lengths[[0, 5, 333, 699]] = 600
    values, offsets = rng.standard_normal((lengths.sum(), vectors)), offsets_of(lengths)
    whole, tiles = _reduce(host, _FLOAT[0], values, offsets), -(-vectors // 32)
    for blocks in (tiles, 2 * tiles):
        np.testing.assert_array_equal(_reduce(host, _FLOAT[0], values, offsets, blocks=blocks), whole)
