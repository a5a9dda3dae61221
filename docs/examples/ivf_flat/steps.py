"""The small kernels around the scans: converting, labelling, sorting and averaging vectors, and merging results.

They are fragments like the scans: nothing is compiled when an index is built or searched. CuPy's own operations on
arrays would compile each of their kernels in the first process that uses it.
"""

from dataclasses import dataclass
from typing import Any

import cupy
import numpy

from jitlto.runtime.family import KernelFamily

_THREADS = 256
_WARPS = _THREADS // 32
#: Limit in bytes of a matrix of products.
_PRODUCTS = 256 << 20
#: Vectors that a warp sorts, at least; and the most counts of the sort, which one block sums up.
_PART = 256
_COUNTS = 1 << 15
#: The threads that sum up a list's vectors, and the shared memory of each.
_AVERAGING, _AVERAGING_BYTES = 1024, 16


@dataclass(frozen=True)
class Sorted:
    """Vectors sorted by the list that they belong to.

    Attributes:
        order: The vectors' rows, list by list, and those of a list as they were; uint32.
        places: For each vector its place in ``order``; uint32.
        begins: Where in ``order`` those of a list begin, at entry list × parts; uint32.
        parts: The parts that were sorted each for itself.
    """

    order: Any
    places: Any
    begins: Any
    parts: int

    def sizes(self) -> Any:
        """Return the number of vectors of each list, int64, in host memory."""
        return numpy.diff(cupy.asnumpy(self.begins)[:: self.parts].astype(numpy.int64))


