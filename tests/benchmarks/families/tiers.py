"""Two tiers: first and further launches, beside LTO alone; launches during the exchange; size and time of builds.

First launches are measured from ``load`` to the driver having loaded the kernel, in fresh processes with empty caches
that have imported ``cuda.core``, made a context and collected garbage (what that import leaves due would fall into the
next one); further ones in the same processes; and the same where ``ivf_flat`` gets filters of three lines from its
caller, each once LTO has linked the one before. ``bare`` is the least that the fast tier can take: importing msgspec
and sqlite3, loading nvJitLink, linking the same cubins by its bindings, and loading the kernel. Where cuVS is
installed, its first searches of an index with each metric are beside them, and the second, in fresh processes too. The
timeline is of 2,000 launches of one kernel of ``ivf_flat`` from the first on, each of which the host waits for.
Throughput is that of launches of another kernel while LTO links, by that afterwards.
"""

import gc
import json
import pickle
import shutil
import statistics
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import jitlto
from jitlto.base.config import Config
from jitlto.base.events import Event, Kind
from jitlto.build.pipeline import build
from jitlto.cuda import toolkit
from jitlto.runtime.session import Session
from tests.benchmarks import script, svg
from tests.benchmarks.families.cases import CASES
from tests.benchmarks.families.databases import declared
from tests.benchmarks.families.workloads import MAKE, SIZES
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import Times, summaries
from tests.support.shipped import tiered

NAMES = ("search", "transport", "fft", "ivf_flat")
_LAUNCHES, _FURTHER = 2000, 12
_FILTER = """namespace ivf_flat {{
__device__ bool filter(uint32_t query, int64_t id, const void*) {{ return (id + query) % 10 != {}; }}
}}
"""
_CONTEXT = """
import cuda.core
device = cuda.core.Device(0)
device.set_current()
from cuda.bindings import driver
driver.cuMemAlloc(4096)
device.sync()
"""
_SCRIPT = (
    _CONTEXT
    + """
import gc, json, sys, time
from functools import partial
from jitlto import load
def prepare(source=None, **configuration):
    by_source = family.planner(**configuration).add_source(source).launcher if source else None
    return (by_source or partial(family.launcher, **configuration))().prepare()
first, *others = json.loads(sys.argv[3])
gc.collect()
begin = time.perf_counter()
family = load(sys.argv[2], sys.argv[1])
launcher = prepare(**first)
times, tier = [time.perf_counter() - begin], launcher.tier
for configuration in others:
    if "source" in configuration:
        launcher.wait()
    begin = time.perf_counter()
    launcher = prepare(**configuration)
    times.append(time.perf_counter() - begin)
print(json.dumps({"tier": tier, "times": [1000 * each for each in times]}))
"""
)
_BARE = (
    _CONTEXT
    + """
import ctypes, gc, json, pickle, sys, time
from pathlib import Path
library, kernels = sys.argv[1], pickle.loads(Path(sys.argv[2]).read_bytes())
gc.collect()
times = []
for flags, inputs, entry in kernels:
    begin = time.perf_counter()
    if not times:
        import msgspec, sqlite3
        ctypes.CDLL(library)
        from cuda.bindings import nvjitlink
    handle = nvjitlink.create(len(flags), flags)
    for data in inputs:
        nvjitlink.add_data(handle, nvjitlink.InputType.FATBIN, data, len(data), "input")
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    kernel = cuda.core.ObjectCode.from_cubin(bytes(cubin)).get_kernel(entry)
    driver.cuKernelGetFunction(int(kernel.handle))
    times.append(1000 * (time.perf_counter() - begin))
print(json.dumps(times))
"""
)
_PEER = """
import json, time
import cupy
from cuvs.common import Resources
from cuvs.neighbors import ivf_flat
resources = Resources()
data = cupy.random.standard_normal((20_000, 128), dtype=cupy.float32)
found = {}
for metric in ("sqeuclidean", "inner_product", "cosine"):
    index = ivf_flat.build(ivf_flat.IndexParams(n_lists=64, metric=metric), data, resources=resources)
    resources.sync()
    for which in ("first", "second"):
        begin = time.perf_counter()
        ivf_flat.search(ivf_flat.SearchParams(n_probes=8), index, data[:100], 10, resources=resources)
        resources.sync()
        found[f"{metric}, {which}"] = 1000 * (time.perf_counter() - begin)
print(json.dumps(found))
"""


