"""Scanning lists for many queries at once: a list that several queries probe is read once for 16 of them."""

from typing import Any

import cupy

from docs.examples.ivf_flat.lists import Lists
from docs.examples.ivf_flat.scan import capacity_for, device_attribute
from jitlto.runtime.family import KernelFamily

#: Queries in a tile, and threads per block, the same as in `tile.cuh` and `scan_lists.cuh`.
_QUERIES = 16
_BLOCK = 256
#: Bytes of shared memory beside the queries of a tile.
_HEAD = 16 * _QUERIES
#: Queries that probe a list, on average, from which on tiles are faster than a block per query.
_PROBING = 4
#: The most distances in memory at once, of 4 bytes each.
_DISTANCES = 1 << 28
#: Warps that select at once, to fill the device.
_WARPS = 8192
_THREADS = 256


class TiledScanner:
    """Finds the best vectors in lists, for many queries.

    Args:
        kernels: The family ``ivf_flat_batch``.
    """

    def __init__(self, kernels: KernelFamily) -> None:
        self._sort = kernels.dispatcher("step", entry="sort_probes")
        self._scan = kernels.dispatcher(
            "data_type", "veclen", "compute_norm", "metric_name", "filter_name", entry="tiled_scan"
        )
        self._select = kernels.dispatcher("capacity", "order", "post_lambda_name", entry="select_probed")
        self._grids: dict[tuple[object, ...], int] = {}

    def suits(self, lists: Lists, n: int, n_probes: int, k: int) -> bool:
        """Return whether ``n`` queries are enough for tiles to pay, and the kernels have been made for such queries."""
        fits = _shared_memory(lists) <= device_attribute("MaxSharedMemoryPerBlockOptin")
        return fits and capacity_for(k) > 0 and n * n_probes >= _PROBING * len(lists.sizes)

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
    ) -> tuple[Any, Any]:
        """Find the ``k`` best vectors for each query in the lists that it probes.

        Takes and returns what :class:`~docs.examples.ivf_flat.scan.Scanner` does, with ``k`` at most 256.
        """
        n, n_probes = probes.shape
        filter_name = "none" if allowed is None else "bitset"
        scan = self._scan(queries.dtype, lists.veclen, compute_norm, metric_name, filter_name)
        select = self._select(capacity_for(k), order, post_lambda_name)
        rows = lists.filled_up(queries)
        best, found = cupy.empty((n, k), cupy.float32), cupy.empty((n, k), cupy.int64)
        row_length = lists.longest_row(n_probes)
        at_once = max(1, _DISTANCES // max(1, row_length))
        shared_memory = _shared_memory(lists)
        grid = self._grid(scan, (queries.dtype, lists.veclen, compute_norm, metric_name, filter_name), shared_memory)
        stream = cupy.cuda.get_current_stream()
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            count = part.stop - begin
            offsets, lengths, *sorted_pairs = self._sorted(stream, lists, probes[part])
            distances = cupy.empty(count * row_length, cupy.float32)
            scan(
                stream, grid, _BLOCK,
                lists.vectors, lists.ids, lists.sizes, lists.groups, rows[part], *sorted_pairs, offsets, allowed,
                distances, row_length, n_probes, len(lists.sizes), lists.chunks,
                shared_memory=shared_memory,
            )  # fmt: skip
            warps = min(8, 1 << max(0, (_WARPS // count).bit_length() - 1))
            select(
                stream, count, 32 * warps,
                distances, probes[part], offsets, lengths, lists.groups, lists.ids, best[part], found[part],
                row_length, n_probes, k,
                shared_memory=warps * selection_bytes(k),
            )  # fmt: skip
        return best, found

    def _sorted(self, stream: Any, lists: Lists, probes: Any) -> tuple[Any, ...]:
        """Sort the pairs of queries and probes by list.

        Returns:
            For each pair, where in its query's row of distances its own begin; the length of each row; the pairs in the
            order of their lists; where those of each list begin; where its tiles begin.
        """
        n, n_probes = probes.shape
        n_lists = len(lists.sizes)
        offsets, lengths = cupy.empty(probes.shape, cupy.uint32), cupy.empty(n, cupy.uint32)
        counts, ends = cupy.zeros(n_lists, cupy.uint32), cupy.empty(n_lists, cupy.uint32)
        pair_begins, tile_begins = cupy.empty(n_lists + 1, cupy.uint32), cupy.empty(n_lists + 1, cupy.uint32)
        pairs = cupy.empty(probes.size, cupy.uint32)
        per_query, per_pair = -(-n // _THREADS), -(-probes.size // _THREADS)
        self._sort("measure_rows")(stream, per_query, _THREADS, probes, lists.sizes, offsets, lengths, n, n_probes)
        self._sort("count_lists")(stream, per_pair, _THREADS, probes, counts, probes.size)
        self._sort("begin_lists")(
            stream, 1, 1024, counts, lists.sizes, pair_begins, tile_begins, ends, n_lists, shared_memory=256
        )
        self._sort("place_pairs")(stream, per_pair, _THREADS, probes, ends, pairs, probes.size)
        return offsets, lengths, pairs, pair_begins, tile_begins

    def _grid(self, scan: Any, key: tuple[object, ...], shared_memory: int) -> int:
        """Return how many blocks the device runs at once."""
        key = (*key, shared_memory, cupy.cuda.runtime.getDevice())
        if key not in self._grids:
            self._grids[key] = scan.max_blocks(_BLOCK, shared_memory)
        return self._grids[key]


def selection_bytes(k: int) -> int:
    """Return the shared memory of a warp that selects ``k`` keys, as `selection.cuh` has it."""
    return 8 * max(64, capacity_for(k))


def _shared_memory(lists: Lists) -> int:
    """Return the shared memory of a block of `tiled_scan`."""
    return _HEAD + _QUERIES * lists.chunks * lists.veclen * lists.vectors.itemsize
