"""The index ``ivf_flat`` and that of cuVS: the same data, recall and batches, in one run.

``python -m tests.benchmarks.families.ivf_flat_peers`` needs a GPU; without cuVS it measures jitlto alone. Both build an
index with the same number of lists and default settings, and search it at the fewest probes, of those tried, that reach
a recall of 0.95. The host times it until the device has done. They take turns, call by call.

Data are in clusters of about a hundred, with normal deviations; or of low rank with heavy tails: products of 32 factors
of Student's t distribution with three degrees of freedom, and as much noise as a tenth of them.
"""

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
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

_BATCHES = (1, 10, 100, 300, 1000, 10_000)
_PROBES = (4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_KS, _WANTED = (10, 100), 0.95
_RANK, _FREEDOM, _NOISE = 32, 3, 0.1
_AT_ONCE = 1 << 18  # vectors
Search = Callable[[Any, int, int], Any]  # queries, results of each, probes


@dataclass(frozen=True)
class Case:
    """A data set: a million vectors or as many of more components, and lists."""

    data: str
    data_type: str
    dim: int
    n: int = 1_000_000
    n_lists: int = 1024


_CASES = (
    Case("clustered", "float", 128),
    Case("clustered", "__half", 128),
    Case("clustered", "int8_t", 128),
    Case("low rank", "float", 64),
    Case("low rank", "float", 768, 300_000),
    Case("low rank", "float", 1536, 200_000),
)


def with_jitlto(dataset: Any, n_lists: int, database: Path) -> tuple[Search, Any]:
    """Our index: what searches it, and the lengths of its lists."""
    import cupy as cp

    from docs.examples.ivf_flat import Index

    index = Index.build(dataset, n_lists, kernels=database)
    lengths = cp.asnumpy(index.lists.sizes)
    return lambda queries, k, n_probes: index.search(queries, k, n_probes=n_probes)[1], lengths


def with_cuvs(dataset: Any, n_lists: int, _database: Path) -> tuple[Search, Any]:
    """An index of cuVS's, of default settings."""
    import cupy as cp
    from cuvs.common import Resources
    from cuvs.neighbors import ivf_flat

    resources = Resources()
    index = ivf_flat.build(ivf_flat.IndexParams(n_lists=n_lists, metric="sqeuclidean"), dataset, resources=resources)
    resources.sync()

    def search(queries: Any, k: int, n_probes: int) -> Any:
        found = ivf_flat.search(ivf_flat.SearchParams(n_probes=n_probes), index, queries, k, resources=resources)[1]
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


def _measure(case: Case, rounds: int, database: Path) -> dict[str, Any]:
    """Builds, recall and all batches of a data set.

    Args:
        case: The data set.
        rounds: Searches of each library with batches from 1,000 up; smaller ones are searched four times as often.
        database: The family ``ivf_flat_batch``.
    """
    import cupy as cp

    dataset, queries = _drawn(case, case.n), _drawn(case, max(_BATCHES) * 2)
    truth = _exact(dataset, queries[:1000], max(_KS))
    sides: dict[str, Search] = {}
    built: dict[str, Any] = {}
    probes: dict[tuple[str, int], int] = {}
    for name in (name for name in _SIDES if find_spec(name)):
        times, (sides[name], lengths) = _built(_SIDES[name], dataset, case.n_lists, database)
        built[name] = {"build_milliseconds": times}
        if lengths is not None:
            built[name]["lists"] = {"shortest": int(lengths.min()), "longest": int(lengths.max()),
                                    "deviation/mean": round(float(lengths.std() / lengths.mean()), 3)}  # fmt: skip
        for k in _KS:
            reached = {}
            for p in _PROBES:
                reached[p] = round(recall(cp.asnumpy(sides[name](queries[:1000], k, p)), truth[:, :k]), 4)
                probes[name, k] = p
                if reached[p] >= _WANTED:
                    break
            built[name] |= {f"recall of {k}": reached, f"probes for {k}": probes[name, k]}
        print(f"{case} {name}: {built[name]}", flush=True)
    rows = []
    for k, batch in itertools.product(_KS, _BATCHES):
        begins = itertools.cycle(range(0, len(queries) - batch + 1, batch))

        def call(name: str, k: int = k, batch: int = batch, begins: Any = begins) -> object:
            begin = next(begins)
            return sides[name](queries[begin : begin + batch], k, probes[name, k])

        count = rounds if batch >= 1000 else 4 * rounds
        turns = in_turn({name: lambda name=name: call(name) for name in sides}, count, wall_milliseconds, warm=2)
        times_of = summaries(turns)
        rates = {name: round(1000 * batch / each["median"]) for name, each in times_of.items()}
        rows.append({"k": k, "batch": batch, "milliseconds": times_of, "queries_per_second": rates})
        print(f"{case} k {k} batch {batch}: {rates}", flush=True)
    return {**asdict(case), "indexes": built, "rows": rows}


def _drawn(case: Case, n: int) -> Any:
    """Vectors of a data set, in device memory; others each time."""
    return _clustered(case, n) if case.data == "clustered" else _low_rank(case, n)


def _clustered(case: Case, n: int) -> Any:
    import cupy as cp

    dtype = DTYPES[case.data_type]
    centres = cp.random.RandomState(0).standard_normal((max(1, case.n // 100), case.dim), np.float32)
    rows = cp.empty((n, case.dim), dtype)
    for begin in range(0, n, _AT_ONCE):
        part = slice(begin, min(begin + _AT_ONCE, n))
        chosen = cp.random.randint(0, len(centres), part.stop - begin)
        values = centres[chosen] + np.float32(0.6) * cp.random.standard_normal((len(chosen), case.dim), np.float32)
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            values = cp.clip(cp.rint(values * 30), limits.min, limits.max)
        rows[part] = values.astype(dtype)
    return rows


def _low_rank(case: Case, n: int) -> Any:
    import cupy as cp

    factors = cp.random.RandomState(0).standard_normal((_RANK, case.dim), np.float32)
    values = cp.random.standard_t(_FREEDOM, (n, _RANK)).astype(np.float32) @ factors
    for begin in range(0, n, _AT_ONCE):
        part = values[begin : begin + _AT_ONCE]
        part += np.float32(_NOISE * _RANK**0.5) * cp.random.standard_normal(part.shape, np.float32)
    return values.astype(DTYPES[case.data_type])


def _exact(dataset: Any, queries: Any, k: int) -> np.ndarray[Any, Any]:
    """The true neighbours, in float64."""
    import cupy as cp

    wanted = queries.astype(cp.float64)
    parts = []
    for begin in range(0, len(dataset), 1 << 16):
        rows = dataset[begin : begin + (1 << 16)].astype(cp.float64)
        distances = (rows * rows).sum(axis=1) - 2 * (wanted @ rows.T)
        places = cp.argpartition(distances, k, axis=1)[:, :k]
        parts.append((cp.take_along_axis(distances, places, axis=1), places + begin))
    distances, ids = (cp.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    order = cp.argsort(distances, axis=1)[:, :k]
    return np.asarray(cp.asnumpy(cp.take_along_axis(ids, order, axis=1)))


def measure(options: Options) -> Result:
    database = options.place / "ivf_flat_batch.fragdb"
    build([declared("ivf_flat_batch")], database)
    cases = []
    for case in _CASES:
        small = replace(case, n=10_000, n_lists=64) if options.small else case
        cases.append(_measure(small, options.rounds, database))
        free_memory()
    return {"what": __doc__, "cases": cases}


def plots(result: Result) -> dict[str, str]:
    """Queries a second against cuVS, by batch; the spread is that of the quartiles of both."""
    cases = result["cases"]
    if not all("cuvs" in each["indexes"] for each in cases):
        return {}
    groups = [
        svg.Group(
            f"{rows[0]['k']} of batch {rows[0]['batch']:,}",
            [svg.Value.faster(r["milliseconds"], "jitlto", "cuvs") for r in rows],
        )
        for rows in zip(*(each["rows"] for each in cases), strict=True)
    ]
    names = [f"{each['data_type'].strip('_')} × {each['dim']}, {each['data']}" for each in cases]
    unit = "queries a second of jitlto / of cuVS at a recall of 0.95; lines: quartiles"
    return {"": svg.bars("Inverted lists: queries a second, against cuVS", names, groups, unit, reference=1.0)}


if __name__ == "__main__":
    script.run(__doc__, measure, plots, rounds=7, small=False)
