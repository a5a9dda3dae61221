"""Scanning lists with the kernels of the family: choosing the kernel and the grid, and merging the results."""

from functools import cache
from typing import Any

import cupy

from docs.examples.ivf_flat.lists import GROUP, Lists
from docs.examples.ivf_flat.steps import Steps
from jitlto.runtime.family import KernelFamily

#: Threads per block, the same as in `scan_lists.cuh`, and the vectors that they take at once.
_BLOCK, _AT_ONCE = 256, 256
#: Rows of results to merge for a query up to which more than two blocks share a list.
_ROWS = 32
#: The most blocks of this size that a multiprocessor runs at once.
_BLOCKS_AT_ONCE = 8
#: The greatest capacity of any kernel.
_MOST = 256
#: In place of a list: nothing to probe.
NO_LIST = 0xFFFFFFFF
#: The most results in memory at once, of 12 bytes each.
_RESULTS = 1 << 26


def capacity_for(k: int) -> int:
    """Return the capacity of the kernel for ``k`` results: the next power of two, or 0 (no selection) beyond 256."""
    return 1 << (k - 1).bit_length() if k <= _MOST else 0


class Scanner:
    """Finds the best vectors in lists.

    Args:
        kernels: The family ``ivf_flat``.
        steps: The kernels that merge what several blocks find for a query; without them one block answers a query.
    """

    def __init__(self, kernels: KernelFamily, steps: Steps | None = None) -> None:
        self._steps = steps
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
        """Find the ``k`` best vectors for each query in the lists that it probes.

        Args:
            lists: The lists.
            queries: A CuPy array of the lists' dtype, of shape (n, dim).
            probes: The indices of the lists to probe, or ``NO_LIST``: uint32, of shape (n, p).
            k: Results per query, at least 1.
            metric_name: As in the family, like the next three.
            post_lambda_name: As in the family.
            compute_norm: As in the family.
            order: As in the family.
            allowed: The words of the filter ``bitset``, uint32; by default all vectors may be found.
            blocks_per_query: The number of blocks that share a query's probes, at most as many or a multiple of them;
                by default enough to fill the device.

        Returns:
            Distances (float32) and ids (int64), both of shape (n, k), the best first. Where there are fewer than ``k``
            vectors, the distance is infinite (minus infinity for ``order="descending"``) and the id -1.
        """
        n, n_probes = probes.shape
        if not n:
            return cupy.empty((0, k), cupy.float32), cupy.empty((0, k), cupy.int64)
        blocks = blocks_per_query or -(-2 * _BLOCKS_AT_ONCE * device_attribute("MultiProcessorCount") // n)
        if self._steps is None:
            blocks = 1
        elif blocks > n_probes and blocks_per_query is None:  # several for each list
            useful = -(-lists.longest_row(1) // _AT_ONCE)
            blocks = n_probes * max(1, min(blocks // n_probes, max(2, _ROWS // n_probes), useful))
        capacity = capacity_for(k)
        filter_name = "none" if allowed is None else "bitset"
        kernel = self._kernel(
            queries.dtype, lists.veclen, capacity, order, compute_norm, metric_name, post_lambda_name, filter_name
        )
        rows = lists.filled_up(queries)
        worst = cupy.inf if order == "ascending" else -cupy.inf
        offsets, length = (None, k) if capacity else _offsets(lists, probes, k)
        per_query = blocks if capacity else 1  # rows of results per query
        best, nearest = cupy.empty((n, k), cupy.float32), cupy.empty((n, k), cupy.int64)
        whole = capacity > 0 and per_query == 1  # the kernel's results are the answer
        at_once = max(1, _RESULTS // (per_query * length))
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            shape = (part.stop - begin, per_query * length)
            found = (best[part], nearest[part])
            if not whole:
                found = (cupy.empty(shape, cupy.float32), cupy.empty(shape, cupy.int64))
            if not capacity:  # a kernel without selection writes only the entries of its lists
                found[0].fill(worst)
                found[1].fill(-1)
            kernel(
                cupy.cuda.get_current_stream(), shape[0] * blocks, _BLOCK,
                lists.vectors, lists.ids, lists.sizes, lists.groups, rows[part], probes[part],
                None if offsets is None else offsets[part], allowed, *found, n_probes, blocks, lists.chunks, length,
                shared_memory=rows.shape[1] * rows.itemsize,
            )  # fmt: skip
            if not capacity:
                best[part], nearest[part] = _best(*found, k, order)
            elif self._steps is not None and not whole:
                self._steps.merge(*found, order, best[part], nearest[part])
        return best, nearest


def _best(distances: Any, neighbours: Any, k: int, order: str) -> tuple[Any, Any]:
    """Return the k best of each row, by a sort of CuPy's, whose kernels it compiles in the first process."""
    places = cupy.argsort(distances if order == "ascending" else -distances, axis=1)[:, :k]
    return cupy.take_along_axis(distances, places, axis=1), cupy.take_along_axis(neighbours, places, axis=1)


def _offsets(lists: Lists, probes: Any, k: int) -> tuple[Any, int]:
    """Return, for capacity 0, where each probe's distances begin in the row of its query, and the length of a row.

    A row has at least k distances.
    """
    lengths = -(-lists.sizes.astype(cupy.int64) // GROUP) * GROUP
    nothing = probes == NO_LIST
    of_probes = cupy.where(nothing, 0, lengths[cupy.where(nothing, 0, probes).astype(cupy.int64)])
    ends = cupy.cumsum(of_probes, axis=1)
    return (ends - of_probes).astype(cupy.uint32), max(k, int(ends[:, -1].max()))


def device_attribute(name: str) -> int:
    """Return an attribute of the current device by its name in the CUDA runtime, without ``cudaDevAttr``."""
    return _attribute_of(cupy.cuda.runtime.getDevice(), name)


@cache
def _attribute_of(device: int, name: str) -> int:
    runtime = cupy.cuda.runtime
    return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), device))
