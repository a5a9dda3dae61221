"""The index: centres, a list of vectors for each, and searches of the most promising lists."""

from __future__ import annotations

import operator
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy

from docs.examples.ivf_flat.coarse import Coarse
from docs.examples.ivf_flat.kmeans import kmeans
from docs.examples.ivf_flat.lists import GROUP, Lists, on_device
from docs.examples.ivf_flat.scan import Scanner
from docs.examples.ivf_flat.steps import Steps
from docs.examples.ivf_flat.tiles import TiledScanner
from jitlto import KernelFamily, load

#: The most vectors per list in the sample that the centres are computed from.
_SAMPLE = 512
#: Limit in bytes of vectors converted to float.
_TEMPORARY = 256 << 20
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
        kernels: The family ``ivf_flat`` or the path of a database; by default found on ``JITLTO_DATABASE_PATH``. The
            database is that of the family ``ivf_flat_batch``, which holds both.

    Raises:
        RegistryError: If no database holds the families.
    """

    def __init__(
        self, centres: Any, lists: Lists, kernels: KernelFamily | str | os.PathLike[str] | None = None
    ) -> None:
        self.centres = centres
        self.lists = lists
        family, batch = _families(kernels)
        self._steps = Steps(batch)
        self._scan = Scanner(family, self._steps)
        self._tiles = TiledScanner(batch)
        self._products = Coarse(centres, batch)

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
                centres are computed from a sample of it: of every vector, every second, …, at most 512 per list.
            n_lists: The number of lists, at most ``n``. The square root of ``n`` is a good start.
            kernels: See :class:`Index`.
            veclen: Components stored together: 1, or as many as fit into 16 bytes; by default chosen by the dimension.
            iterations: Iterations of k-means at each of its two levels.
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
        family, batch = _families(kernels)
        steps = Steps(batch)
        stride = -(-n // (_SAMPLE * n_lists))
        if isinstance(dataset, numpy.ndarray):
            sample = steps.as_float(on_device(dataset[::stride]))
        else:
            sample = steps.as_float(on_device(dataset), stride)
        centres, _ = kmeans(sample, n_lists, steps, iterations=iterations, seed=seed)
        index = cls(centres, Lists.empty(n_lists, dim, dataset.dtype, veclen), family)
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
        n = len(vectors)
        if ids is None:
            ids = self._past_ids + numpy.arange(n)
        ids = numpy.ascontiguousarray(cupy.asnumpy(ids), numpy.int64)
        if ids.shape != (n,) or (n and ids.min() < 0):
            raise ValueError(f"expected {n} ids of at least 0")
        past = max(self._past_ids, int(ids.max()) + 1 if n else 0)
        self.lists = self.lists.extended(vectors, cupy.asarray(ids), self._labels(vectors), self._steps)
        self._past_ids = past

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
        queries = on_device(queries)
        chosen = METRICS[metric]
        probes = self._probes(queries, min(n_probes, len(self.centres)), chosen, order)
        scan: Scanner | TiledScanner = self._scan
        if self._tiles.suits(self.lists, *probes.shape, k):
            scan = self._tiles
        return scan(
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
            return cupy.asarray(numpy.tile(numpy.arange(n_probes, dtype=numpy.uint32), (len(queries), 1)))
        queries = self._steps.as_float(queries)
        if self._products.suits(len(queries), n_probes):
            return self._products(queries, n_probes, metric.metric_name, compute_norm=metric.compute_norm, order=order)
        _, found = self._scan(
            self._coarse,
            queries,
            cupy.zeros((len(queries), 1), cupy.uint32),
            n_probes,
            metric_name=metric.metric_name,
            compute_norm=metric.compute_norm,
            order=order,
        )
        return self._steps.as_lists(found)

    @cached_property
    def _coarse(self) -> Lists:
        """The centres as a list of vectors, in which the scan also finds the lists to probe."""
        n = len(self.centres)
        return Lists.of_host(cupy.asnumpy(self.centres), numpy.arange(n), numpy.zeros(n, numpy.int64), 1)

    @cached_property
    def _past_ids(self) -> int:
        """The least number that is greater than all ids."""
        return int(cupy.asnumpy(self.lists.ids).max(initial=-1)) + 1

    def _labels(self, vectors: Any) -> Any:
        """Return the list that each vector belongs to; one with what is not finite, to the first."""
        labels = cupy.empty(len(vectors), cupy.uint32)
        at_once = max(1, _TEMPORARY // (4 * self.lists.dim))
        for begin in range(0, len(vectors), at_once):
            rows = self._steps.as_float(on_device(vectors[begin : begin + at_once]))
            self._steps.label(
                rows, self.centres, self._products.squares, otherwise=0, out=labels[begin : begin + len(rows)]
            )
        return labels

    def _words(self, allowed: Any) -> Any:
        """Return the bits for the filter ``bitset``."""
        if allowed.dtype != bool or allowed.shape != (allowed.size,) or allowed.size < self._past_ids:
            raise ValueError(f"allowed must have a bool for each id, {self._past_ids} or more")
        return self._steps.bits(allowed)

    def _check(self, rows: Any, what: str) -> None:
        if len(rows.shape) != 2 or rows.shape[1] != self.lists.dim or rows.dtype != self.dtype:
            raise ValueError(
                f"{what}: expected a matrix of {self.dtype} with {self.lists.dim} columns, got {rows.dtype}{rows.shape}"
            )


def _families(kernels: KernelFamily | str | os.PathLike[str] | None) -> tuple[KernelFamily, KernelFamily]:
    """Return the families ``ivf_flat`` and ``ivf_flat_batch`` of a database."""
    if isinstance(kernels, KernelFamily):
        return kernels, KernelFamily("ivf_flat_batch", kernels.database, kernels.session)
    return load("ivf_flat", kernels), load("ivf_flat_batch", kernels)


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
