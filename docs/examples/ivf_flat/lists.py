"""The lists of an index in device memory, in the interleaved layout that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cupy
import numpy

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
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Lists:
        """Return the lists from the result of :meth:`arrays`."""
        sizes = cupy.asarray(arrays["sizes"])
        return cls(
            cupy.asarray(arrays["vectors"]),
            cupy.asarray(arrays["ids"]),
            sizes,
            _first_groups(sizes),
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
        return int(self.sizes.sum())

    def extended(self, vectors: Any, ids: Any, labels: Any) -> Lists:
        """Return these lists with more vectors appended.

        Args:
            vectors: An array of shape (n, dim) of the lists' dtype, in host or device memory.
            ids: The ids, int64, of shape (n,), at least 0.
            labels: The list that each vector belongs to, int64, of shape (n,).

        Raises:
            ValueError: If there would be more slots than 32 bits can number.
        """
        if not len(labels):
            return self
        added = cupy.bincount(labels, minlength=len(self.sizes)).astype(cupy.int64)
        sizes = self.sizes.astype(cupy.int64) + added
        total = int((-(-sizes // GROUP)).sum())
        if total * GROUP >= 2**32:
            raise ValueError(f"{total * GROUP} slots are too many: an index has fewer than 2**32")
        groups = _first_groups(sizes)
        grown = Lists(
            cupy.zeros(total * GROUP * self.chunks * self.veclen, self.vectors.dtype),
            cupy.full(total * GROUP, -1, cupy.int64),
            sizes.astype(cupy.uint32),
            groups,
            self.dim,
            self.veclen,
        )
        begins = groups.astype(cupy.int64) * GROUP
        for begin in range(0, len(self.ids), _ROWS):
            slots, lists, numbers = self._held(begin, min(begin + _ROWS, len(self.ids)))
            grown._write(begins[lists] + numbers, *self._read(slots))
        # A stable sort by list: a vector's position among the new ones of its list is its rank minus the first one's.
        ranks = cupy.empty(len(labels), cupy.int64)
        ranks[cupy.argsort(labels)] = cupy.arange(len(labels))
        numbers = self.sizes.astype(cupy.int64)[labels] + ranks - (cupy.cumsum(added) - added)[labels]
        slots = begins[labels] + numbers
        for begin in range(0, len(slots), _ROWS):
            part = slice(begin, begin + _ROWS)
            grown._write(slots[part], self.filled_up(cupy.asarray(vectors[part])), ids[part])
        return grown

    def filled_up(self, rows: Any) -> Any:
        """Return rows padded with zeros to a whole number of chunks, aligned and C-contiguous."""
        if self.chunks * self.veclen == self.dim:
            aligned = rows.data.ptr % (self.veclen * rows.itemsize) == 0
            return rows if rows.flags.c_contiguous and aligned else cupy.array(rows, order="C")
        filled = cupy.zeros((len(rows), self.chunks * self.veclen), self.vectors.dtype)
        filled[:, : self.dim] = rows
        return filled

    def _held(self, begin: int, end: int) -> tuple[Any, Any, Any]:
        """Return the occupied slots from begin to end, the list of each, and its position in that list."""
        slots = cupy.arange(begin, end)
        # If several lists begin at the same group, all but the last are empty.
        lists = cupy.searchsorted(self.groups.astype(cupy.int64), slots // GROUP, side="right") - 1
        numbers = slots - self.groups.astype(cupy.int64)[lists] * GROUP
        held = numbers < self.sizes.astype(cupy.int64)[lists]
        return slots[held], lists[held], numbers[held]

    def _places(self, slots: Any) -> Any:
        """Return the positions of the chunks of the vectors in these slots, in chunks; shape (n, chunks)."""
        first = slots // GROUP * (self.chunks * GROUP) + slots % GROUP
        return first[:, None] + cupy.arange(self.chunks) * GROUP

    def _read(self, slots: Any) -> tuple[Any, Any]:
        rows = self.vectors.reshape(-1, self.veclen)[self._places(slots)]
        return rows.reshape(len(slots), -1), self.ids[slots]

    def _write(self, slots: Any, rows: Any, ids: Any) -> None:
        self.vectors.reshape(-1, self.veclen)[self._places(slots)] = rows.reshape(len(slots), self.chunks, self.veclen)
        self.ids[slots] = ids


def _first_groups(sizes: Any) -> Any:
    groups = -(-sizes.astype(cupy.int64) // GROUP)
    return (cupy.cumsum(groups) - groups).astype(cupy.uint32)
