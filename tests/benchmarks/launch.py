"""What a launch costs the host, against the peers in the same run.

python -m tests.benchmarks.launch --output docs/benchmarks/launch.json
python -m tests.benchmarks.launch --parts launch dispatch       # a minute

Needs a GPU. Launches are timed in bursts of 200, short enough that the launch queue never fills, synchronised outside
the timed part; every side is measured in every round, in turn; medians over rounds, in nanoseconds.
"""

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from cuda.core import Device

from jitlto.build.pipeline import build
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import script
from tests.benchmarks.launch_sides import BASE, BASE_OF_EIGHT, BURST, EIGHT, Sides, find_extension, use_extension
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import beyond, in_bursts, in_turn, ratio, seconds, summaries
from tests.support.families import built

PARTS = ["launch", "dispatch", "overlap", "link_overhead"]
# 96 variants of a kernel of three arguments: 4 types, 3 operations, 8 sets of flags.
FAMILY = {
    "family.toml": """
[family]
name = "axpy"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type", "op", "first", "second", "third"]
params = ["const {{data_type}}* x", "{{data_type}}* y", "unsigned n"]
""",
    "kern.json": json.dumps(
        {
            "data_type": ["float", "double", "int", "unsigned"],
            "_op": [{"op": "add", "sign": "+"}, {"op": "sub", "sign": "-"}, {"op": "mul", "sign": "*"}],
            "first": ["false", "true"],
            "second": ["false", "true"],
            "third": ["false", "true"],
        }
    ),
    "kern.cu.jinja": """
template <typename T, bool A, bool B, bool C>
__global__ void kern_{{op}}(const T* x, T* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(x[i] {{sign}} T(3)) + (A ? T(1) : T(0)) + (B ? T(2) : T(0)) + (C ? T(4) : T(0));
}
template __global__ void kern_{{op}}<{{data_type}}, {{first}}, {{second}}, {{third}}>(
    const {{data_type}}*, {{data_type}}*, unsigned);
""",
}


def measure(options: Options) -> Result:
    Device(0).set_current()
    place: Path = options.place
    kernels = built(place / "axpy", FAMILY, "axpy")
    parts: dict[str, Callable[[], object]] = {
        "launch": lambda: _launches(kernels, built(place / "eight", EIGHT, "eight"), place, options.rounds),
        "dispatch": lambda: _dispatch_both_ways(kernels.database.path, options.rounds),
        "overlap": lambda: _overlap(kernels),
        "link_overhead": lambda: {
            "one fragment, the smallest link": _link_overhead(kernels.plan(**_plain())),
            "a kernel of search and what it calls": _link_overhead(_search(place)),
        },
    }
    return {name: parts[name]() for name in options.parts}


def _plain(**changed: str) -> dict[str, str]:
    return {"data_type": "float", "op": "add", "first": "false", "second": "false", "third": "false"} | changed


def _launches(kernels: KernelFamily, eight: KernelFamily, place: Path, rounds: int) -> dict[str, object]:
    sides = Sides(kernels.launcher(**_plain()), eight.launcher(), place)
    for _ in range(4):  # the fast path is generated at the second launch
        sides.check()
    times = in_bursts(sides.sides, rounds, BURST, sides.whole)
    sides.check()
    ratios = {name: ratio(times, name, BASE_OF_EIGHT if " 8 " in name else BASE) for name in times}
    return {
        "nanoseconds": summaries(times),
        "ratios to cuda.core.launch, median over rounds": ratios,
        "missing": sides.missing,
    }


def _dispatch_both_ways(database: Path, rounds: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    for way, extension in (("python", None), ("compiled", find_extension())):
        if extension is not None or way == "python":
            with use_extension(extension):
                figures[way] = _dispatch(KernelFamily("axpy", FragmentDatabase(database)), rounds)
    return figures


def _dispatch(kernels: KernelFamily, rounds: int) -> dict[str, object]:
    """Choosing among 96 variants by dtype, operation and flags."""
    choose = kernels.dispatcher("data_type", "op", "first", "second", "third")
    types = [np.dtype(t) for t in (np.float32, np.float64, np.int32, np.uint32)]
    flags = list(itertools.product((False, True), repeat=3))
    requests = [(t, op, *f) for t in types for op in ("add", "sub", "mul") for f in flags]
    found = {id(choose(*request)) for request in requests}
    values = itertools.cycle(requests)
    request = requests[37]
    t, op, one, two, three = request
    for _ in range(3):
        kernels.launcher(data_type=t, op=op, first=one, second=two, third=three)
    sides: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "cycling alone": lambda: next(values),
        "dispatcher": lambda: choose(*next(values)),
        "family.launcher": lambda: kernels.launcher(data_type=t, op=op, first=one, second=two, third=three),
    }
    times = in_bursts(sides, rounds, BURST)
    return {
        "variants": len(found),
        "dispatcher_ns": beyond(times, "dispatcher", "cycling alone"),
        "family_launcher_ns": beyond(times, "family.launcher", "nothing"),
    }


def _overlap(kernels: KernelFamily) -> dict[str, object]:
    """Eight different plans, linked one after the other and in threads."""
    plans = [
        kernels.plan(**_plain(data_type=t, op=op, third="true")) for t in ("float", "double") for op in ("add", "mul")
    ]
    plans += [plan.for_arch("sm_80") for plan in plans]
    plans[0].link(use_cache=False)
    with ThreadPoolExecutor(8) as pool:
        link = partial(Plan.link, use_cache=False)
        sides = {"one after the other": lambda: list(map(link, plans)), "threads": lambda: list(pool.map(link, plans))}
        times = in_turn(sides, 5, seconds)
    return {
        "plans": len(plans),
        "seconds": summaries(times),
        "speed_up": ratio(times, "one after the other", "threads"),
    }


def _search(place: Path) -> Plan:
    """A plan of the shipped family ``search``."""
    database = build([declaration.load_family(declaration.find_family("search"))], place / "search.fragdb").path
    search = KernelFamily("search", FragmentDatabase(database))
    return search.plan(**next(search.configurations()))


def _link_overhead(plan: Plan) -> dict[str, object]:
    """Our link against nvJitLink's calls alone, on the same inputs."""
    nvjitlink = toolkit.bindings("nvjitlink")
    inputs = [plan.database.read(image) for image in plan.images]
    flags = [f"-arch={plan.target.sm}", *plan.flags]

    def bare() -> bytes:
        handle = nvjitlink.create(len(flags), flags)
        for data in inputs:
            nvjitlink.add_data(handle, nvjitlink.InputType.FATBIN, data, len(data), "x")
        nvjitlink.complete(handle)
        buffer = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, buffer)
        nvjitlink.destroy(handle)
        return bytes(buffer)

    sides: dict[str, Callable[[], object]] = {"ours": partial(plan.link, use_cache=False), "bare": bare}
    same = bare() == plan.link(use_cache=False).cubin
    times = in_turn(sides, 101, seconds)
    return {"same_cubin": same, "seconds": summaries(times), "ours/bare": ratio(times, "ours", "bare")}


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=60, parts=PARTS)
