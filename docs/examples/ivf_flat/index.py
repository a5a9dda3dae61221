"""The index: centres, a list of vectors for each, and searches of the most promising lists."""

from __future__ import annotations

import operator
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cupy
import numpy

from docs.examples.ivf_flat.kmeans import kmeans, nearest
from docs.examples.ivf_flat.lists import GROUP, Lists
from docs.examples.ivf_flat.scan import Scanner
from jitlto.runtime.family import KernelFamily, load

#: Vectors per list in the sample that the centres are computed from.
_SAMPLE = 256
#: The most components of a vector of bytes whose sum of squares fits into an int32_t.
_LONGEST_BYTES = 33_025


@dataclass(frozen=True)
class Metric:
    """A metric, composed of the family's fragments."""

    metric_name: str
    post_lambda_name: str = "identity"
    compute_norm: bool = False


#: The metrics of :meth:`Index.search`. An inner product is negated, so that smaller is nearer.
METRICS = {
    "sqeuclidean": Metric("euclidean"),
    "euclidean": Metric("euclidean", "sqrt"),
    "inner_product": Metric("inner_product"),
    "cosine": Metric("inner_product", "compose", compute_norm=True),
}
_DTYPES = ("float32", "float16", "uint8", "int8")


class Index:
    """An inverted-file index in device memory.

    Args:
        centres: A float32 CuPy array of shape (n_lists, dim). A vector belongs to the list of the nearest centre.
        lists: The vectors.
        kernels: The family ``ivf_flat`` or the path of its database; by default found on ``JITLTO_DATABASE_PATH``.
    """

    def __init__(
        self, centres: Any, lists: Lists, kernels: KernelFamily | str | os.PathLike[str] | None = None
    ) -> None:
        self.centres = centres
        self.lists = lists
        self._scan = Scanner(kernels if isinstance(kernels, KernelFamily) else load("ivf_flat", kernels))
        # The centres form a one-list index of their own, so the scanner also finds the lists to scan.
        places = cupy.arange(len(centres))
        self._coarse = Lists.empty(1, lists.dim, cupy.float32).extended(centres, places, cupy.zeros_like(places))
        self._past_ids = int(lists.ids.max()) + 1 if len(lists.ids) else 0

    @classmethod
    def build(
        cls,
        dataset: Any,
        n_lists: int,
        *,
        kernels: KernelFamily | str | os.PathLike[str] | None = None,
        veclen: int | None = None,
        iterations: int = 20,
        seed: int = 0,
    ) -> Index:
        """Build an index of a data set. The id of each vector is its row number.

        Args:
            dataset: An array of float32, float16, uint8 or int8 of shape (n, dim), in host or device memory. The
                centres are computed from a sample of it.
            n_lists: The number of lists, at most ``n``. The square root of ``n`` is a good start.
            kernels: See :class:`Index`.
            veclen: Components stored together: 1, or as many as fit into 16 bytes; by default chosen by the dimension.
            iterations: Iterations of k-means.
            seed: Seed of k-means.

        Raises:
            ValueError: If an argument does not meet these conditions.
        """
        if len(dataset.shape) != 2 or str(dataset.dtype) not in _DTYPES:
            raise ValueError(f"expected a matrix of {', '.join(_DTYPES)}, got {dataset.dtype}{dataset.shape}")
        n, dim = dataset.shape
        if dataset.dtype.kind in "iu" and dim > _LONGEST_BYTES:
            raise ValueError(f"vectors of bytes have at most {_LONGEST_BYTES} components, not {dim}")
        if not 0 < n_lists <= n:
            raise ValueError(f"{n} vectors cannot be divided into {n_lists} lists")
        if not dim:
            raise ValueError("vectors need at least one component")
        if n > _SAMPLE * n_lists:
            chosen = numpy.random.default_rng(seed).choice(n, _SAMPLE * n_lists, replace=False)
            chosen.sort()
            sample = cupy.asarray(dataset[chosen if isinstance(dataset, numpy.ndarray) else cupy.asarray(chosen)])
        else:
            sample = cupy.asarray(dataset)
        if sample.dtype.kind == "f":
            sample = sample[cupy.isfinite(sample).all(axis=1)]
            if len(sample) < n_lists:
                raise ValueError(f"{len(sample)} of the vectors are finite, fewer than {n_lists} lists")
        centres = kmeans(sample, n_lists, iterations=iterations, seed=seed)
        index = cls(centres, Lists.empty(n_lists, dim, dataset.dtype, veclen), kernels)
        index.add(dataset)
        return index

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def dtype(self) -> Any:
        """The type of the vectors."""
        return self.lists.vectors.dtype

    def add(self, vectors: Any, ids: Any = None) -> None:
        """Add vectors.

        Args:
            vectors: An array of the index's dtype of shape (n, dim), in host or device memory.
            ids: ``n`` integers, at least 0; by default numbered from the greatest id so far.
        """
        self._check(vectors, "vectors")
        ids = self._past_ids + cupy.arange(len(vectors)) if ids is None else cupy.asarray(ids, cupy.int64)
        if ids.shape != (len(vectors),) or (len(ids) and int(ids.min()) < 0):
            raise ValueError(f"expected {len(vectors)} ids of at least 0")
        self.lists = self.lists.extended(vectors, ids, nearest(vectors, self.centres))
        self._past_ids = max(self._past_ids, int(ids.max()) + 1 if len(ids) else 0)

    def search(
        self,
        queries: Any,
        k: int,
        *,
        n_probes: int = 32,
        metric: str = "sqeuclidean",
        allowed: Any = None,
        order: str = "ascending",
    ) -> tuple[Any, Any]:
        """Find the ``k`` nearest neighbours of each query in the ``n_probes`` nearest lists.

        Args:
            queries: An array of the index's dtype of shape (n, dim), in host or device memory.
            k: Neighbours per query, at least 1.
            n_probes: The number of lists to search. More lists give a higher recall and take longer; all lists give
                an exact result.
            metric: One of ``METRICS``.
            allowed: An array of bool that says for each id whether the vector may be found; by default all may.
            order: ``ascending``, or ``descending`` to find the furthest vectors.

        Returns:
            Distances (float32) and ids (int64), both of shape (n, k), the best first. Where there are fewer than ``k``
            vectors, the distance is infinite and the id -1.

        Raises:
            ValueError: If an argument does not meet these conditions.
        """
        self._check(queries, "queries")
        if metric not in METRICS:
            raise ValueError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
        if order not in ("ascending", "descending"):
            raise ValueError(f"order {order!r} is neither ascending nor descending")
        k, n_probes = operator.index(k), operator.index(n_probes)  # NumPy's integers have no bit_length
        if k < 1 or n_probes < 1:
            raise ValueError(f"k and n_probes must be at least 1, not {k} and {n_probes}")
        words = None if allowed is None else self._words(cupy.asarray(allowed))
        queries = cupy.asarray(queries)
        chosen = METRICS[metric]
        probes = self._probes(queries, min(n_probes, len(self.centres)), chosen, order)
        return self._scan(
            self.lists,
            queries,
            probes,
            k,
            metric_name=chosen.metric_name,
            post_lambda_name=chosen.post_lambda_name,
            compute_norm=chosen.compute_norm,
            order=order,
            allowed=words,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file with ``numpy.savez``; ``path`` ends in ``.npz``."""
        numpy.savez(path, centres=cupy.asnumpy(self.centres), **self.lists.arrays())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, kernels: KernelFamily | str | os.PathLike[str] | None = None
    ) -> Index:
        """Read an index that :meth:`save` has written.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is not an index, or is damaged.
        """
        try:
            with numpy.load(path) as file:
                arrays = dict(file)
            _require_index(arrays)
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{os.fspath(path)} is not an index: {error}") from error
        return cls(cupy.asarray(arrays["centres"]), Lists.of_arrays(arrays), kernels)

    def _probes(self, queries: Any, n_probes: int, metric: Metric, order: str) -> Any:
        """Return the lists to scan for each query."""
        if n_probes == len(self.centres):
            return cupy.tile(cupy.arange(n_probes, dtype=cupy.uint32), (len(queries), 1))
        _, found = self._scan(
            self._coarse,
            queries.astype(cupy.float32, copy=False),
            cupy.zeros((len(queries), 1), cupy.uint32),
            n_probes,
            metric_name=metric.metric_name,
            compute_norm=metric.compute_norm,
            order=order,
        )
        return found.astype(cupy.uint32)  # -1 becomes NO_LIST

    def _words(self, allowed: Any) -> Any:
        """Return the bits for the filter ``bitset``."""
        if allowed.dtype != bool or allowed.shape != (allowed.size,) or allowed.size < self._past_ids:
            raise ValueError(f"allowed must have a bool for each id, {self._past_ids} or more")
        bits = cupy.zeros(-(-max(allowed.size, 1) // 32) * 32, cupy.uint32)
        bits[: allowed.size] = allowed
        return (bits.reshape(-1, 32) << cupy.arange(32, dtype=cupy.uint32)).sum(axis=1, dtype=cupy.uint32)

    def _check(self, rows: Any, what: str) -> None:
        if len(rows.shape) != 2 or rows.shape[1] != self.lists.dim or rows.dtype != self.dtype:
            raise ValueError(
                f"{what}: expected a matrix of {self.dtype} with {self.lists.dim} columns, got {rows.dtype}{rows.shape}"
            )


def _require_index(arrays: Mapping[str, Any]) -> None:
    """Raise ValueError if a kernel would read beyond these arrays, KeyError if one is missing."""
    vectors, ids, sizes, centres = (arrays[name] for name in ("vectors", "ids", "sizes", "centres"))
    dim, veclen = int(arrays["dim"]), int(arrays["veclen"])
    if str(vectors.dtype) not in _DTYPES or veclen not in (1, 16 // vectors.itemsize) or dim < 1:
        raise ValueError(f"invalid vectors: {dim} components of {vectors.dtype}, {veclen} stored together")
    if (str(ids.dtype), str(sizes.dtype), str(centres.dtype)) != ("int64", "uint32", "float32"):
        raise ValueError(f"invalid dtypes: ids {ids.dtype}, sizes {sizes.dtype}, centres {centres.dtype}")
    slots = int((-(-sizes.astype(numpy.int64) // GROUP)).sum()) * GROUP
    shapes = {"vectors": (slots * -(-dim // veclen) * veclen,), "ids": (slots,), "centres": (len(sizes), dim)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"invalid shape of {name}: {arrays[name].shape} instead of {shape}")
