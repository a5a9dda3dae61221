"""Scanning lists with the kernels of the family: which kernel, how many blocks, and how their results are merged."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy

from docs.examples.ivf_flat.lists import GROUP, Lists
from docs.examples.ivf_flat.merge import merge
from jitlto.runtime.family import KernelFamily

#: Threads of a block, as `interleaved_scan.cuh` has it.
_BLOCK = 256
#: Blocks of that size that a multiprocessor runs at once, at most.
_BLOCKS_AT_ONCE = 8
#: The greatest capacity that there is a kernel for.
_MOST = 256
#: What stands in the place of a list: nothing to probe.
NO_LIST = 0xFFFFFFFF
#: Results that are held at once; 12 bytes each.
_RESULTS = 1 << 26


def capacity_for(k: int) -> int:
    """The capacity of the kernel that finds the ``k`` best: the next power of two; 0, all of them, beyond 256."""
    return 1 << (k - 1).bit_length() if k <= _MOST else 0


class Scanner:
    """Finds the best vectors of lists.

    Parameters
    ----------
    kernels : KernelFamily
        The family ``ivf_flat``.
    """

    def __init__(self, kernels: KernelFamily) -> None:
        self._kernel = kernels.dispatcher(
            "data_type",
            "veclen",
            "capacity",
            "order",
            "compute_norm",
            "metric_name",
            "post_lambda_name",
            "filter_name",
        )

    def __call__(
        self,
        lists: Lists,
        queries: Any,
        probes: Any,
        k: int,
        *,
        metric_name: str,
        post_lambda_name: str = "identity",
        compute_norm: bool = False,
        order: str = "ascending",
        allowed: Any = None,
        blocks_per_query: int | None = None,
    ) -> tuple[Any, Any]:
        """The ``k`` best for each query among the vectors in the lists that it probes, the best first.

        Parameters
        ----------
        lists : Lists
        queries : cupy.ndarray of shape (n, dim)
            Of the dtype of the lists.
        probes : cupy.ndarray of uint32, shape (n, p)
            Numbers of lists, or ``NO_LIST``.
        k : int
            At least 1.
        metric_name, post_lambda_name, compute_norm, order
            As in the family.
        allowed : cupy.ndarray of uint32, optional
            The words of the filter ``bitset``.
        blocks_per_query : int, optional
            Among how many blocks a query's probes are shared out; by default enough to fill the device.

        Returns
        -------
        distances : cupy.ndarray of float32, shape (n, k)
            Infinite (negative for ``order="descending"``) where there are no more vectors.
        neighbours : cupy.ndarray of int64, shape (n, k)
            Ids; -1 where there are no more vectors.
        """
        n, n_probes = probes.shape
        if not n:
            return cupy.empty((0, k), cupy.float32), cupy.empty((0, k), cupy.int64)
        blocks = blocks_per_query or -(-2 * _BLOCKS_AT_ONCE * _multiprocessors() // n)
        blocks = max(1, min(blocks, n_probes))
        capacity = capacity_for(k)
        filter_name = "none" if allowed is None else "bitset"
        kernel = self._kernel(
            queries.dtype, lists.veclen, capacity, order, compute_norm, metric_name, post_lambda_name, filter_name
        )
        rows = lists.filled_up(queries)
        worst = cupy.inf if order == "ascending" else -cupy.inf
        offsets, length = (None, k) if capacity else _offsets(lists, probes, k)
        per_query = blocks if capacity else 1  # rows of results
        results = []
        at_once = max(1, _RESULTS // (per_query * length))
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            shape = (part.stop - begin, per_query * length)
            found = (cupy.empty(shape, cupy.float32), cupy.empty(shape, cupy.int64))
            if not capacity:  # a kernel without selection writes what its lists hold, and no more
                found[0].fill(worst)
                found[1].fill(-1)
            kernel(
                cupy.cuda.get_current_stream(),
                shape[0] * blocks,
                _BLOCK,
                lists.vectors,
                lists.ids,
                lists.sizes,
                lists.groups,
                rows[part],
                probes[part],
                None if offsets is None else offsets[part],
                allowed,
                *found,
                n_probes,
                blocks,
                lists.chunks,
                length,
                shared_memory=rows.shape[1] * rows.itemsize,
            )
            if not capacity:
                found = _best(*found, k, order)
            elif per_query > 1:
                found = merge(*found, k, order)
            results.append(found)
        if len(results) == 1:
            return results[0]
        distances, neighbours = zip(*results, strict=True)
        return cupy.concatenate(distances), cupy.concatenate(neighbours)


def _best(distances: Any, neighbours: Any, k: int, order: str) -> tuple[Any, Any]:
    """The k best of each row."""
    places = cupy.argsort(distances if order == "ascending" else -distances, axis=1)[:, :k]
    return cupy.take_along_axis(distances, places, axis=1), cupy.take_along_axis(neighbours, places, axis=1)


def _offsets(lists: Lists, probes: Any, k: int) -> tuple[Any, int]:
    """For capacity 0: where each probe's distances begin in its query's row, and the length of a row, at least k."""
    lengths = -(-lists.sizes.astype(cupy.int64) // GROUP) * GROUP
    nothing = probes == NO_LIST
    of_probes = cupy.where(nothing, 0, lengths[cupy.where(nothing, 0, probes).astype(cupy.int64)])
    ends = cupy.cumsum(of_probes, axis=1)
    return (ends - of_probes).astype(cupy.uint32), max(k, int(ends[:, -1].max()))


def _multiprocessors() -> int:
    return _multiprocessors_of(cupy.cuda.runtime.getDevice())


@cache
def _multiprocessors_of(device: int) -> int:
    return int(cupy.cuda.runtime.deviceGetAttribute(cupy.cuda.runtime.cudaDevAttrMultiProcessorCount, device))