def measure(options: Options) -> Result:
    """All families."""
    rows = [_measure(name, options) for name in NAMES]
    case = {parameter: value for parameter, value in CASES["ivf_flat"][1].items() if parameter != "filter_name"}
    filters = [case | {"source": _FILTER.format(n)} for n in range(_FURTHER)]
    own = _launches("ivf_flat", {"fast": filters, "lto": filters[:3]}, options)
    peer = {"cuvs_milliseconds": _peer(options)} if find_spec("cuvs") else {}
    return {"what": __doc__, "families": rows, "callers_filter": own, **peer, "timeline": _timeline(options)}


def _measure(name: str, options: Options) -> Result:
    builds = {side: _build(name, side, options.work) for side in ("plain", "tiered")}
    kernels = {tier: _kernels(name, options.work, count) for tier, count in (("fast", _FURTHER), ("lto", 2))}
    return {"family": name, "builds": builds} | _launches(name, kernels, options)


def _launches(name: str, kernels: dict[str, list[dict[str, str]]], options: Options) -> Result:
    """First and further launches of a family's kernels, which are given for each tier."""
    first: Times = {"fast": [], "lto": []}
    further: Times = {"fast": [], "lto": []}
    bare = _bare(name, kernels["fast"], options)
    place = options.work / "tiers"
    place.mkdir(exist_ok=True)
    for _ in range(2 if options.small else 9):
        for tier in ("fast", "lto"):
            shutil.rmtree(place / "cache", ignore_errors=True)
            own = script.installed(place) | {
                "JITLTO_CACHE_DIR": str(place / "cache"),
                "JITLTO_TIERED": str(int(tier == "fast")),
            }
            given = json.dumps(kernels[tier])
            found = script.answer(_SCRIPT, _path(name, "tiered", options.work), name, given, cwd=place, **own)
            assert found["tier"] == tier, f"{name}: {found['tier']} instead of {tier}"
            first[tier].append(found["times"][0])
            further[tier] += found["times"][1:]
        if bare:
            found = script.answer(_BARE, *bare, cwd=place)
            first.setdefault("bare", []).append(found[0])
            further.setdefault("bare", []).extend(found[1:])
    return {"first_milliseconds": summaries(first), "further_milliseconds": summaries(further)}


def _bare(name: str, kernels: list[dict[str, str]], options: Options) -> tuple[str, Path] | None:
    """Write what nvJitLink gets for each kernel in the fast tier; None where a source is to be compiled first."""
    if any("source" in each for each in kernels):
        return None
    family, made = jitlto.load(name, _path(name, "tiered", options.work)), []
    for configuration in kernels:
        plan = family.planner(**configuration).plan().fast
        assert plan is not None, f"{name}: {configuration} has no fast tier"
        options_of_link = [f"-arch={plan.target.sm}", *plan.flags]
        made.append((options_of_link, [plan.database.read(each) for each in plan.images], plan.entry.entry))
    path = options.work / f"{name}.bare"
    path.write_bytes(pickle.dumps(made))
    return toolkit.find_library("nvJitLink"), path


def _peer(options: Options) -> Result:
    """The first two searches of each metric by cuVS."""
    runs = [script.answer(_PEER, cwd=options.work) for _ in range(2 if options.small else 5)]
    return summaries({name: [run[name] for run in runs] for name in runs[0]})


def _path(name: str, side: str, work: Path) -> Path:
    return work / f"{name}_{side}.fragdb"


def _build(name: str, side: str, work: Path) -> Result:
    """Build a family with or without cubins for the device; nothing comes from a cache."""
    family = tiered(name) if side == "tiered" else declared(name)
    begin = time.perf_counter()
    path = build([family], _path(name, side, work), cache=None).path
    return {"side": side, "seconds": round(time.perf_counter() - begin, 2), "bytes": path.stat().st_size}


