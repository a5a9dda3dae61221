"""What builds an index of ``ivf_flat``: its kernels on a CPU, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.support.ivf_flat_host import COMPILER, HostFamily, numpy_for_cupy

pytestmark = pytest.mark.slow
_NO_LIST = 0xFFFFFFFF


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if COMPILER is None:
        pytest.skip("there is no g++")
    pytest.importorskip("docs.examples.ivf_flat", exc_type=ImportError)
    modules = [import_module(f"docs.examples.ivf_flat.{name}") for name in ("steps", "lists", "kmeans")]
    family = HostFamily(tmp_path_factory.mktemp("host"), "euclidean", "none", "identity")
    with numpy_for_cupy(*modules):
        yield modules[0].Steps(family)


def clustered(rng: np.random.Generator, n: int, dim: int) -> Any:
    """Vectors in clusters of very different sizes."""
    middles = 3 * rng.standard_normal((6, dim)).astype(np.float32)
    chosen = np.minimum(rng.integers(0, 6, n), rng.integers(0, 6, n))
    return middles[chosen] + rng.standard_normal((n, dim), np.float32)


@pytest.mark.parametrize(("n", "n_lists"), [(1, 1), (33, 4), (1100, 7), (900, 40_000)])
def test_vectors_are_sorted_stably(steps: Any, n: int, n_lists: int) -> None:
    labels = np.random.default_rng(n).integers(0, n_lists, n).astype(np.uint32)
    labels[::5] = _NO_LIST
    labels[:1] = 0
    found = steps.sort(labels, n_lists)
    listed = np.flatnonzero(labels != _NO_LIST)
    order = listed[np.argsort(labels[listed], kind="stable")]
    np.testing.assert_array_equal(found.order[: len(order)], order)
    np.testing.assert_array_equal(found.places[order], np.arange(len(order)))
    np.testing.assert_array_equal(found.sizes(), np.bincount(labels[listed], minlength=n_lists))


def test_labels_are_those_of_the_nearest_centres(steps: Any) -> None:
    rng = np.random.default_rng(2)
    rows, centres = rng.standard_normal((70, 9), np.float32), rng.standard_normal((45, 9), np.float32)
    rows[3, 1], rows[4, 1], rows[5, 1], centres[8] = np.nan, np.inf, -np.inf, centres[7]
    labels = steps.label(rows, centres, (centres**2).sum(axis=1), otherwise=77)
    assert (labels[3:6] == 77).all()
    right = ((rows[6:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(labels[6:], right)


@pytest.mark.parametrize("dim", [3, 130])
def test_centres_are_means_and_those_of_short_lists_are_moved(steps: Any, dim: int) -> None:
    """A list of one keeps half of its place, one of none nothing, which may be no number."""
    rng = np.random.default_rng(dim)
    rows = rng.standard_normal((101, dim), np.float32)
    labels = np.array([0] + [1] * 50 + [3] * 50, np.uint32)
    centres = np.full((4, dim), np.nan, np.float32)
    squares = np.empty(4, np.float32)
    steps.average(rows, steps.sort(labels, 4), labels, centres, squares, least=10, seed=5)
    np.testing.assert_allclose(centres[1], rows[1:51].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(centres[3], rows[51:].mean(axis=0), atol=1e-6)
    assert (rows[1:] == centres[2]).all(axis=1).any()
    assert np.isclose(2 * centres[0] - rows[0], rows[1:], atol=1e-5).all(axis=1).any()
    np.testing.assert_allclose(squares, (centres**2).sum(axis=1), rtol=1e-5)
    before = centres.copy()
    steps.average(rows, steps.sort(labels, 4), labels, centres, squares, least=0, seed=5)
    np.testing.assert_array_equal(centres[2], before[2])
    np.testing.assert_allclose(centres[0], rows[0], atol=1e-6)


@pytest.mark.parametrize(("n", "n_lists"), [(300, 16), (40, 40), (60, 1)])
def test_centres_are_near_and_lists_are_even(steps: Any, n: int, n_lists: int) -> None:
    kmeans = import_module("docs.examples.ivf_flat.kmeans").kmeans
    rng = np.random.default_rng(n)
    rows = clustered(rng, n, 6)
    spoilt = np.concatenate([rows, np.full((3, 6), np.nan, np.float32), np.full((2, 6), np.inf, np.float32)])
    centres, squares = kmeans(spoilt, n_lists, steps, iterations=6, seed=1)
    assert np.isfinite(centres).all()
    np.testing.assert_allclose(squares, (centres**2).sum(axis=1), rtol=1e-4)
    distances = ((rows[:, None] - centres) ** 2).sum(axis=2)
    sizes = np.bincount(distances.argmin(axis=1), minlength=n_lists)
    chosen = rows[rng.choice(n, n_lists, replace=False)]
    plain = ((rows[:, None] - chosen) ** 2).sum(axis=2)
    assert distances.min(axis=1).mean() <= plain.min(axis=1).mean()
    plain_sizes = np.bincount(plain.argmin(axis=1), minlength=n_lists)
    assert sizes.std() <= plain_sizes.std()
    again, _ = kmeans(spoilt, n_lists, steps, iterations=6, seed=1)
    np.testing.assert_array_equal(again, centres)
    with pytest.raises(ValueError, match=f"{n} of the vectors are finite, fewer than {n + 1} lists"):
        kmeans(spoilt, n + 1, steps)


def test_shares_are_in_proportion() -> None:
    shares = pytest.importorskip("docs.examples.ivf_flat.kmeans", exc_type=ImportError)._shares
    rng = np.random.default_rng(1)
    for _ in range(100):
        sizes = rng.integers(0, 300, rng.integers(1, 30)) * rng.integers(0, 2)
        sizes[0] += 1
        n_lists = int(rng.integers(1, sizes.sum() + 1))
        found = shares(sizes, n_lists)
        assert found.sum() == n_lists
        assert (found <= sizes).all()
    np.testing.assert_array_equal(shares(np.array([100, 300, 0]), 8), [2, 6, 0])


@pytest.mark.parametrize(
    ("dtype", "dim", "veclen"), [(np.float32, 6, 4), (np.float16, 9, 8), (np.int8, 33, 16), (np.uint8, 5, 1)]
)
def test_lists_hold_what_is_stored_in_them(
    steps: Any, monkeypatch: pytest.MonkeyPatch, dtype: Any, dim: int, veclen: int
) -> None:
    """In several parts, after what they held before; as lists that are laid out at once."""
    lists = import_module("docs.examples.ivf_flat.lists")
    monkeypatch.setattr(lists, "_ROWS", 70)
    rng = np.random.default_rng(dim)
    n, n_lists = 300, 6
    vectors = rng.integers(0, 100, (n, dim)).astype(dtype)
    labels = np.minimum(rng.integers(0, n_lists - 1, n), rng.integers(0, n_lists, n)).astype(np.uint32)
    ids = rng.permutation(n)
    held = lists.Lists.empty(n_lists, dim, dtype, veclen)
    for part in (slice(0, 90), slice(90, 90), slice(90, n)):
        held = held.extended(vectors[part], np.ascontiguousarray(ids[part]), labels[part].copy(), steps)
    right = lists.Lists.of_host(vectors, ids, labels, n_lists, veclen)
    for name in ("vectors", "ids", "sizes", "groups"):
        np.testing.assert_array_equal(getattr(held, name), getattr(right, name), name)
    assert len(held) == n


def test_vectors_become_floats(steps: Any) -> None:
    rng = np.random.default_rng(2)
    for dtype in (np.int8, np.uint8, np.float32):
        rows = rng.integers(0, 100, (50, 37)).astype(dtype)
        for stride in (1, 3):
            np.testing.assert_array_equal(steps.as_float(rows, stride), rows[::stride].astype(np.float32))


def test_ids_and_flags_are_packed(steps: Any) -> None:
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(steps.as_lists(np.array([[5, -1], [0, 7]])), [[5, _NO_LIST], [0, 7]])
    for count in (1, 31, 32, 700):
        flags = rng.random(count) < 0.5
        bits = np.unpackbits(steps.bits(flags).view(np.uint8), bitorder="little")
        np.testing.assert_array_equal(bits[:count], flags)
        assert not bits[count:].any()


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_rows_of_several_blocks_are_merged_as_a_stable_sort_would(steps: Any, order: str) -> None:
    """With many equal distances, with rows that are not full, and with vectors that are infinitely far."""
    rng = np.random.default_rng(4)
    sign, worst = (1, np.inf) if order == "ascending" else (-1, -np.inf)
    for n, rows, k in ((1, 2, 10), (3, 7, 1), (9, 33, 10), (1, 9, 256)):
        distances = rng.integers(0, 9, (n, rows, k)).astype(np.float32)
        distances[rng.random((n, rows, k)) < 0.3] = worst
        distances = sign * np.sort(sign * distances, axis=2)
        ids = rng.permutation(n * rows * k).reshape(n, rows, k)
        empty = np.isinf(distances) & (np.arange(k) >= rng.integers(0, k + 1, (n, rows, 1)))
        ids[empty] = -1
        flat, ids, empty = (array.reshape(n, rows * k) for array in (distances, ids, empty))
        places = np.stack([np.lexsort((empty[q], sign * flat[q]))[:k] for q in range(n)])
        best, found = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
        steps.merge(flat, ids, order, best, found)
        np.testing.assert_array_equal(best, np.take_along_axis(flat, places, axis=1))
        np.testing.assert_array_equal(found, np.take_along_axis(ids, places, axis=1))
