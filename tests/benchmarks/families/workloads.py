"""What the kernels are timed on: problems with fresh random data, far above the L2, and checks of what comes out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families.recording import Call, Recorder, RecordingFamily

_CHECKED = 4  # queries or rows


@dataclass(frozen=True)
class Workload:
    """One kernel's problem on the device.

    Parameters
    ----------
    call : Call
        The launch.
    poison : callable
        Fills the outputs with what no kernel writes.
    check : callable
        Raises AssertionError if the outputs are wrong.
    sizes : mapping
        How large it is, for the record.
    """

    call: Call
    poison: Callable[[], None]
    check: Callable[[], None]
    sizes: Mapping[str, object]

    def verify(self, kernel: Any) -> None:
        """Launch a form of the kernel, and look at what it wrote."""
        self.poison()
        self.call.by(kernel)()
        self.check()


def ivf_flat(family: KernelFamily, configuration: Mapping[str, str], scale: float, n: int) -> Workload:
    """Random vectors in random lists; each query scans 32 of 1024 lists, or fewer if there are few vectors.

    Parameters
    ----------
    family : KernelFamily
    configuration : mapping
    scale : float
        More or fewer queries.
    n : int
        Vectors of 128 components.
    """
    import cupy as cp

    from docs.examples.ivf_flat import Lists, Scanner
    from tests.support.ivf_flat_reference import DTYPES, Case, check, words

    dtype, dim, k = DTYPES[configuration["data_type"]], 128, 10
    n_lists = max(4, n // 1024)
    n_probes, m = max(2, n_lists // 32), max(_CHECKED, int(2048 * scale))

    def draw(rows: int) -> Any:
        if dtype.kind == "f":
            return cp.random.standard_normal((rows, dim), np.float32).astype(dtype)
        limits = np.iinfo(dtype)
        return cp.random.randint(limits.min, limits.max + 1, (rows, dim)).astype(dtype)

    vectors, queries = draw(n), draw(m)
    labels = cp.random.randint(0, n_lists, n)
    host = cp.asnumpy(vectors), np.arange(n), cp.asnumpy(labels)
    lists = Lists.of_host(*host, n_lists, int(configuration["veclen"]))
    random = np.random.default_rng()
    firsts, step = random.integers(0, n_lists, m), 2 * random.integers(0, n_lists // 2, m) + 1
    probes = (firsts[:, None] + step[:, None] * np.arange(n_probes)) % n_lists  # a query's are all different
    mask = random.random(n) < 0.5 if configuration["filter_name"] == "bitset" else None
    recording = RecordingFamily(family)
    recording.recording = True
    distances, neighbours = Scanner(recording)(
        lists,
        queries,
        cp.asarray(probes.astype(np.uint32)),
        k,
        metric_name=configuration["metric_name"],
        post_lambda_name=configuration["post_lambda_name"],
        compute_norm=configuration["compute_norm"] == "true",
        allowed=None if mask is None else cp.asarray(words(mask)),
        blocks_per_query=1,
    )
    (call,) = recording.calls

    def poison() -> None:
        distances.fill(np.nan)
        neighbours.fill(-7)

    def look() -> None:
        found, ids = cp.asnumpy(distances), cp.asnumpy(neighbours)
        assert not np.isnan(found).any(), "a query was not answered"
        host_labels = cp.asnumpy(labels)
        for query in random.choice(m, _CHECKED, replace=False):
            members = np.flatnonzero(np.isin(host_labels, probes[query]))
            places = np.searchsorted(members, np.maximum(ids[query], 0))
            assert (members[np.minimum(places, len(members) - 1)] == ids[query]).all(), "a vector of another list"
            case = Case(
                cp.asnumpy(vectors[cp.asarray(members)]),
                np.arange(len(members)),
                np.zeros(len(members), np.int64),
                1,
                cp.asnumpy(queries[query : query + 1]),
                None if mask is None else mask[members],
            )
            check(
                (found[query : query + 1], places[None]),
                case,
                k,
                metric_name=configuration["metric_name"],
                post_lambda_name=configuration["post_lambda_name"],
                compute_norm=configuration["compute_norm"] == "true",
                order="ascending",
            )

    return Workload(
        call,
        poison,
        look,
        {"vectors": n, "dim": dim, "lists": n_lists, "probes": n_probes, "queries": m, "k": k,
         "bytes_of_vectors": int(lists.vectors.nbytes)},
    )  # fmt: skip


def fft(family: KernelFamily, configuration: Mapping[str, str], scale: float, elements: int) -> Workload:
    """Rows of random numbers, as many as give so many elements; callbacks that multiply."""
    import cupy as cp

    from docs.examples import fft as front
    from tests.support import fft_reference as reference

    kind, direction, size = configuration["kind"], configuration["direction"], int(configuration["size"])
    dtype = reference.DTYPES[configuration["data_type"]]
    batch = max(_CHECKED, int(elements * scale) // size)
    load, store = configuration["load"], configuration["store"]
    length = {"c2r": size // 2 + 1}.get(kind, size)
    kept = {"r2c": size // 2 + 1}.get(kind, size)
    factors = {"load": _factors(load, length), "store": _factors(store, kept)}
    plan = front.plan(
        size, batch, dtype, kind, direction, load=load, store=store, load_info=factors["load"],
        store_info=factors["store"], family=family,
    )  # fmt: skip
    calls: list[Call] = []
    rows = random_rows(batch, length, dtype, real=kind == "r2c")
    output = cp.empty(plan.output_shape, plan.output_dtype)
    replace(plan, launcher=Recorder(plan.launcher, calls))(rows, output)
    chosen = np.random.default_rng().choice(batch, _CHECKED, replace=False)

    def look() -> None:
        picked = cp.asarray(chosen)
        given = reference.exact(cp.asnumpy(rows[picked]), real=kind == "r2c")
        found = reference.exact(cp.asnumpy(output[picked]), real=kind == "c2r")
        # Factors are rounded as the callback gets them.
        loaded, stored = (
            factors[name].astype("float64" if dtype == "float64" else "float32").astype("float64") for name in factors
        )
        expected = reference.transformed(given * loaded, size, kind, direction)
        scaled = expected * stored
        scale_of_errors = reference.norms(expected) * abs(stored).max()
        products = sum(name != "identity" for name in (load, store))
        allowed = reference.bound(size, dtype, kind, products) + reference.bound(size, "float64", kind)
        reference.check(found, scaled, scale_of_errors, allowed, dtype, "chosen rows")
        assert bool(cp.isfinite(output).all()), "a row was not written, or is not finite"

    moved = int(rows.nbytes + output.nbytes)
    return Workload(
        calls[0],
        lambda: output.fill(np.nan),
        look,
        {"size": size, "batch": batch, "bytes_in_and_out": moved},
    )


def random_rows(batch: int, length: int, dtype: str, *, real: bool) -> Any:
    """Normally distributed rows in device memory: half precision complex numbers as pairs."""
    import cupy as cp

    kind = np.float64 if dtype == "float64" else np.float32
    values = cp.random.standard_normal((batch, length) if real else (batch, length, 2), kind).astype(dtype)
    if real or dtype == "float16":
        return values
    return values.view(np.complex128 if dtype == "float64" else np.complex64)[..., 0]


def _factors(callback: str, length: int) -> np.ndarray[Any, Any]:
    """Of a window or a scale; 1 for a callback that does not multiply."""
    random = np.random.default_rng()
    return random.uniform(0.5, 1.0, length if callback == "window" else 1) if callback != "identity" else np.ones(1)


def transport(family: KernelFamily, configuration: Mapping[str, str], scale: float, cells: int) -> Workload:
    """Particles in random materials; in a grid of so many cells each way, whose tallies are above the L2, or a slab.

    All forms must give the same integers; what the first says is absorbed is held against NumPy.
    """
    import cupy as cp

    from docs.examples.transport import Run, Tallies, device_arguments
    from tests.support import transport_reference
    from tests.support.transport_physics import agree, balanced, problem_of

    small, _ = problem_of(configuration)
    random = np.random.default_rng()
    slab = configuration["geometry_name"] == "slab"
    coarse = (100, 1, 1) if slab else (8, 8, 8)
    # No voids: an estimator by collisions sees nothing in them. Blocks of one material: for NumPy these are the cells.
    layout = random.integers(0, 2, coarse[::-1]) * 2
    size = (4.0, 1.0, 1.0) if slab else (4.0, 4.0, 4.0)
    like = replace(small, cells=coarse, size=size, layout=layout)
    if configuration["source_name"] == "point":
        like = replace(like, source_position=(2.1, 1.9, 2.2))
    times = 1 if slab else cells // 8
    problem = like
    if times > 1:
        fine = layout.repeat(times, 0).repeat(times, 1).repeat(times, 2)
        problem = replace(like, cells=(cells, cells, cells), layout=fine)
    run = Run(
        max(1000, int(200_000 * scale)), seed=int(random.integers(2**63)), batches=8,
        tally=configuration["tally_name"],
    )  # fmt: skip
    kernel = family.launcher(**configuration)
    block = 128
    grid = max(1, min(-(-run.particles // run.batches // block), 4 * kernel.max_blocks(block) // run.batches))
    values = device_arguments(problem, run)
    arguments = (cp.cuda.get_current_stream(), (grid, run.batches), block)
    call = Call(kernel, (*arguments, *(values[parameter.name] for parameter in kernel.signature)), {})
    first: list[Any] = []

    def poison() -> None:  # the kernel adds to what it finds
        values["flux"].fill(0)
        values["ledger"].fill(0)

    def look() -> None:
        flux, ledger = cp.asnumpy(values["flux"]), cp.asnumpy(values["ledger"])
        if first:
            assert (flux == first[0]).all(), f"{np.count_nonzero(flux != first[0])} fluxes differ"
            assert (ledger == first[1]).all(), "the ledgers differ"
            return
        first.extend((flux, ledger))
        tallies = balanced(Tallies.of(problem, run, flux, ledger))
        expected = transport_reference.simulate(like, 20_000, np.random.default_rng())
        agree("absorbed", tallies.balance["absorbed"], expected.absorbed)

    tally_bytes = int(values["flux"].nbytes)
    return Workload(
        call, poison, look,
        {"cells": list(problem.cells), "particles": run.particles, "batches": run.batches,
         "bytes_of_tallies": tally_bytes},
    )  # fmt: skip


MAKE: Mapping[str, Callable[[KernelFamily, Mapping[str, str], float, int], Workload]] = {
    "ivf_flat": ivf_flat,
    "fft": fft,
    "transport": transport,
}
#: Vectors; elements; cells in each direction. In earnest, and to try things out.
SIZES = {"ivf_flat": (1 << 20, 1 << 14), "fft": (1 << 26, 1 << 16), "transport": (128, 8)}
