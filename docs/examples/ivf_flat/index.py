"""The index: centres, the lists of the vectors nearest to each, and the search of the most promising ones."""

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

#: Vectors for each list from which the centres are found.
_SAMPLE = 256
#: The longest vectors of bytes whose sums of squares an int32_t holds.
_LONGEST_BYTES = 33_025


@dataclass(frozen=True)
class Metric:
    """A metric, as the family's fragments make it."""

    metric_name: str
    post_lambda_name: str = "identity"
    compute_norm: bool = False


#: What :meth:`Index.search` takes. An inner product is negated, so that smaller is nearer.
METRICS = {
    "sqeuclidean": Metric("euclidean"),
    "euclidean": Metric("euclidean", "sqrt"),
    "inner_product": Metric("inner_product"),
    "cosine": Metric("inner_product", "compose", compute_norm=True),
}
_DTYPES = ("float32", "float16", "uint8", "int8")


class Index:
    """An inverted-file index in device memory.

    Parameters
    ----------
    centres : cupy.ndarray of float32, shape (n_lists, dim)
        A vector belongs to the list of the centre that is nearest to it.
    lists : Lists
        The vectors.
    kernels : KernelFamily, path or None
        The family ``ivf_flat`` or its database; by default found on ``JITLTO_DATABASE_PATH``.
    """

    def __init__(
        self, centres: Any, lists: Lists, kernels: KernelFamily | str | os.PathLike[str] | None = None
    ) -> None:
        self.centres = centres
        self.lists = lists
        self._scan = Scanner(kernels if isinstance(kernels, KernelFamily) else load("ivf_flat", kernels))
        # The centres are one list of an inverted file of their own: what scans lists finds the lists to scan.
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
        """An index of a data set; the id of a vector is its row.

        Parameters
        ----------
        dataset : array of shape (n, dim)
            Of float32, float16, uint8 or int8, in host or device memory. The centres are found on a sample of it.
        n_lists : int
            Into how many lists it is divided, at most ``n``; about the root of ``n``.
        kernels
            See :class:`Index`.
        veclen : int, optional
            Components stored together: 1, or as many as are 16 bytes; by default what suits the dimension.
        iterations, seed : int
            Of k-means.

        Raises
        ------
        ValueError
            If the data set is not of that kind.
        """
        if len(dataset.shape) != 2 or str(dataset.dtype) not in _DTYPES:
            raise ValueError(f"a data set is a matrix of {', '.join(_DTYPES)}, not {dataset.dtype}{dataset.shape}")
        n, dim = dataset.shape
        if dataset.dtype.kind in "iu" and dim > _LONGEST_BYTES:
            raise ValueError(f"vectors of bytes have at most {_LONGEST_BYTES} components, not {dim}")
        if not 0 < n_lists <= n:
            raise ValueError(f"{n} vectors cannot be divided into {n_lists} lists")
        if not dim:
            raise ValueError("vectors have at least one component")
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

        Parameters
        ----------
        vectors : array of shape (n, dim)
            Of the index's dtype, in host or device memory.
        ids : array of int64, shape (n,), optional
            At least 0; by default they go on from the greatest id so far.
        """
        self._check(vectors, "vectors")
        ids = self._past_ids + cupy.arange(len(vectors)) if ids is None else cupy.asarray(ids, cupy.int64)
        if ids.shape != (len(vectors),) or (len(ids) and int(ids.min()) < 0):
            raise ValueError(f"ids are {len(vectors)} integers of at least 0")
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
        """The ``k`` nearest neighbours of each query among the vectors of the ``n_probes`` nearest lists.

        Parameters
        ----------
        queries : array of shape (n, dim)
            Of the index's dtype, in host or device memory.
        k : int
            At least 1.
        n_probes : int
            More lists find more of the nearest neighbours, and take longer; all lists find all.
        metric : str
            One of ``METRICS``.
        allowed : array of bool, optional
            For each id whether the vector may be found.
        order : str
            ``ascending``; ``descending`` finds the furthest.

        Returns
        -------
        distances : cupy.ndarray of float32, shape (n, k)
            The nearest first; infinite where there are no more vectors.
        neighbours : cupy.ndarray of int64, shape (n, k)
            Their ids; -1 where there are no more vectors.

        Raises
        ------
        ValueError
            If an argument is not of that kind.
        """
        self._check(queries, "queries")
        if metric not in METRICS:
            raise ValueError(f"metric {metric!r} is none of {', '.join(METRICS)}")
        if order not in ("ascending", "descending"):
            raise ValueError(f"order {order!r} is neither ascending nor descending")
        k, n_probes = operator.index(k), operator.index(n_probes)  # of NumPy too, whose integers have fewer methods
        if k < 1 or n_probes < 1:
            raise ValueError(f"k and n_probes are at least 1, not {k} and {n_probes}")
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
        """Write the index to a file, as ``numpy.savez`` does; ``path`` ends in ``.npz``."""
        numpy.savez(path, centres=cupy.asnumpy(self.centres), **self.lists.arrays())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, kernels: KernelFamily | str | os.PathLike[str] | None = None
    ) -> Index:
        """Read an index that :meth:`save` has written.

        Raises
        ------
        OSError
            If there is no such file.
        ValueError
            If the file holds anything else, or is damaged.
        """
        try:
            with numpy.load(path) as file:
                arrays = dict(file)
            _require_index(arrays)
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{os.fspath(path)} holds no index: {error}") from error
        return cls(cupy.asarray(arrays["centres"]), Lists.of_arrays(arrays), kernels)

    def _probes(self, queries: Any, n_probes: int, metric: Metric, order: str) -> Any:
        """The lists to scan for each query."""
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
        """The bits of the filter ``bitset``."""
        if allowed.dtype != bool or allowed.shape != (allowed.size,) or allowed.size < self._past_ids:
            raise ValueError(f"allowed is one bool for each id, {self._past_ids} or more")
        bits = cupy.zeros(-(-max(allowed.size, 1) // 32) * 32, cupy.uint32)
        bits[: allowed.size] = allowed
        return (bits.reshape(-1, 32) << cupy.arange(32, dtype=cupy.uint32)).sum(axis=1, dtype=cupy.uint32)

    def _check(self, rows: Any, what: str) -> None:
        if len(rows.shape) != 2 or rows.shape[1] != self.lists.dim or rows.dtype != self.dtype:
            raise ValueError(
                f"{what} are a matrix of {self.dtype} with {self.lists.dim} columns, not {rows.dtype}{rows.shape}"
            )


def _require_index(arrays: Mapping[str, Any]) -> None:
    """Raise ValueError if a kernel would read beyond these arrays; KeyError if one is missing."""
    vectors, ids, sizes, centres = (arrays[name] for name in ("vectors", "ids", "sizes", "centres"))
    dim, veclen = int(arrays["dim"]), int(arrays["veclen"])
    if str(vectors.dtype) not in _DTYPES or veclen not in (1, 16 // vectors.itemsize) or dim < 1:
        raise ValueError(f"vectors of {dim} {vectors.dtype}, {veclen} together")
    if (str(ids.dtype), str(sizes.dtype), str(centres.dtype)) != ("int64", "uint32", "float32"):
        raise ValueError(f"ids of {ids.dtype}, sizes of {sizes.dtype}, centres of {centres.dtype}")
    slots = int((-(-sizes.astype(numpy.int64) // GROUP)).sum()) * GROUP
    shapes = {"vectors": (slots * -(-dim // veclen) * veclen,), "ids": (slots,), "centres": (len(sizes), dim)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} of shape {arrays[name].shape}, not {shape}")
