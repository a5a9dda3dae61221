"""The lists of an index in device memory, in the interleaved layout that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy

from docs.examples.ivf_flat.steps import Steps

#: Vectors in a group: one per lane of a warp.
GROUP = 32
#: Vectors to move at once.
_ROWS = 1 << 16
_BYTES_AT_ONCE = 16


def veclen_for(dim: int, dtype: Any) -> int:
    """Return how many components to store together: 16 bytes of them, unless padding wastes too much.

    Vectors are padded with zeros to a multiple of this. Wide accesses pay off if padding adds at most half to the data
    that is read.
    """
    wide = _BYTES_AT_ONCE // numpy.dtype(dtype).itemsize
    return wide if 2 * -(-dim // wide) * wide <= 3 * dim else 1


@dataclass(frozen=True)
class Lists:
    """Vectors in lists; immutable.

    Each list begins with a new group of 32 vectors. In ``vectors``, component d of vector v of group g is at
    ``((g * chunks + d // veclen) * 32 + v) * veclen + d % veclen``; a chunk is ``veclen`` components.

    Attributes:
        vectors: The components, a flat CuPy array.
        ids: The id of the vector in each slot (32 × group + v), int64; -1 for an unused slot.
        sizes: The number of vectors in each list, uint32.
        groups: The first group of each list, uint32.
        dim: Components of a vector, without padding.
        veclen: Components stored together.
    """

    vectors: Any
    ids: Any
    sizes: Any
    groups: Any
    dim: int
    veclen: int

    @classmethod
    def empty(cls, n_lists: int, dim: int, dtype: Any, veclen: int | None = None) -> Lists:
        """Return ``n_lists`` empty lists."""
        none = cupy.zeros(n_lists, cupy.uint32)
        veclen = veclen_for(dim, dtype) if veclen is None else veclen
        return cls(cupy.empty(0, dtype), cupy.empty(0, cupy.int64), none, none, dim, veclen)

    @classmethod
    def of_host(cls, vectors: Any, ids: Any, labels: Any, n_lists: int, veclen: int | None = None) -> Lists:
        """Return lists of a few vectors, laid out in host memory.

        Args:
            vectors: A NumPy array of shape (n, dim).
            ids: Their ids, of shape (n,), at least 0.
            labels: The list that each belongs to, of shape (n,).
            n_lists: The number of lists.
            veclen: Components stored together; by default chosen by the dimension.
        """
        n, dim = vectors.shape
        veclen = veclen_for(dim, vectors.dtype) if veclen is None else veclen
        sizes = numpy.bincount(labels, minlength=n_lists)
        groups = _first_groups(sizes)
        order = numpy.argsort(labels, kind="stable")
        numbers = numpy.arange(n) - numpy.repeat(numpy.cumsum(sizes) - sizes, sizes)
        slots = numpy.repeat(groups.astype(numpy.int64) * GROUP, sizes) + numbers
        total, chunks = int(_groups(sizes).sum()), -(-dim // veclen)
        rows = numpy.zeros((total * GROUP, chunks * veclen), vectors.dtype)
        rows[slots, :dim] = vectors[order]
        laid_out = rows.reshape(total, GROUP, chunks, veclen).transpose(0, 2, 1, 3)
        slot_ids = numpy.full(total * GROUP, -1, numpy.int64)
        slot_ids[slots] = numpy.asarray(ids)[order]
        on_device = (numpy.ascontiguousarray(laid_out).ravel(), slot_ids, sizes.astype(numpy.uint32), groups)
        return cls(*map(cupy.asarray, on_device), dim, veclen)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Lists:
        """Return the lists from the result of :meth:`arrays`."""
        return cls(
            cupy.asarray(arrays["vectors"]),
            cupy.asarray(arrays["ids"]),
            cupy.asarray(arrays["sizes"]),
            cupy.asarray(_first_groups(arrays["sizes"])),
            int(arrays["dim"]),
            int(arrays["veclen"]),
        )

    def arrays(self) -> dict[str, Any]:
        """Return all data of the lists, in host memory."""
        on_device = {"vectors": self.vectors, "ids": self.ids, "sizes": self.sizes}
        host = {name: cupy.asnumpy(array) for name, array in on_device.items()}
        return host | {"dim": numpy.int64(self.dim), "veclen": numpy.int64(self.veclen)}

    @property
    def chunks(self) -> int:
        """The number of chunks that a vector is stored in."""
        return -(-self.dim // self.veclen)

    def __len__(self) -> int:
        return int(self.host_sizes.sum())

    @cached_property
    def host_sizes(self) -> Any:
        """The number of vectors in each list, int64, in host memory."""
        return cupy.asnumpy(self.sizes).astype(numpy.int64)

    def longest_row(self, count: int) -> int:
        """Return the number of slots in the ``count`` longest lists."""
        sums = self._sums_of_longest
        return int(sums[min(count, len(sums)) - 1])

    @cached_property
    def _sums_of_longest(self) -> Any:
        """The slots of the longest list, of the two longest, and so on, in host memory."""
        return numpy.cumsum(numpy.sort(_groups(self.host_sizes))[::-1]) * GROUP

    def extended(self, vectors: Any, ids: Any, labels: Any, steps: Steps) -> Lists:
        """Return these lists with more vectors appended.

        Args:
            vectors: An array of shape (n, dim) of the lists' dtype, in host or device memory.
            ids: The ids, an int64 CuPy array of shape (n,), at least 0.
            labels: The list that each vector belongs to, a uint32 CuPy array of shape (n,).
            steps: The kernels.

        Raises:
            ValueError: If there would be more slots than 32 bits can number.
        """
        if not len(labels):
            return self
        ordered = steps.sort(labels, len(self.sizes))
        sizes = self.host_sizes + ordered.sizes()
        total = int(_groups(sizes).sum())
        if total * GROUP >= 2**32:
            raise ValueError(f"{total * GROUP} slots are too many: an index has fewer than 2**32")
        grown = Lists(
            cupy.zeros(total * GROUP * self.chunks * self.veclen, self.vectors.dtype),
            _no_ids(total * GROUP),
            cupy.asarray(sizes.astype(numpy.uint32)),
            cupy.asarray(_first_groups(sizes)),
            self.dim,
            self.veclen,
        )
        if len(self.ids):
            group_bytes = GROUP * self.chunks * self.veclen * self.vectors.itemsize
            for name, size in (("vectors", group_bytes), ("ids", GROUP * self.ids.itemsize)):
                steps.move(getattr(self, name), getattr(grown, name), self.sizes, self.groups, grown.groups, size)
        for begin in range(0, len(vectors), _ROWS):
            steps.store(on_device(vectors[begin : begin + _ROWS]), begin, labels, ordered, ids, self, grown)
        return grown

    def filled_up(self, rows: Any) -> Any:
        """Return rows padded with zeros to a whole number of chunks, aligned and C-contiguous."""
        width = self.chunks * self.veclen * rows.itemsize
        if self.chunks * self.veclen == self.dim and rows.flags.c_contiguous:
            return rows if rows.data.ptr % (self.veclen * rows.itemsize) == 0 else rows.copy()
        rows = on_device(rows)
        filled = cupy.zeros((len(rows), self.chunks * self.veclen), self.vectors.dtype)
        if len(rows):
            own = self.dim * rows.itemsize
            cupy.cuda.runtime.memcpy2DAsync(
                filled.data.ptr, width, rows.data.ptr, own, own, len(rows),
                cupy.cuda.runtime.memcpyDeviceToDevice, cupy.cuda.get_current_stream().ptr,
            )  # fmt: skip
        return filled


def on_device(rows: Any) -> Any:
    """Return a matrix in device memory, C-contiguous: itself if it is, or else a copy."""
    return cupy.asarray(numpy.ascontiguousarray(rows) if isinstance(rows, numpy.ndarray) else rows, order="C")


def _groups(sizes: Any) -> Any:
    """Return the number of groups of lists of these sizes, int64, in host memory."""
    return -(-sizes.astype(numpy.int64) // GROUP)


def _first_groups(sizes: Any) -> Any:
    groups = _groups(sizes)
    return (numpy.cumsum(groups) - groups).astype(numpy.uint32)


def _no_ids(count: int) -> Any:
    """Return the ids of unused slots. All bits of -1 are set."""
    ids = cupy.empty(count, cupy.int64)
    ids.data.memset_async(0xFF, ids.nbytes)
    return ids
