"""The index ``ivf_flat``: queries per second at a recall of 0.95, what its scan reads, and brute force as its peer.

How bytes are counted. The scan reads, for each query, all groups of 32 vectors of each list that it probes (with the
places that a list's last group leaves unused, and the zeros that fill up vectors), its own components once, and for
each of its results an id; it writes distances and ids of results. «Scanned» counts a list once for each query that
probes it, as the algorithm reads it; «distinct» once for all the batch, as a cache without limits would fetch it.
Kernels are timed with nothing of the index in the L2.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import svg
from tests.benchmarks.families.databases import whole_family
from tests.benchmarks.families.part import Options, Outcome, free_memory, say, survive, table
from tests.benchmarks.families.recording import Call, RecordingFamily
from tests.benchmarks.families.timing import cold_milliseconds, copy_bandwidth, in_turn, summary, wall_milliseconds
from tests.support.ivf_flat_reference import DTYPES, recall

_DIM, _K, _WANTED = 128, 10, 0.95
_PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_TEMPORARY = 4 << 30  # bytes of distances that brute force holds at once


def run(options: Options) -> Outcome:
    """All data types, all sizes of batches."""
    n, n_lists, tuned = (1 << 14, 64, 64) if options.small else (1_000_000, 1024, 1000)
    # More queries at once are searched for in tiles, which `ivf_flat_peers` measures.
    batches = (1, 10) if options.small else (1, 10, 100)
    rates = copy_bandwidth(1 << 24 if options.small else 4 << 30)
    say(f"copy: {rates['GB/s']['median']:.0f} GB/s")
    rows: list[dict[str, Any]] = []
    peers: list[dict[str, Any]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.work) as directory:
        family = RecordingFamily(
            KernelFamily("ivf_flat", FragmentDatabase(whole_family("ivf_flat_batch", Path(directory))))
        )
        say("built")
        for data_type in DTYPES:
            with survive(data_type, failures):
                data = _clustered(n, max(tuned, 2 * max(batches)), data_type)
                truth = _exact(data[0], data[1][:tuned])
                rows += _measure(family, data_type, data, truth, n_lists, batches, rates, options)
                if data_type == "float":
                    peers = _peers(data, truth, batches, options, failures)
            free_memory()
    data = {
        "vectors": n,
        "dim": _DIM,
        "lists": n_lists,
        "k": _K,
        "bytes": __doc__,
        "copy": rates,
        "index": rows,
        "brute_force": peers,
        "other_peers": {name: "is installed, and not measured here" if find_spec(name) else "is not installed"
                        for name in ("cuvs", "faiss", *(() if find_spec("torch") else ("torch",)))},
    }  # fmt: skip
    return Outcome(data, _text(rows, peers), {"": _plot(rows, peers)} if rows else {}, failures)


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


def _measure(
    family: RecordingFamily,
    data_type: str,
    data: tuple[Any, Any],
    truth: np.ndarray[Any, Any],
    n_lists: int,
    batches: tuple[int, ...],
    rates: dict[str, Any],
    options: Options,
) -> list[dict[str, Any]]:
    import cupy as cp

    from docs.examples.ivf_flat import Index

    dataset, queries = data
    index: Any = None

    def build() -> None:
        nonlocal index
        index = Index.build(dataset, n_lists, kernels=family)

    seconds = wall_milliseconds(build) / 1000
    say(f"{data_type}: index built in {seconds:.1f} s")
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
        wall = summary(in_turn({"search": search}, rounds, wall_milliseconds)["search"])
        family.calls.clear()
        family.recording = True
        search()
        family.recording = False
        # The answers of batches of this size too, where more or fewer blocks share a query.
        count = min(max(batch, 100), len(truth))
        parts = [index.search(queries[n : n + batch], _K, n_probes=n_probes)[1] for n in range(0, count, batch)]
        own = recall(cp.asnumpy(cp.concatenate(parts))[:count], truth[:count])
        assert own >= _WANTED - 0.05, f"recall {own:.4f} in batches of {batch}"
        coarse, scan = family.calls[0], family.calls[-1]
        times = in_turn({"coarse": coarse, "scan": scan}, options.rounds, cold_milliseconds)
        counted = _bytes(scan, index.lists)
        scan_ms = summary(times["scan"])
        rate = counted["scanned"] / 1e6 / scan_ms["median"]
        rows.append(
            {
                "data_type": data_type,
                "batch": batch,
                "n_probes": n_probes,
                "recall": round(reached, 4),
                "build_seconds": round(seconds, 2),
                "search_milliseconds": wall,
                "queries_per_second": round(1000 * batch / wall["median"], 1),
                "coarse_kernel_milliseconds": summary(times["coarse"]),
                "scan_kernel_milliseconds": scan_ms,
                "bytes": counted,
                "scanned_GB/s": round(rate, 1),
                "distinct_GB/s": round(counted["distinct"] / 1e6 / scan_ms["median"], 1),
                "scanned_share_of_copy": round(rate / rates["GB/s"]["median"], 3),
            }
        )
        say(f"{data_type}, batch {batch}: {rows[-1]['queries_per_second']:,.0f} queries/s, recall {reached:.3f}, "
            f"{n_probes} probes, scan {scan_ms['median']:.3f} ms, {rate:.0f} GB/s")  # fmt: skip
    family.calls.clear()
    return rows


def _bytes(scan: Call, lists: Any) -> dict[str, int]:
    """What a launch of the scan reads, as the head of this module says."""
    import cupy as cp

    named = dict(zip((parameter.name for parameter in scan.kernel.signature), scan.arguments[3:], strict=True))
    probes = cp.asnumpy(named["probes"]).astype(np.int64)
    of_vector = lists.chunks * lists.veclen * lists.vectors.itemsize
    of_list = -(-cp.asnumpy(lists.sizes).astype(np.int64) // 32) * 32 * of_vector
    beside = len(probes) * (of_vector + _K * 8)
    return {
        "scanned": int(of_list[probes].sum()) + beside,
        "distinct": int(of_list[np.unique(probes)].sum()) + beside,
        "written": len(probes) * _K * 12,
    }


def _peers(
    data: tuple[Any, Any], truth: np.ndarray[Any, Any], batches: tuple[int, ...], options: Options, failures: list[str]
) -> list[dict[str, Any]]:
    """Brute force in float: a matrix product and the k smallest of each row."""
    import cupy as cp

    dataset, queries = data
    squares = (dataset * dataset).sum(axis=1)

    def with_cupy(wanted: Any) -> Any:
        distances = squares - 2 * (wanted @ dataset.T)
        return cp.argpartition(distances, _K, axis=1)[:, :_K]

    sides: dict[str, tuple[Callable[[Any], Any], Any, int]] = {"CuPy": (with_cupy, queries, 100)}
    try:
        import torch

        rows, points, lengths = (torch.as_tensor(array, device="cuda") for array in (dataset, queries, squares))

        def with_torch(wanted: Any) -> Any:
            distances = torch.addmm(lengths, wanted, rows.T, beta=1, alpha=-2)
            return torch.topk(distances, _K, dim=1, largest=False).indices

        sides["PyTorch"] = (with_torch, points, 1 << 62)
    except ImportError:
        say("PyTorch is not installed")
    found = []
    for (name, (search, points, most)), batch in itertools.product(sides.items(), batches):
        # CuPy sorts all distances of a query: more queries take longer in proportion, and are not waited for.
        measured = min(batch, most)
        at_once = max(1, min(measured, _TEMPORARY // (4 * len(dataset))))

        def answer(search: Any = search, points: Any = points, measured: int = measured, at_once: int = at_once) -> Any:
            return [search(points[begin : min(begin + at_once, measured)]) for begin in range(0, measured, at_once)]

        with survive(f"{name}, batch {batch}", failures):
            count = min(at_once, len(truth))
            first = answer()[0][:count]
            ids = cp.asnumpy(first) if isinstance(first, cp.ndarray) else first.cpu().numpy()
            reached = recall(ids, truth[:count])
            assert reached > 0.99, f"recall {reached}"
            rounds = 3 if measured >= 100 else options.rounds
            wall = summary(in_turn({name: answer}, rounds, wall_milliseconds, warm=1)[name])
            found.append(
                {
                    "peer": name,
                    "batch": batch,
                    "measured_batch": measured,
                    "recall": round(reached, 4),
                    "search_milliseconds": wall,
                    "queries_per_second": round(1000 * measured / wall["median"], 1),
                }
            )
            say(f"{name}, batch {batch}: {found[-1]['queries_per_second']:,.0f} queries/s")
        free_memory()
    return found


def _text(rows: list[dict[str, Any]], peers: list[dict[str, Any]]) -> str:
    index = table(
        ("data", "batch", "probes", "recall", "queries/s", "scan ms", "GB scanned", "GB/s", "of copy"),
        [
            (r["data_type"].strip("_"), r["batch"], r["n_probes"], r["recall"], r["queries_per_second"],
             r["scan_kernel_milliseconds"]["median"], r["bytes"]["scanned"] / 1e9, r["scanned_GB/s"],
             r["scanned_share_of_copy"])
            for r in rows
        ],
    )  # fmt: skip
    brute = table(
        ("brute force, float", "batch", "queries/s"),
        [(p["peer"], p["batch"], p.get("queries_per_second")) for p in peers],
    )
    return f"{index}\n\n{brute}"


def _plot(rows: list[dict[str, Any]], peers: list[dict[str, Any]]) -> str:
    types = list(dict.fromkeys(row["data_type"] for row in rows))
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    names = list(dict.fromkeys(peer["peer"] for peer in peers))

    def value(entry: dict[str, Any] | None) -> svg.Value | None:
        if entry is None or "queries_per_second" not in entry:
            return None
        batch, times = entry.get("measured_batch", entry["batch"]), entry["search_milliseconds"]
        ends = sorted(1000 * batch / time for time in times["quartiles"])
        return svg.Value(1000 * batch / times["median"], *ends)

    groups = [
        svg.Group(
            f"batch {batch:,}",
            [
                *(value(next((r for r in rows if (r["data_type"], r["batch"]) == (t, batch)), None)) for t in types),
                *(value(next((p for p in peers if (p["peer"], p["batch"]) == (n, batch)), None)) for n in names),
            ],
        )
        for batch in batches
    ]
    series = [f"ivf_flat, {t.strip('_')}" for t in types] + [f"brute force, {name}, float" for name in names]
    return svg.bars(
        f"Nearest {_K} of vectors of {_DIM}, recall at least {_WANTED}",
        series, groups, "queries per second, logarithmic; lines: quartiles", logarithmic=True,
    )  # fmt: skip
