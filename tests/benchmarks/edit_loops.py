"""From the edit of a kernel's source until the kernel can be launched again: sources loaded by jitlto, and peers.

python -m tests.benchmarks.edit_loops --output docs/benchmarks/edit_loops.json

A kernel of the shipped family `search` is edited, so that it means something else, in one place a round: a header of a
device function or of the kernel, a template, a matrix. Times are those of `launcher()`; without a GPU, of `plan()` and
`link()` for sm_90. `compiler` is NVRTC alone, in the process that waits for it, on the source that the edit concerns.
Beside it, where CuPy and a GPU, or PyTorch and nvcc are there: `cupy.RawModule` and
`torch.utils.cpp_extension.load_inline` of the same kernel as one source, after the edit of a header. Seconds.
"""

import importlib.util
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jitlto
from jitlto.base.errors import NoDeviceError
from jitlto.build.execution.transport import compile_job
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cuda import device
from jitlto.families.declaration import load_family
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import seconds
from tests.support.process import ROOT

KERNEL = {
    "data_type": "float", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": "4",
    "distance_name": "euclidean", "filter_name": "filter_none",
}  # fmt: skip
SEARCH = "fragments/search"
#: By what is edited: the file, a text in it, and what takes its place in a round.
EDITS: dict[str, tuple[str, str, Callable[[int], str]]] = {
    "device header": (f"{SEARCH}/compute_distance_euclidean.cuh", "return diff", lambda n: f"return {n}.5f + diff"),
    "kernel header": (f"{SEARCH}/search_optimized.cuh", "sums[r] = 0;", lambda n: f"sums[r] = {n + 1};"),
    "template": ("templates/search/compute_distance.cu.jinja", "\nnam", lambda n: f"\n__device__ int i{n};\nnam"),
    "matrix": ("matrices/search/compute_distance.json", "__half", lambda n: ("__half", "double")[n % 2]),
    "nothing": ("matrices/search/compute_distance.json", "", lambda _: ""),
}  # fmt: skip


def measure(options: Options) -> Result:
    script.use_cores(options.cores)
    place = options.place / "sources"
    for folder in ("fragments", "matrices", "templates"):
        shutil.copytree(ROOT / folder / "search", place / folder / "search")
    family = jitlto.load(place / "fragments" / "search")
    try:
        has_device = bool(device.current())
    except NoDeviceError:
        has_device = False

    def ready() -> None:
        if has_device:
            family.launcher(**KERNEL)
        else:
            family.plan(arch="sm_90", **KERNEL).link()

    result: Result = {"cores": options.cores, "device": has_device, "first": round(seconds(ready), 3)}
    result["jitlto"] = {name: loop(place, name, ready, options.rounds) for name in EDITS}
    result["compiler"] = {
        group: compiler_alone(place, group, options.rounds) for group in ("compute_distance", "search_kernel")
    }
    source = one_source(place)
    if has_device and importlib.util.find_spec("cupy"):
        result["cupy.RawModule"] = peer(raw_module, source, place, options.rounds)
    if has_device and importlib.util.find_spec("torch") and shutil.which("nvcc"):
        result["load_inline"] = peer(load_inline, source, place, 1)  # a minute each
    return result


def loop(place: Path, name: str, ready: Callable[[], None], rounds: int) -> Result:
    file, old, new = EDITS[name]
    text, times = (place / file).read_text(), []
    assert old in text
    for number in range(rounds) if name != "nothing" else ():
        (place / file).write_text(text.replace(old, new(number), 1))
        times.append(seconds(ready))
    return summary(times or [seconds(ready) for _ in range(rounds)])


def summary(times: list[float]) -> Result:
    return {"median": round(statistics.median(times), 5), "least": round(min(times), 5), "rounds": len(times)}


def compiler_alone(place: Path, group: str, rounds: int) -> Result:
    """The time of NVRTC for what an edit of a group's header compiles again."""
    rendered = RenderedFamilies([load_family(place / "fragments" / "search" / "family.toml")])
    request = next(
        r for r in rendered.requests if r.key.group == group and r.key.parameters == chosen(r.key.parameters)
    )
    times = [compile_job(request.job()).seconds for _ in range(rounds + 1)]
    return summary(times[1:])  # the first loads NVRTC


def chosen(parameters: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, KERNEL[name]) for name, _ in parameters)


def one_source(place: Path) -> str:
    """What the kernel is made of, in one source."""
    rendered = RenderedFamilies([load_family(place / "fragments" / "search" / "family.toml")]).rendered
    return "\n".join(each.text for each in rendered if each.key.parameters == chosen(each.key.parameters))


def peer(make: Callable[[str, Path, int], object], source: str, place: Path, rounds: int) -> Result:
    make(source, place, -1)
    times = []
    for number in range(rounds):
        begin = time.perf_counter()
        make(f"{source}\n__device__ int jitlto_peer_{number};\n", place, number)
        times.append(time.perf_counter() - begin)
    return summary(times)


def raw_module(source: str, place: Path, number: int) -> object:
    import cupy as cp

    options = ("-std=c++17", f"-I{place / 'fragments' / 'search'}")
    module = cp.RawModule(code=source, options=options, backend="nvrtc")
    module.compile()
    return module


def load_inline(source: str, place: Path, number: int) -> object:
    from torch.utils.cpp_extension import load_inline

    return load_inline(
        f"jitlto_peer_{number + 1}",
        "int ready();",
        f"{source}\nint ready() {{ return 0; }}\n",
        functions=["ready"],
        extra_include_paths=[str(place / "fragments" / "search")],
        build_directory=str(place),
    )


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=7, cores=2)
