"""One process of ``ivf_flat_peers``: build an index, or load and search it; print milliseconds as JSON.

Timed after the import of all modules and the copy of the data to the device, until the device has done.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cuda.core  # noqa: F401 - its import is no part of what is timed
import cupy
import numpy as np

_K = 10


class Jitlto:
    """The index of the example."""

    def __init__(self, database: str, saved: str) -> None:
        from docs.examples import ivf_flat

        self._index, self._database, self._path = ivf_flat.Index, database, f"{saved}.npz"

    def build(self, rows: Any, n_lists: int) -> Any:
        return self._index.build(rows, n_lists, kernels=self._database)

    def save(self, index: Any) -> None:
        index.save(self._path)

    def load(self) -> Any:
        return self._index.load(self._path, kernels=self._database)

    def search(self, index: Any, queries: Any, n_probes: int) -> Any:
        return index.search(queries, _K, n_probes=n_probes)


class Cuvs:
    """The index of cuVS, of default settings."""

    def __init__(self, _database: str, saved: str) -> None:
        from cuvs.common import Resources
        from cuvs.neighbors import ivf_flat

        self._cuvs, self._resources, self._path = ivf_flat, Resources(), f"{saved}.cuvs"

    def build(self, rows: Any, n_lists: int) -> Any:
        params = self._cuvs.IndexParams(n_lists=n_lists, metric="sqeuclidean")
        return self._cuvs.build(params, rows, resources=self._resources)

    def save(self, index: Any) -> None:
        self._cuvs.save(self._path, index, resources=self._resources)

    def load(self) -> Any:
        return self._cuvs.load(self._path, resources=self._resources)

    def search(self, index: Any, queries: Any, n_probes: int) -> Any:
        params = self._cuvs.SearchParams(n_probes=n_probes)
        return self._cuvs.search(params, index, queries, _K, resources=self._resources)


def main() -> None:
    """Do what the arguments say: library, build or search, database, data, where the index is, lists, probes."""
    library, what, database, data, saved, n_lists, n_probes = sys.argv[1:]
    side = {"jitlto": Jitlto, "cuvs": Cuvs}[library](database, saved)
    rows = cupy.asarray(np.load(data))
    device = cupy.cuda.Device()
    times = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        device.synchronize()
        begin = time.perf_counter()
        found = call()
        device.synchronize()
        times[name] = round(1000 * (time.perf_counter() - begin), 2)
        return found

    if what == "build":
        for name in ("first build", "second build"):
            index = timed(name, lambda: side.build(rows, int(n_lists)))
        side.save(index)
    else:
        index = timed("load", side.load)
        for queries in (rows[:1], rows):
            for name in ("first", "second"):
                search = partial(side.search, index, queries, int(n_probes))
                timed(f"{name} search of {len(queries):,}", search)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
