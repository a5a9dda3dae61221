"""What a launch costs the host, and what the first one costs a process, against the peers in the same run.

python -m tests.benchmarks.launch --output docs/benchmarks/launch.json
python -m tests.benchmarks.launch --parts launch dispatch       # a minute

Needs a GPU. Launches are timed in bursts of 200, short enough that the launch queue never fills, synchronised outside
the timed part; every side is measured in every round, in turn; medians over rounds. Figures of cold processes are
medians over fresh processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cuda.core import Device

from jitlto.base import events
from jitlto.build.pipeline import build
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import bursts
from tests.benchmarks.installed import install
from tests.benchmarks.launch_sides import BASE, BASE_OF_EIGHT, BURST, EIGHT, Sides, find_extension, use_extension
from tests.benchmarks.machine import command_line, describe
from tests.support.families import write_family

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
COLD = """
import json, sys, time
times, begin = {}, time.perf_counter()
def lap(name):
    global begin
    now = time.perf_counter()
    times[name] = now - begin
    begin = now
import numpy
lap("import numpy, which cuda.core imports")
import cuda.core
lap("import cuda.core")
device = cuda.core.Device(0)
device.set_current()
from cuda.bindings import driver
buffer = int(driver.cuMemAlloc(4096)[1])
device.sync()
lap("context and memory")
IMPORT
lap("IMPORT")
family = LOAD(sys.argv[2], sys.argv[1])
lap("load")
launcher = family.launcher(**json.loads(sys.argv[3]))
lap("family.launcher")
launcher(None, 1, 32, buffer, buffer, 0)
lap("launch")
device.sync()
from jitlto.base import events
print(json.dumps({"times": times, "linked": events.counters()["linked"]}))
"""

# How a program may begin: the first loads the modules that find a kernel at once, the second when it asks for one.
IMPORTS = {"from jitlto import load": "load", "import jitlto": "jitlto.load"}


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--parts", nargs="+", metavar="PART", help="launch, dispatch, cold, overlap or link_overhead")
    options = parser.parse_args()
    # With a driver, nvJitLink keeps what it has linked, and would link nothing the second time.
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    Device(0).set_current()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        os.environ["JITLTO_CACHE_DIR"] = str(place / "cache")
        path = write_family(place / "family", FAMILY)
        database = build([declaration.load_family(path)], place / "axpy.fragdb").path
        eight = build([declaration.load_family(write_family(place / "eight", EIGHT))], place / "eight.fragdb").path
        kernels = KernelFamily("axpy", FragmentDatabase(database))
        parts: dict[str, Callable[[], object]] = {
            "launch": lambda: _launches(kernels, KernelFamily("eight", FragmentDatabase(eight)), place, options.rounds),
            "dispatch": lambda: _dispatch_both_ways(database, options.rounds),
            "cold": lambda: _cold(database, place),
            "overlap": lambda: _overlap(kernels),
            "link_overhead": lambda: {
                "one fragment, the smallest link": _link_overhead(kernels.plan(**_plain())),
                "a kernel of search and what it calls": _link_overhead(_search(place)),
            },
        }
        result = {"machine": describe(command_line())}
        result |= {name: part() for name, part in parts.items() if name in (options.parts or parts)}
        result["goals"] = _goals(result)
    for name, figures in result.items():
        print(name, json.dumps(figures, indent=1), flush=True)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _goals(result: dict[str, object]) -> dict[str, dict[str, float]]:
    """What was aimed at, beside what was measured: ratios to cuda.core.launch, and nanoseconds."""
    goals: dict[str, tuple[float, object]] = {}
    launches: Any = result.get("launch", {})
    ratios = launches.get("ratios to cuda.core.launch, median over rounds", {})
    for name, python, compiled in (
        ("CuPy arrays, stream of CuPy", 2.0, 0.90),
        ("PyTorch tensors, stream of PyTorch", 2.0, 0.90),
        ("Numba arrays, stream of Numba", 2.0, None),
    ):
        goals[name] = (python, ratios.get(f"jitlto, {name}"))
        if compiled is not None:
            goals[f"{name}, compiled"] = (compiled, ratios.get(f"jitlto, {name}, compiled"))
            more = f"ns for each further array: {name}, compiled"
            goals[more] = (60, launches.get(more))
    dispatch: Any = result.get("dispatch", {})
    for way, figures in dispatch.items():
        for what in ("dispatcher", "family_launcher"):
            goals[f"{what} above a launcher held, {way}: ns"] = (150, figures[f"{what}_above_a_launcher_held_ns"])
    return {name: {"goal": goal, "measured": found} for name, (goal, found) in goals.items() if found is not None}  # type: ignore[dict-item]


def _plain(**changed: str) -> dict[str, str]:
    return {"data_type": "float", "op": "add", "first": "false", "second": "false", "third": "false"} | changed


def _launches(kernels: KernelFamily, eight: KernelFamily, place: Path, rounds: int) -> dict[str, object]:
    sides = Sides(kernels.launcher(**_plain()), eight.launcher(), place)
    for _ in range(4):  # the fast path is generated at the second launch
        sides.check()
    times = bursts.in_turn(sides.sides, rounds, BURST, sides.whole)
    sides.check()
    figures: dict[str, object] = {name: bursts.figures(each) for name, each in times.items()}
    figures["ratios to cuda.core.launch, median over rounds"] = {
        name: round(statistics.median(a / b for a, b in zip(each, times[base], strict=True)), 3)
        for name, each in times.items()
        for base in [BASE_OF_EIGHT if " 8 " in name else BASE]
    }
    for what in ("CuPy arrays, stream of CuPy", "PyTorch tensors, stream of PyTorch"):
        for way in ("", ", compiled"):
            two, many = (f"jitlto, {count}{what}{way}" for count in ("", "8 "))
            if two in times and many in times:
                figures[f"ns for each further array: {what}{way}"] = _each_more(times[two], times[many])
    figures["ns for each further ready pointer"] = _each_more(times[BASE], times[BASE_OF_EIGHT])
    figures["missing"] = sides.missing | ({} if sides.has_compiled else {"compiled core": "not built"})
    return figures


def _each_more(two: list[float], eight: list[float]) -> float:
    return round(statistics.median(b - a for a, b in zip(two, eight, strict=True)) / 6, 1)


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
    named = dict(zip(choose.names, request, strict=True))
    held = kernels.launcher(**_plain())
    stream, x, y = Device(0).create_stream(), cp.zeros(1024, np.float32), cp.zeros(1024, np.float32)
    f32 = np.dtype(np.float32)
    for _ in range(3):
        kernels.launcher(data_type=t, op=op, first=one, second=two, third=three)
    times = bursts.in_turn(
        {
            "nothing": lambda: None,
            "cycling alone": lambda: next(values),
            "dispatcher": lambda: choose(*next(values)),
            "dispatcher, one variant": lambda: choose(t, op, one, two, three),
            "family.launcher": lambda: kernels.launcher(data_type=t, op=op, first=one, second=two, third=three),
            "family.launcher(**configuration)": lambda: kernels.launcher(**named),
            "a launcher held, launched": lambda: held(stream, 4, 256, x, y, 1024),
            "by the dispatcher, launched": lambda: choose(f32, "add", False, False, False)(stream, 4, 256, x, y, 1024),
            "by family.launcher, launched": lambda: kernels.launcher(
                data_type=f32, op="add", first=False, second=False, third=False
            )(stream, 4, 256, x, y, 1024),
        },
        rounds,
        BURST,
    )

    def above(name: str, base: str) -> float:
        return round(statistics.median(a - b for a, b in zip(times[name], times[base], strict=True)), 1)

    return {
        "variants": len(found),
        "dispatcher_ns": above("dispatcher", "cycling alone"),
        "dispatcher_one_variant_ns": above("dispatcher, one variant", "nothing"),
        "family_launcher_ns": above("family.launcher", "nothing"),
        "family_launcher_of_a_dict_ns": above("family.launcher(**configuration)", "nothing"),
        "dispatcher_above_a_launcher_held_ns": above("by the dispatcher, launched", "a launcher held, launched"),
        "family_launcher_above_a_launcher_held_ns": above("by family.launcher, launched", "a launcher held, launched"),
    }


def _cold(database: Path, place: Path) -> dict[str, object]:
    """Fresh processes: with an empty cache, and with a warm one. Modules are compiled, as pip leaves them."""
    installed = install(place)
    first, second = IMPORTS

    def run(cache: Path, statement: str) -> dict[str, object]:
        environment = os.environ | installed | {"JITLTO_CACHE_DIR": str(cache)}
        code = COLD.replace("IMPORT", statement).replace("LOAD", IMPORTS[statement])
        command = [sys.executable, "-c", code, str(database), "axpy", json.dumps(_plain())]
        done = subprocess.run(command, cwd=place, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    figures: dict[str, object] = {}
    run(place / "warm", first)  # files of the interpreter and the libraries are in the system's cache from now on
    for name, (statement, caches) in {
        "empty cache": (first, [place / f"empty{n}" for n in range(9)]),
        "warm cache": (first, [place / "warm"] * 25),
        f"warm cache, {second}": (second, [place / "warm"] * 25),
    }.items():
        answers = [run(cache, statement) for cache in caches]
        laps = list(answers[0]["times"])  # type: ignore[call-overload]
        medians = {lap: statistics.median(a["times"][lap] for a in answers) for lap in laps}  # type: ignore[index]
        called = [1000 * sum(list(a["times"].values())[4:]) for a in answers]  # type: ignore[attr-defined]
        with_import = [1000 * sum(list(a["times"].values())[3:]) for a in answers]  # type: ignore[attr-defined]
        low, middle, high = statistics.quantiles(called, n=4)
        figures[name] = {
            "milliseconds": {lap: round(1000 * seconds, 2) for lap, seconds in medians.items()},
            "first_call_to_launched_milliseconds": round(middle, 2),
            "quartiles": [round(low, 2), round(high, 2)],
            "with_import_jitlto_milliseconds": round(statistics.median(with_import), 2),
            "links": [a["linked"] for a in answers],
        }
    return figures


def _overlap(kernels: KernelFamily) -> dict[str, object]:
    """Eight different plans, linked one after the other and in threads."""
    plans = [
        kernels.plan(**_plain(data_type=t, op=op, third="true")) for t in ("float", "double") for op in ("add", "mul")
    ]
    plans += [plan.for_arch("sm_80") for plan in plans]
    plans[0].link(use_cache=False)
    serial, together = [], []
    for _ in range(5):
        begin = time.perf_counter()
        for plan in plans:
            plan.link(use_cache=False)
        serial.append(time.perf_counter() - begin)
        with ThreadPoolExecutor(8) as pool:
            begin = time.perf_counter()
            list(pool.map(partial(Plan.link, use_cache=False), plans))
            together.append(time.perf_counter() - begin)
    return {
        "plans": len(plans),
        "one_after_the_other_ms": round(1000 * statistics.median(serial), 1),
        "in_8_threads_ms": round(1000 * statistics.median(together), 1),
        "speed_up": round(statistics.median(serial) / statistics.median(together), 2),
    }


def _search(place: Path) -> Plan:
    """A plan of the shipped family ``search``."""
    database = build([declaration.load_family(declaration.find_family("search"))], place / "search.fragdb").path
    search = KernelFamily("search", FragmentDatabase(database))
    return search.plan(**next(search.configurations()))


def _link_overhead(plan: Plan, rounds: int = 101) -> dict[str, object]:
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

    same = bare() == plan.link(use_cache=False).cubin
    sides: list[tuple[str, Callable[[], object]]] = [("ours", partial(plan.link, use_cache=False)), ("bare", bare)]
    times: dict[str, list[float]] = {name: [] for name, _ in sides}
    for _ in range(rounds):
        for name, link in sides:
            begin = time.perf_counter()
            link()
            times[name].append(time.perf_counter() - begin)
        sides.reverse()  # neither is always the one that comes first
    ratios = [a / b for a, b in zip(times["ours"], times["bare"], strict=True)]
    return {
        "same_cubin": same,
        "bare_ms": round(1000 * statistics.median(times["bare"]), 2),
        "ours_ms": round(1000 * statistics.median(times["ours"]), 2),
        "median_ratio": round(statistics.median(ratios), 3),
        "links_counted": events.counters()["linked"],
    }


if __name__ == "__main__":
    main()
