"""The index ``ivf_flat`` and that of cuVS: the same data, recall and batches, in one run.

``python -m tests.benchmarks.families.ivf_flat_peers`` needs a GPU; without cuVS it measures jitlto alone. Both build an
index with the same number of lists and default settings, and search it at the fewest probes, of those tried, that reach
a recall of 0.95. The host times it until the device has done. They take turns, call by call.
"""

import itertools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from jitlto.build.pipeline import build
from tests.benchmarks import script, svg
from tests.benchmarks.families.databases import declared, free_memory
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, summaries, wall_milliseconds
from tests.support.ivf_flat_reference import DTYPES, recall

_TYPES = ("float", "__half", "int8_t")
_BATCHES = (1, 10, 100, 300, 1000, 10_000)
_PROBES = (4, 6, 8, 10, 12, 16, 24, 32, 48)
_DIM, _K, _WANTED = 128, 10, 0.95
Search = Callable[[Any, int], Any]


def with_jitlto(dataset: Any, n_lists: int, database: Path) -> tuple[Search, Any]:
    """Our index: what searches it, and the lengths of its lists."""
    import cupy as cp

    from docs.examples.ivf_flat import Index

    index = Index.build(dataset, n_lists, kernels=database)
    lengths = cp.asnumpy(index.lists.sizes)
    return lambda queries, n_probes: index.search(queries, _K, n_probes=n_probes)[1], lengths


def with_cuvs(dataset: Any, n_lists: int, _database: Path) -> tuple[Search, Any]:
    """An index of cuVS's, of default settings."""
    import cupy as cp
    from cuvs.common import Resources
    from cuvs.neighbors import ivf_flat

    resources = Resources()
    index = ivf_flat.build(ivf_flat.IndexParams(n_lists=n_lists, metric="sqeuclidean"), dataset, resources=resources)
    resources.sync()

    def search(queries: Any, n_probes: int) -> Any:
        found = ivf_flat.search(ivf_flat.SearchParams(n_probes=n_probes), index, queries, _K, resources=resources)[1]
        resources.sync()
        return cp.asarray(found)

    return search, None


_SIDES = {"jitlto": with_jitlto, "cuvs": with_cuvs}


def _built(
    make: Callable[[Any, int, Path], tuple[Search, Any]], dataset: Any, n_lists: int, database: Path
) -> tuple[list[float], tuple[Search, Any]]:
    """Build an index three times; return what each took, in milliseconds, and the last."""
    made: list[tuple[Search, Any]] = []
    times = []
    for _ in range(3):
        made.clear()
        times.append(round(wall_milliseconds(lambda: made.append(make(dataset, n_lists, database))), 1))
    return times, made[0]


def _measure(data_type: str, n: int, n_lists: int, rounds: int, database: Path) -> dict[str, Any]:
    """Builds, recall and all batches of one data type.

    Args:
        data_type: As in the family.
        n: Vectors of 128 components.
        n_lists: Lists.
        rounds: Searches of each library with batches from 1,000 up; smaller ones are searched four times as often.
        database: The family ``ivf_flat_batch``.
    """
    import cupy as cp

    dataset, queries = _clustered(n, max(_BATCHES) * 2, data_type)
    truth = _exact(dataset, queries[:1000])
    sides: dict[str, tuple[Search, int]] = {}
    built: dict[str, Any] = {}
    for name in (name for name in _SIDES if find_spec(name)):
        times, (search, lengths) = _built(_SIDES[name], dataset, n_lists, database)
        reached = {p: round(recall(cp.asnumpy(search(queries[:1000], p)), truth), 4) for p in _PROBES}
        built[name] = {"build_milliseconds": times, "recall": reached}
        if lengths is not None:
            built[name]["lists"] = {"shortest": int(lengths.min()), "longest": int(lengths.max()),
                                    "deviation/mean": round(float(lengths.std() / lengths.mean()), 3)}  # fmt: skip
        sides[name] = (search, next((p for p in _PROBES if reached[p] >= _WANTED), _PROBES[-1]))
        built[name]["n_probes"] = sides[name][1]
        print(f"{data_type} {name}: {built[name]}", flush=True)
    rows = []
    for batch in _BATCHES:
        begins = itertools.cycle(range(0, len(queries) - batch + 1, batch))

        def call(name: str, batch: int = batch, begins: Any = begins) -> object:
            begin = next(begins)
            return sides[name][0](queries[begin : begin + batch], sides[name][1])

        count = rounds if batch >= 1000 else 4 * rounds
        turns = in_turn({name: lambda name=name: call(name) for name in sides}, count, wall_milliseconds, warm=2)
        times_of = summaries(turns)
        rates = {name: round(1000 * batch / each["median"]) for name, each in times_of.items()}
        rows.append({"batch": batch, "milliseconds": times_of, "queries_per_second": rates})
        print(f"{data_type} batch {batch}: {rates}", flush=True)
    return {"data_type": data_type, "indexes": built, "rows": rows}


