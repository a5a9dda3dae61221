"""The lists of an index in device memory, in the interleaved layout that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cupy
import numpy

#: Vectors of a group: as many as a warp has lanes.
GROUP = 32
#: Vectors that are moved at once.
_ROWS = 1 << 16
_BYTES_AT_ONCE = 16


def veclen_for(dim: int, dtype: Any) -> int:
    """How many components are stored together: 16 bytes of them, unless filling up vectors wastes too much.

    A vector is filled up with zeros to a multiple. More than half as much again would have to be read in vain for
    wide accesses to be worth it.
    """
    wide = _BYTES_AT_ONCE // numpy.dtype(dtype).itemsize
    return wide if 2 * -(-dim // wide) * wide <= 3 * dim else 1


@dataclass(frozen=True)
class Lists:
    """Vectors in lists; immutable.

    A list begins on a whole group of 32 vectors. Component d of vector v of a group g is at
    ``((g * chunks + d // veclen) * 32 + v) * veclen + d % veclen`` of ``vectors``; a chunk is ``veclen`` components.

    Parameters
    ----------
    vectors : cupy.ndarray, flat
        Components.
    ids : cupy.ndarray of int64
        For each slot (32 × group + v) the vector's id; -1 for an unused one.
    sizes : cupy.ndarray of uint32
        Vectors of each list.
    groups : cupy.ndarray of uint32
        Each list's first group.
    dim : int
        Components of a vector, without those it is filled up with.
    veclen : int
        Components stored together.
    """

    vectors: Any
    ids: Any
    sizes: Any
    groups: Any
    dim: int
    veclen: int

    @classmethod
    def empty(cls, n_lists: int, dim: int, dtype: Any, veclen: int | None = None) -> Lists:
        """So many lists with nothing in them."""
        none = cupy.zeros(n_lists, cupy.uint32)
        veclen = veclen_for(dim, dtype) if veclen is None else veclen
        return cls(cupy.empty(0, dtype), cupy.empty(0, cupy.int64), none, none, dim, veclen)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Lists:
        """The lists of which :meth:`arrays` tells."""
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
        """All there is to know, in host memory."""
        on_device = {"vectors": self.vectors, "ids": self.ids, "sizes": self.sizes}
        host = {name: cupy.asnumpy(array) for name, array in on_device.items()}
        return host | {"dim": numpy.int64(self.dim), "veclen": numpy.int64(self.veclen)}

    @property
    def chunks(self) -> int:
        """How many times ``veclen`` components a vector is stored as."""
        return -(-self.dim // self.veclen)

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def extended(self, vectors: Any, ids: Any, labels: Any) -> Lists:
        """These lists with more vectors at their ends.

        Parameters
        ----------
        vectors : array of shape (n, dim)
            In host or device memory, of the dtype of the lists.
        ids : cupy.ndarray of int64, shape (n,)
            At least 0.
        labels : cupy.ndarray of int64, shape (n,)
            The list that each vector belongs to.

        Raises
        ------
        ValueError
            If these are more slots than 32 bits can number.
        """
        if not len(labels):
            return self
        added = cupy.bincount(labels, minlength=len(self.sizes)).astype(cupy.int64)
        sizes = self.sizes.astype(cupy.int64) + added
        total = int((-(-sizes // GROUP)).sum())
        if total * GROUP >= 2**32:
            raise ValueError(f"{total * GROUP} slots: an index holds less than 2**32")
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
        # A stable sort by list: a vector's place among the new ones of its list is its rank less that of their first.
        ranks = cupy.empty(len(labels), cupy.int64)
        ranks[cupy.argsort(labels)] = cupy.arange(len(labels))
        numbers = self.sizes.astype(cupy.int64)[labels] + ranks - (cupy.cumsum(added) - added)[labels]
        slots = begins[labels] + numbers
        for begin in range(0, len(slots), _ROWS):
            part = slice(begin, begin + _ROWS)
            grown._write(slots[part], self.filled_up(cupy.asarray(vectors[part])), ids[part])
        return grown

    def filled_up(self, rows: Any) -> Any:
        """Rows of ``dim`` components with zeros up to a whole number of chunks, aligned and C-contiguous."""
        if self.chunks * self.veclen == self.dim:
            aligned = rows.data.ptr % (self.veclen * rows.itemsize) == 0
            return rows if rows.flags.c_contiguous and aligned else cupy.array(rows, order="C")
        filled = cupy.zeros((len(rows), self.chunks * self.veclen), self.vectors.dtype)
        filled[:, : self.dim] = rows
        return filled

    def _held(self, begin: int, end: int) -> tuple[Any, Any, Any]:
        """Those of the slots from begin to end that hold a vector; the list of each; its number in that list."""
        slots = cupy.arange(begin, end)
        # Of lists that begin at one group all but the last are empty.
        lists = cupy.searchsorted(self.groups.astype(cupy.int64), slots // GROUP, side="right") - 1
        numbers = slots - self.groups.astype(cupy.int64)[lists] * GROUP
        held = numbers < self.sizes.astype(cupy.int64)[lists]
        return slots[held], lists[held], numbers[held]

    def _places(self, slots: Any) -> Any:
        """Where the chunks of the vectors in these slots are, counted in chunks; shape (n, chunks)."""
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
