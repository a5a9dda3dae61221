"""The family ``segment_reduce`` on a GPU, against NumPy in float64; what is allowed is derived in its reference."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from docs.examples.segment_reduce import Launch
from jitlto.runtime.family import KernelFamily
from tests.families.test_segment_reduce import LOAD, STORE, source
from tests.support.segment_reduce_reference import (
    DTYPES,
    INDICES,
    REDUCTIONS,
    Array,
    check,
    exact,
    offsets_of,
    reduced,
    stored,
)

pytestmark = pytest.mark.gpu

_WIDTHS = (1, 3, 7, 32, 33, 64, 100, 127, 128, 256, 512, 1024)
_GUARD = 64  # numbers behind an output that must not be written


@pytest.fixture(scope="module", autouse=True)
def _linked_ahead(segment_reduce: KernelFamily) -> None:
    """All kernels, linked into the cache at once: tests then wait for no link."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda c: segment_reduce.plan(**c).link(), segment_reduce.configurations()))  # type: ignore[arg-type]


def _rng(*what: object) -> np.random.Generator:
    """Fresh numbers for each test, and the same ones when it is run again."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


def _lengths(rng: np.random.Generator, width: int) -> dict[str, Array]:
    """Numbers of elements of rows."""
    few, skewed = rng.integers(0, 65, 500), np.full(700, 5)
    few[[0, 1, 250, 251, -1]] = 0
    skewed[[0, 7, 8, 350, -1]] = 10_000, 129, 513, 700, 3000
    return {
        "regular": np.full(900, 5),
        "many": rng.integers(0, 4, 300_000 if width == 32 else 3000),  # of several sets for a block
        "few": few,
        "skewed": skewed,
        "one": np.array([100_000 if width <= 128 else 10_000]),
        "all empty": np.zeros(300, int),
        "none": np.zeros(0, int),
    }


def _address(array: Any) -> int:
    """An address, which may be of bfloat16: CuPy has no such dtype."""
    return int(array.data.ptr)


def _on_device(array: Array, place: int) -> Any:
    """A copy that begins so many elements into an allocation."""
    import cupy as cp

    memory = cp.zeros(array.size + place, array.dtype)
    memory[place:] = cp.asarray(array).ravel()
    return memory[place:]


def _run(
    launcher: Any, chosen: dict[str, str], values: Array, offsets: Array, place: int = 0, width: int | None = None,
    infos: tuple[Any, Any] = (None, None), blocks: int | None = None,
) -> Array:  # fmt: skip
    """Reduce stored numbers (n × width); all arrays begin ``place`` elements into an allocation.

    The output is poisoned first, and what lies around it must stay as it is.
    """
    import cupy as cp

    rows, width = len(offsets) - 1, width or values.shape[1]
    how = Launch.of(rows, width, DTYPES[chosen["data_type"]])
    memory = cp.full(place + rows * width + _GUARD, 77, values.dtype)
    given, borders = _on_device(values, place), cp.asarray(offsets.astype(INDICES[chosen["index_type"]]))
    if how.grid:
        launcher(
            cp.cuda.get_current_stream(), blocks or how.grid, how.block,
            _address(given), borders, _address(memory[place:]), rows, width, *infos,
        )  # fmt: skip
    result = cp.asnumpy(memory)
    assert (result[:place] == 77).all(), "wrote before the output"
    assert (result[place + rows * width :] == 77).all(), "wrote behind the output"
    return result[place : place + rows * width].reshape(rows, width)


def _chosen(reduce: str, data_type: str, index: str, width: int) -> dict[str, str]:
    veclen = Launch.of(1, width, DTYPES[data_type]).veclen
    return {"reduce": reduce, "data_type": data_type, "index_type": index, "veclen": str(veclen)}


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("data_type", DTYPES)
def test_kernels_agree_with_numpy(segment_reduce: KernelFamily, data_type: str, width: int) -> None:
    """The arrays begin where the widest accesses can be made, and one element behind it."""
    rng = _rng(data_type, width)
    for name, lengths in _lengths(rng, width).items():
        offsets = offsets_of(lengths)
        numbers = stored(rng.standard_normal((offsets[-1], width), np.float32), data_type)
        values = exact(numbers)
        for number, (reduce, index) in enumerate(product(REDUCTIONS, INDICES)):
            chosen = _chosen(reduce, data_type, index, width)
            result = _run(segment_reduce.launcher(**chosen), chosen, numbers, offsets, number % 2)
            check(exact(result), values, offsets, reduce, data_type, f"{reduce} of {name} rows, {width} columns")


@pytest.mark.parametrize("data_type", DTYPES)
def test_a_maximum_is_nan_where_an_element_is(segment_reduce: KernelFamily, data_type: str) -> None:
    rng = _rng(data_type)
    offsets = offsets_of(np.array([1, 5, 0, 40, 1000, 3, 2]))
    for width in (1, 8, 100):
        values = rng.standard_normal((offsets[-1], width))
        for special in (np.nan, np.inf, -np.inf):
            places = rng.integers(0, len(values), 6)
            values[places, rng.integers(0, width, 6)] = special
        values[-2:] = -np.inf
        numbers = stored(values, data_type)
        chosen = _chosen("max", data_type, "int64_t", width)
        result = _run(segment_reduce.launcher(**chosen), chosen, numbers, offsets)
        np.testing.assert_array_equal(exact(result), reduced(exact(numbers), offsets, "max"))


@pytest.mark.parametrize("width", [1, 2, 28, 32, 100, 1024])
def test_a_row_does_not_depend_on_the_others(segment_reduce: KernelFamily, width: int) -> None:
    rng, chosen = _rng(width), _chosen("sum", "float", "int32_t", width)
    launcher = segment_reduce.launcher(**chosen)
    lengths = rng.permutation([3, 130, 7, 600, 0, 60, 5000, 1, 300, 512, 128])
    values, offsets = rng.standard_normal((lengths.sum(), width), np.float32), offsets_of(lengths)
    whole = _run(launcher, chosen, values, offsets)
    tiles = -(-(width // int(chosen["veclen"])) // 32)
    for blocks in (None, tiles, 3 * tiles):
        np.testing.assert_array_equal(_run(launcher, chosen, values, offsets, blocks=blocks), whole)
    for row, (begin, end) in enumerate(pairwise(offsets)):
        before = int(rng.integers(0, 400))
        others = np.concatenate([rng.standard_normal((before, width), np.float32), values[begin:end]])
        alone = _run(launcher, chosen, others, offsets_of(np.array([*[1] * before, end - begin])))
        np.testing.assert_array_equal(alone[-1], whole[row], f"row {row} of {end - begin}")


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
@pytest.mark.parametrize("data_type", DTYPES)
def test_a_callers_own_functions_gather_and_finish(
    segment_reduce: KernelFamily, data_type: str, link_mode: str
) -> None:
    """Rows of a matrix that an index array names, weighted, through a relu; and a bias where a row is stored."""
    import cupy as cp

    rng = _rng(data_type, link_mode)
    for width, place in ((1, 0), (33, 0), (64, 1), (128, 0)):
        offsets = offsets_of(rng.permutation([*rng.integers(0, 65, 200), 2000]))
        matrix = stored(rng.standard_normal((500, width), np.float32), data_type)
        indices = rng.integers(0, len(matrix), offsets[-1])
        weights = rng.uniform(0.5, 2, offsets[-1]).astype(np.float32)
        bias = stored(rng.standard_normal(width, np.float32), data_type)
        arrays = [cp.asarray(each) for each in (indices, weights)]
        infos = cp.array([_address(each) for each in arrays], np.uint64), _on_device(bias, place)

        chosen = _chosen("sum", data_type, "int64_t", width)
        planner = segment_reduce.planner(**chosen)
        for text in (LOAD, STORE):
            planner.add_source(source(text, chosen))
        result = _run(planner.launcher(link_mode=link_mode), chosen, matrix, offsets, place, width, infos)

        # The bias of each row is one more element; a product is rounded once, before or with the addition.
        gathered = weights[:, None] * np.maximum(exact(matrix), 0)[indices]
        ends = offsets[1:] + np.arange(len(offsets) - 1)
        values = np.insert(gathered, offsets[1:], exact(bias), axis=0)
        check(exact(result), values, np.concatenate([[0], ends + 1]), "sum", data_type, f"{width} columns", roundings=1)