def _clustered(n: int, m: int, data_type: str) -> tuple[Any, Any]:
    """Vectors in clusters of about a hundred, and queries from the same clusters, in device memory."""
    import cupy as cp

    dtype = DTYPES[data_type]
    centres = cp.random.standard_normal((max(1, n // 100), _DIM), np.float32)

    def draw(count: int) -> Any:
        rows = cp.empty((count, _DIM), dtype)
        for begin in range(0, count, 1 << 18):
            part = slice(begin, min(begin + (1 << 18), count))
            chosen = cp.random.randint(0, len(centres), part.stop - begin)
            noise = cp.random.standard_normal((part.stop - begin, _DIM), np.float32)
            values = centres[chosen] + np.float32(0.6) * noise
            if dtype.kind != "f":
                limits = np.iinfo(dtype)
                middle = 128 if data_type == "uint8_t" else 0
                values = cp.clip(cp.rint(values * 30 + middle), limits.min, limits.max)
            rows[part] = values.astype(dtype)
        return rows

    return draw(n), draw(m)


def _exact(dataset: Any, queries: Any) -> np.ndarray[Any, Any]:
    """The true neighbours, in float64."""
    import cupy as cp

    wanted = queries.astype(cp.float64)
    parts = []
    for begin in range(0, len(dataset), 1 << 16):
        rows = dataset[begin : begin + (1 << 16)].astype(cp.float64)
        distances = (rows * rows).sum(axis=1) - 2 * (wanted @ rows.T)
        places = cp.argpartition(distances, _K, axis=1)[:, :_K]
        parts.append((cp.take_along_axis(distances, places, axis=1), places + begin))
    distances, ids = (cp.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    order = cp.argsort(distances, axis=1)[:, :_K]
    return np.asarray(cp.asnumpy(cp.take_along_axis(ids, order, axis=1)))


def measure(options: Options) -> Result:
    n, n_lists = (10_000, 64) if options.small else (1_000_000, 1024)
    result: Result = {"vectors": n, "dim": _DIM, "lists": n_lists, "k": _K}
    database = options.place / "ivf_flat_batch.fragdb"
    build([declared("ivf_flat_batch")], database)
    result["types"] = []
    for data_type in _TYPES:
        result["types"].append(_measure(data_type, n, n_lists, options.rounds, database))
        free_memory()
    return result


def plots(result: Result) -> dict[str, str]:
    """Queries a second against cuVS, by batch; the spread is that of the quartiles of both."""
    types = result["types"]
    if not all("cuvs" in each["indexes"] for each in types):
        return {}
    groups = [
        svg.Group(f"batch {rows[0]['batch']:,}", [svg.Value.faster(r["milliseconds"], "jitlto", "cuvs") for r in rows])
        for rows in zip(*(each["rows"] for each in types), strict=True)
    ]
    title = "Index of a million vectors: queries a second, against cuVS"
    unit = "queries a second of jitlto / of cuVS at a recall of 0.95; lines: quartiles"
    return {"": svg.bars(title, [each["data_type"].strip("_") for each in types], groups, unit, reference=1.0)}


if __name__ == "__main__":
    script.run(__doc__, measure, plots, rounds=7, small=False)