def _kernels(name: str, work: Path, count: int) -> list[dict[str, str]]:
    """A case of a family, and further kernels, far from each other in the order of its configurations."""
    family = jitlto.load(name, _path(name, "plain", work))
    every = list(family.configurations())
    return [CASES[name][1] if name in CASES else every[0], *islice(every, 1, None, max(1, len(every) // count))]


def _timeline(options: Options) -> Result:
    """2,000 launches of a kernel of ``ivf_flat``, and launches of another one meanwhile."""
    import cupy as cp

    name, case = "ivf_flat", CASES["ivf_flat"][1]
    path, events = _path(name, "tiered", options.work), dict[str, float]()
    work = MAKE[name](jitlto.load(name, path), case, 0.01, SIZES[name][1])
    session = Session(Config.read({"JITLTO_CACHE_DIR": str(options.work / "timeline")}))

    def note(event: Event) -> None:
        events[event.kind] = time.perf_counter()

    session.events.subscribe(note)
    family = jitlto.load(name, path, session=session)
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    host, kernel, at = [], [], []
    gc.disable()
    start = time.perf_counter()
    launch = work.call.by(family.launcher(**case))
    for _ in range(_LAUNCHES):
        begin.record()
        before = time.perf_counter()
        launch()
        after = time.perf_counter()
        end.record()
        end.synchronize()
        host.append(1e6 * (after - before))
        kernel.append(1e3 * cp.cuda.get_elapsed_time(begin, end))
        at.append(1e3 * (before - start))
    gc.enable()
    work.verify(family.launcher(**case))
    median = statistics.median(host)
    exchanged = 1e3 * (events[Kind.EXCHANGED] - start)
    late = [n for n, each in enumerate(host) if each > median + 50]
    return {
        "exchanged_at_milliseconds": round(exchanged, 2),
        "launches_before": sum(each < exchanged for each in at),
        "host_microseconds": {
            "median": round(median, 2),
            "largest": round(max(host[1:]), 2),
            "first": round(host[0], 2),
        },
        "above_median_by_50": [{"launch": n, "at": round(at[n], 2), "microseconds": round(host[n], 1)} for n in late],
        "kernel_microseconds": {
            tier: round(statistics.median(each), 2) if each else None
            for tier, each in (
                ("fast", [k for k, t in zip(kernel, at, strict=True) if t < exchanged]),
                ("lto", [k for k, t in zip(kernel, at, strict=True) if t > exchanged]),
            )
        },
        "throughput_while_lto_links": _throughput(options, work),
        "at_milliseconds": script.rounded(at, 3),
        "host": script.rounded(host, 2),
        "kernel": script.rounded(kernel, 2),
    }


def _throughput(options: Options, work: Any) -> Result:
    """Launches a second of one kernel while others are linked with LTO behind it, by those when nothing is."""
    import cupy as cp

    family = jitlto.load("ivf_flat", _path("ivf_flat", "tiered", options.work))
    launch = work.call.by(family.launcher(**CASES["ivf_flat"][1]).wait())
    ratios = []
    for number in range(2 if options.small else 9):
        session = Session(Config.read({"JITLTO_CACHE_DIR": str(options.work / f"throughput{number}")}))
        other = jitlto.load("ivf_flat", _path("ivf_flat", "tiered", options.work), session=session)
        waiting = other.launcher(**CASES["ivf_flat"][0])
        busy = _rate(launch, lambda w=waiting: w.tier == "fast", cp)
        waiting.wait()
        end = time.perf_counter() + busy[1]
        ratios.append(busy[0] / _rate(launch, lambda e=end: time.perf_counter() < e, cp)[0])
    return {"ratios": script.rounded(ratios, 3), "median": round(statistics.median(ratios), 3)}


def _rate(launch: Any, goes_on: Any, cp: Any) -> tuple[float, float]:
    """Launches a second while something holds, and the seconds."""
    begin, count = time.perf_counter(), 0
    while goes_on():
        launch()
        cp.cuda.get_current_stream().synchronize()
        count += 1
    taken = time.perf_counter() - begin
    return count / taken, taken


def plots(result: Result) -> dict[str, str]:
    """The timeline."""
    found = result["timeline"]
    series = {"host, µs a launch": found["host"], "kernel, µs": found["kernel"]}
    title, unit = "Launches of a kernel of ivf_flat from the first on", "ms since the kernel was asked for"
    return {"": svg.points(title, found["at_milliseconds"], series, unit, found["exchanged_at_milliseconds"])}