class Steps:
    """The kernels, launched on CuPy's current stream. Matrices are C-contiguous CuPy arrays.

    Args:
        kernels: The family ``ivf_flat_batch``.
    """

    def __init__(self, kernels: KernelFamily) -> None:
        self._step = kernels.dispatcher("step", entry="index_step")
        self._begin = kernels.dispatcher("step", entry="sort_probes")
        self._convert = kernels.dispatcher("data_type", entry="convert_rows")
        self._store = kernels.dispatcher("component", entry="store_rows")

    def as_float(self, rows: Any, stride: int = 1) -> Any:
        """Return every ``stride``-th row as float32; the matrix itself if it is so."""
        if rows.dtype == numpy.float32 and stride == 1:
            return rows
        n, dim = -(-len(rows) // stride), rows.shape[1]
        converted = cupy.empty((n, dim), cupy.float32)
        if n:
            self._convert(rows.dtype)(_stream(), _blocks(n), _THREADS, rows, converted, n, dim, stride)
        return converted

    def gather(self, rows: Any, chosen: Any, out: Any = None) -> tuple[Any, Any]:
        """Return the float32 rows numbered ``chosen`` (uint32), in ``out`` if given, and their squared norms."""
        n, dim = len(chosen), rows.shape[1]
        gathered = cupy.empty((n, dim), cupy.float32) if out is None else out
        squares = cupy.empty(n, cupy.float32)
        if n:
            launch = self._step("gather_rows")
            launch(_stream(), _blocks(n), _THREADS, rows, chosen, gathered, squares, n, dim)
        return gathered, squares

    def label(self, rows: Any, centres: Any, squares: Any, *, otherwise: int, out: Any = None) -> Any:
        """Return the nearest centre of each row, by Euclidean distance; uint32.

        Args:
            rows: A float32 matrix of shape (n, dim).
            centres: A float32 matrix of shape (m, dim).
            squares: The squared norms of the centres.
            otherwise: The label of rows with what is not finite.
            out: Where to write; by default a new array.
        """
        # Imported lazily: loads cuBLAS, which searches with few queries do without.
        from cupy import cublas

        labels = cupy.empty(len(rows), cupy.uint32) if out is None else out
        launch = self._step("label_rows")
        at_once = max(1, _PRODUCTS // (4 * len(centres)))
        for begin in range(0, len(rows), at_once):
            part = slice(begin, min(begin + at_once, len(rows)))
            n = part.stop - begin
            products = cupy.empty((n, len(centres)), cupy.float32)
            # |v − c|² without |v|², which is the same for all centres.
            cublas.gemm("N", "T", rows[part], centres, out=products, alpha=-2.0)
            launch(
                _stream(), _blocks(n), _THREADS, products, squares, labels[part], n, len(centres), otherwise
            )  # fmt: skip
        return labels

    def sort(self, labels: Any, n_lists: int) -> Sorted:
        """Sort vectors by their labels (uint32); those whose label is ``NO_LIST`` are left out."""
        n = len(labels)
        parts = max(1, min(-(-n // _PART), _COUNTS // n_lists))
        rows_per_part = -(-n // parts)
        counts, following = cupy.zeros(n_lists * parts, cupy.uint32), cupy.empty(n_lists * parts, cupy.uint32)
        begins = cupy.empty(n_lists * parts + 1, cupy.uint32)
        order, places = cupy.empty(n, cupy.uint32), cupy.empty(n, cupy.uint32)
        self._step("count_rows")(_stream(), -(-n // _THREADS), _THREADS, labels, counts, n, rows_per_part, parts)
        self._begin("begin_lists")(
            _stream(), 1, 1024, counts, None, begins, None, following, n_lists * parts, shared_memory=256
        )
        self._step("place_rows")(
            _stream(), _blocks(parts), _THREADS, labels, following, places, order, n, rows_per_part, parts
        )
        return Sorted(order, places, begins, parts)

    def average(
        self, rows: Any, ordered: Sorted, labels: Any, centres: Any, squares: Any, *, least: int, seed: int
    ) -> None:
        """Replace centres by the means of their vectors, as `average_rows.cuh` says, and their squared norms.

        Args:
            rows: The vectors, a float32 matrix.
            ordered: The vectors sorted by ``labels``.
            labels: The centre of each vector.
            centres: A float32 matrix; written.
            squares: The squared norms of the centres; written.
            least: A list of fewer vectors is moved to where there are more.
            seed: Seed of the choice where to.
        """
        n, dim = rows.shape
        self._step("average_rows")(
            _stream(), len(centres), _AVERAGING, rows, ordered.order, ordered.begins, labels, centres, squares,
            n, dim, len(centres), ordered.parts, least, seed & 0xFFFFFFFF,
            shared_memory=_AVERAGING * _AVERAGING_BYTES,
        )  # fmt: skip

    def move(self, source: Any, target: Any, sizes: Any, before: Any, after: Any, group_bytes: int) -> None:
        """Copy the groups of lists of these sizes from where they begin before to where they begin after."""
        launch = self._step("move_lists")
        launch(_stream(), len(sizes), _THREADS, source, target, sizes, before, after, group_bytes // 16)

    def store(self, rows: Any, first: int, labels: Any, ordered: Sorted, ids: Any, held: Any, grown: Any) -> None:
        """Write vectors ``first``, ``first`` + 1, … into the lists ``grown``, behind those that ``held`` holds."""
        n, dim = rows.shape
        self._store(f"uint{8 * rows.itemsize}_t")(
            _stream(), _blocks(n), _THREADS, rows, ids, labels, ordered.places, ordered.begins, held.sizes,
            grown.groups, grown.vectors, grown.ids, first, n, dim, grown.chunks, grown.veclen, ordered.parts,
        )  # fmt: skip

    def merge(self, distances: Any, neighbours: Any, order: str, best: Any, found: Any) -> None:
        """Write the best results of each query.

        Args:
            distances: A float32 array of shape (n, rows × k): for each query, rows of ``k`` distances without NaN, each
                sorted with the best first.
            neighbours: The ids, int64, of the same shape; -1 for an empty place. Empty places are at the end of a row.
            order: ``ascending`` or ``descending``.
            best: Where distances are written, of shape (n, k).
            found: Where ids are written, of shape (n, k).
        """
        n, k = best.shape
        self._step("merge_results")(
            _stream(), -(-distances.size // _THREADS), _THREADS, distances, neighbours, best, found,
            n, distances.shape[1] // k, k, int(order == "ascending"),
        )  # fmt: skip

    def as_lists(self, ids: Any) -> Any:
        """Return ids of centres as the numbers of lists, uint32; -1 becomes ``NO_LIST``."""
        lists = cupy.empty(ids.shape, cupy.uint32)
        if ids.size:
            self._step("narrow_ids")(_stream(), -(-ids.size // _THREADS), _THREADS, ids, lists, ids.size)
        return lists

    def bits(self, flags: Any) -> Any:
        """Return the words of the filter ``bitset`` for an array of bool."""
        words = cupy.zeros(-(-max(flags.size, 1) // 32), cupy.uint32)
        if flags.size:
            self._step("pack_bits")(_stream(), -(-flags.size // _THREADS), _THREADS, flags, words, flags.size)
        return words


def _blocks(rows: int) -> int:
    """Return the blocks of a grid with a warp for each row."""
    return -(-rows // _WARPS)


def _stream() -> Any:
    return cupy.cuda.get_current_stream()
