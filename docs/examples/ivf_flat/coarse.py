"""The lists that many queries probe, from a product of two matrices: queries and centres."""

from functools import cached_property
from typing import Any

import cupy
import numpy

from docs.examples.ivf_flat.scan import capacity_for
from docs.examples.ivf_flat.tiles import selection_bytes
from jitlto.runtime.family import KernelFamily

#: Queries from which on the product is faster than the scan of the centres for each query.
_QUERIES = 512
#: Limit in bytes of the matrix of products.
_TEMPORARY = 256 << 20
_WARPS = 4


class Coarse:
    """Finds the centres that are nearest to queries.

    Args:
        centres: A float32 CuPy array of shape (n_lists, dim).
        kernels: The family ``ivf_flat_batch``.
    """

    def __init__(self, centres: Any, kernels: KernelFamily) -> None:
        self._centres = centres
        self._select = kernels.dispatcher("capacity", "order", entry="select_columns")

    def suits(self, n: int, n_probes: int) -> bool:
        """Return whether ``n`` queries are enough, and the kernels can select so many lists."""
        return n >= _QUERIES and capacity_for(n_probes) > 0

    def __call__(self, queries: Any, n_probes: int, metric_name: str, *, compute_norm: bool, order: str) -> Any:
        """Return the lists to probe, the best first.

        Args:
            queries: A float32 CuPy array of shape (n, dim).
            n_probes: The number of lists for each query, at most 256.
            metric_name: As in the family, like the next two.
            compute_norm: As in the family.
            order: As in the family.

        Returns:
            A uint32 CuPy array of shape (n, n_probes).
        """
        # Imported lazily: loads cuBLAS, which searches with few queries do without.
        from cupy import cublas

        euclidean = metric_name == "euclidean"
        centres = self._directions if compute_norm else self._centres
        select = self._select(capacity_for(n_probes), order)
        n, n_lists = len(queries), len(centres)
        probes = cupy.empty((n, n_probes), cupy.uint32)
        at_once = max(1, _TEMPORARY // (4 * n_lists))
        for begin in range(0, n, at_once):
            part = slice(begin, min(begin + at_once, n))
            count = part.stop - begin
            products = cupy.empty((count, n_lists), cupy.float32)
            # |q − c|² without |q|², which is the same for all centres; and the negated inner product.
            cublas.gemm("N", "T", queries[part], centres, out=products, alpha=-2.0 if euclidean else -1.0)
            select(
                cupy.cuda.get_current_stream(), -(-count // _WARPS), 32 * _WARPS,
                products, self.squares if euclidean else None, probes[part], count, n_lists, n_probes,
                shared_memory=_WARPS * selection_bytes(n_probes),
            )  # fmt: skip
        return probes

    @cached_property
    def squares(self) -> Any:
        """The squared norms of the centres."""
        host = cupy.asnumpy(self._centres)
        return cupy.asarray((host * host).sum(axis=1))

    @cached_property
    def _directions(self) -> Any:
        """The centres divided by their norms; zero vectors unchanged, as in `group_distance.cuh`."""
        host = cupy.asnumpy(self._centres)
        norms = numpy.sqrt((host * host).sum(axis=1, keepdims=True))
        return cupy.asarray(host / numpy.where(norms > 0, norms, numpy.float32(1)))
