"""The index ``ivf_flat``: queries per second at a recall of 0.95, and brute force by PyTorch as its peer.

The host times searches until the device has done them. Many queries at once are searched for in tiles, which
``ivf_flat_peers`` measures.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import svg
from tests.benchmarks.families.databases import free_memory, whole_family
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, summary, wall_milliseconds
from tests.support.ivf_flat_reference import DTYPES, recall

_DIM, _K, _WANTED = 128, 10, 0.95
_PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_TEMPORARY = 4 << 30  # bytes of distances that brute force holds at once


def measure(options: Options) -> Result:
    """All data types, all sizes of batches."""
    n, n_lists, tuned = (1 << 14, 64, 64) if options.small else (1_000_000, 1024, 1000)
    batches = (1, 10) if options.small else (1, 10, 100)
    rows: list[Result] = []
    peers: list[Result] = []
    with tempfile.TemporaryDirectory(dir=options.work) as directory:
        database = whole_family("ivf_flat_batch", Path(directory))
        for data_type in DTYPES:
            data = clustered(n, max(tuned, 2 * max(batches)), data_type)
            truth = exact(data[0], data[1][:tuned])
            rows += _measure(database, data_type, data, truth, n_lists, batches, options)
            if data_type == "float":
                peers = [_brute_force(data, truth, batch, options) for batch in batches]
            free_memory()
    return {"vectors": n, "dim": _DIM, "lists": n_lists, "k": _K, "index": rows, "brute_force": peers}


def clustered(n: int, m: int, data_type: str) -> tuple[Any, Any]:
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


def exact(dataset: Any, queries: Any) -> np.ndarray[Any, Any]:
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


def _measure(
    database: Path,
    data_type: str,
    data: tuple[Any, Any],
    truth: np.ndarray[Any, Any],
    n_lists: int,
    batches: tuple[int, ...],
    options: Options,
) -> list[Result]:
    import cupy as cp

    from docs.examples.ivf_flat import Index

    dataset, queries = data
    index: Any = None

    def build() -> None:
        nonlocal index
        index = Index.build(dataset, n_lists, kernels=database)

    seconds = wall_milliseconds(build) / 1000
    for n_probes in (*(p for p in _PROBES if p < n_lists), n_lists):
        _, found = index.search(queries[: len(truth)], _K, n_probes=n_probes)
        reached = recall(cp.asnumpy(found), truth)
        if reached >= _WANTED:
            break
    assert reached >= _WANTED, f"recall {reached:.4f} with all lists"
    rows = []
    for batch in batches:
        begins = itertools.cycle(range(0, len(queries) - batch + 1, batch))

        def search(batch: int = batch, begins: Any = begins, n_probes: int = n_probes) -> object:
            begin = next(begins)
            return index.search(queries[begin : begin + batch], _K, n_probes=n_probes)

        rounds = options.rounds if batch >= 1000 else 4 * options.rounds
        wall = summary(in_turn({"": search}, rounds, wall_milliseconds, warm=2)[""])
        # The answers of batches of this size too, where more or fewer blocks share a query.
        count = min(max(batch, 100), len(truth))
        parts = [index.search(queries[n : n + batch], _K, n_probes=n_probes)[1] for n in range(0, count, batch)]
        own = recall(cp.asnumpy(cp.concatenate(parts))[:count], truth[:count])
        assert own >= _WANTED - 0.05, f"recall {own:.4f} in batches of {batch}"
        rows.append(
            {
                "data_type": data_type,
                "batch": batch,
                "n_probes": n_probes,
                "recall": round(reached, 4),
                "build_seconds": round(seconds, 2),
                "search_milliseconds": wall,
                "queries_per_second": round(1000 * batch / wall["median"], 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _brute_force(data: tuple[Any, Any], truth: np.ndarray[Any, Any], batch: int, options: Options) -> Result:
    """In float: a matrix product and the k smallest of each row, by PyTorch."""
    import torch

    dataset, queries = data
    squares = (dataset * dataset).sum(axis=1)
    rows, points, lengths = (torch.as_tensor(array, device="cuda") for array in (dataset, queries, squares))
    at_once = max(1, min(batch, _TEMPORARY // (4 * len(dataset))))

    def search(wanted: Any) -> Any:
        distances = torch.addmm(lengths, wanted, rows.T, beta=1, alpha=-2)
        return torch.topk(distances, _K, dim=1, largest=False).indices

    def answer() -> Any:
        return [search(points[begin : min(begin + at_once, batch)]) for begin in range(0, batch, at_once)]

    count = min(at_once, len(truth))
    reached = recall(answer()[0][:count].cpu().numpy(), truth[:count])
    assert reached > 0.99, f"recall {reached}"
    wall = summary(in_turn({"": answer}, options.rounds, wall_milliseconds, warm=1)[""])
    return {
        "peer": "PyTorch",
        "batch": batch,
        "recall": round(reached, 4),
        "search_milliseconds": wall,
        "queries_per_second": round(1000 * batch / wall["median"], 1),
    }


def plots(result: Result) -> dict[str, str]:
    def value(entry: Result) -> svg.Value:
        batch, times = entry["batch"], entry["search_milliseconds"]
        ends = sorted(1000 * batch / time for time in times["quartiles"])
        return svg.Value(1000 * batch / times["median"], *ends)

    rows, peers = result["index"], result["brute_force"]
    batches = [peer["batch"] for peer in peers]
    groups = [
        svg.Group(f"batch {batch:,}", [value(each) for each in (*rows, *peers) if each["batch"] == batch])
        for batch in batches
    ]
    series = [f"ivf_flat, {t.strip('_')}" for t in dict.fromkeys(row["data_type"] for row in rows)]
    title, unit = f"Nearest {_K} of vectors of {_DIM}, recall at least {_WANTED}", "queries per second, logarithmic"
    unit += "; lines: quartiles"
    return {"": svg.bars(title, [*series, "brute force, PyTorch, float"], groups, unit, logarithmic=True)}
