"""What it saves to fuse element-wise operations of ``torch.compile`` into kernels of families.

python -m tests.benchmarks.fusion --output docs/benchmarks/fusion.json

Needs a GPU and PyTorch; takes some ten minutes. Device time of calls in captured graphs, in turn, medians over rounds:
``fused`` is ``torch.compile`` with the pass, ``unfused`` without it, ``eager`` no compiler, and the others are what
PyTorch has of its own, compiled too. Inputs are rotated so that a call does not find them in the cache. ``numbers`` are
random chains, of which each is computed by the printed function, by Inductor and in double; ``cost`` is what a chain
adds to the first call. Kernels are linked with LTO before they are timed.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch._inductor.decomposition

import jitlto
from docs.examples.operators import declare_inverse, declare_segment_reduce, declare_transform
from jitlto.build.pipeline import build
from jitlto.families.declaration import find_family, load_family
from jitlto.frameworks.functions import PRELUDE
from tests.benchmarks import script, svg
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, ratio, summaries
from tests.support.chains import element_operator, make_chain, make_kernel, printed
from tests.support.shipped import tiered

CALLS = 8  # in a captured graph, each with inputs of its own
BYTES = 1 << 28  # of the larger side of transforms
F = torch.nn.functional
_FAMILIES = ("fft", "segment_reduce")


def measure(options: Options) -> Result:
    """Measure the parts that are asked for."""
    torch._dynamo.config.recompile_limit = 10_000
    families = {name: _load(options.place, name) for name in _FAMILIES}
    transform = jitlto.torch_operator(declare_transform(families["fft"]))
    inverse = jitlto.torch_operator(declare_inverse(families["fft"]))
    reduce = jitlto.torch_operator(declare_segment_reduce(families["segment_reduce"]))
    parts = {
        "shapes": lambda: measure_shapes(transform, inverse, reduce, options),
        "cost": lambda: measure_cost(options.place),
        "numbers": lambda: measure_numbers(options.chains),
    }
    return {name: part() for name, part in parts.items() if name in options.parts}


def _load(place: Path, name: str) -> Any:
    return jitlto.load(name, build([load_family(find_family(name))], place / f"{name}.fragdb").path)


# --- shapes ---


def measure_shapes(transform: Any, inverse: Any, reduce: Any, options: Options) -> Result:
    """Device time of each problem on each side, in milliseconds."""
    found: Result = {}
    for name, case in {**_transforms(transform, inverse), **_reductions(reduce)}.items():
        if options.only not in name:
            continue
        sides, inputs, moved = case()
        made = {side: _captured(function, inputs) for side, function in sides.items()}
        times = in_turn(
            {side: replay for side, (replay, _) in made.items()}, options.rounds, _graph_milliseconds, warm=2
        )
        others = [side for side in times if side not in ("fused", "unfused", "eager")]
        best = min(others, key=lambda side: sorted(times[side])[len(times[side]) // 2], default=None)
        found[name] = {
            "bytes": moved,
            "kernels": {side: kernels for side, (_, kernels) in made.items()},
            "milliseconds": summaries(times),
            "of_unfused": round(ratio(times, "unfused", "fused"), 3),
            "of_eager": round(ratio(times, "eager", "fused"), 3),
            "best": best,
            "of_best": round(ratio(times, best, "fused"), 3) if best else None,
        }
        print(
            name,
            {key: found[name][key] for key in ("kernels", "of_unfused", "of_eager", "best", "of_best")},
            flush=True,
        )
        print(found[name]["milliseconds"]["fused"]["median"], flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    ratios = [each["of_unfused"] for each in found.values()]
    return {"problems": found, "count": len(ratios), "slowest_of_unfused": min(ratios)}


def _graph_milliseconds(replay: Callable[[], object]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / CALLS


def _captured(function: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> tuple[Callable[[], None], int]:
    """Capture calls with all inputs; return the replay, and the kernels of one call."""
    for given in inputs[:2]:
        function(*given)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function(*inputs[0])
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    kernels = sum(event.device_type == device and "Mem" not in event.name for event in profile.events())
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(*inputs[0])
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for number in range(CALLS):
            function(*inputs[number % len(inputs)])
    return graph.replay, kernels


def _compiled(function: Callable[..., Any], *, fused: bool) -> Callable[..., Any]:
    options = {"post_grad_custom_post_pass": jitlto.torch_fusion()} if fused else {}
    return torch.compile(function, fullgraph=True, dynamic=False, options=options)


def _sides(function: Callable[..., Any], **others: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "fused": _compiled(function, fused=True),
        "unfused": _compiled(function, fused=False),
        "eager": function,
        **{name: _compiled(other, fused=False) for name, other in others.items()},
    }


def _transforms(transform: Any, inverse: Any) -> dict[str, Callable[[], Any]]:
    def scaled(size: int, batch: int) -> Any:
        x = _several(lambda: torch.randn(batch, size, dtype=torch.complex64, device="cuda"), 8 * size * batch)
        sides = _sides(
            lambda x: transform(x, "forward") * 0.5,
            cufft=lambda x: torch.fft.fft(x) * 0.5,
        )
        return sides, [(each,) for each in x], {"fused": 16 * size * batch, "unfused": 32 * size * batch}

    def real(size: int, batch: int, activation: Callable[[Any], Any] = F.gelu) -> Any:
        half = size // 2 + 1
        y = _several(lambda: torch.randn(batch, half, dtype=torch.complex64, device="cuda"), 8 * half * batch)
        sides = _sides(
            lambda y: activation(inverse(y) * 0.01).to(torch.bfloat16),
            cufft=lambda y: activation(torch.fft.irfft(y, norm="forward") * 0.01).to(torch.bfloat16),
        )
        moved = {"fused": (8 * half + 2 * size) * batch, "unfused": (8 * half + 10 * size) * batch}
        return sides, [(each,) for each in y], moved

    found: dict[str, Callable[[], Any]] = {}
    for power in (4, 6, 7, 8, 9, 10, 11, 12, 13):
        size = 1 << power
        found[f"fft {size} x {BYTES // 8 // size}, scale"] = partial(scaled, size, BYTES // 8 // size)
        inverse_name = f"irfft {size} x {BYTES // 4 // size}, scale, {{}}, bf16"
        found[inverse_name.format("GELU")] = partial(real, size, BYTES // 4 // size)
        if power in (4, 7, 10, 13):  # memory bounds it, and not the 24 instructions of a GELU
            found[inverse_name.format("ReLU")] = partial(real, size, BYTES // 4 // size, torch.relu)
    for size, batch in ((256, 64), (1024, 1), (4096, 128)):
        found[f"fft {size} x {batch}, scale"] = partial(scaled, size, batch)
        found[f"irfft {size} x {batch}, scale, GELU, bf16"] = partial(real, size, batch)
    return found


def _several(make: Callable[[], Any], size: int) -> list[Any]:
    """Make so many inputs that a call does not find them in the cache."""
    return [make() for _ in range(max(1, min(CALLS, (1 << 28) // max(1, size))))]


def _reductions(reduce: Any) -> dict[str, Callable[[], Any]]:
    def graph(kind: str) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(1)
        lengths = torch.full((100_000,), 16)
        if kind == "long":
            lengths = torch.full((2_667,), 600)
        if kind == "skewed":
            lengths = torch.full((200_000,), 5)
            lengths[torch.randperm(200_000, generator=generator)[:50]] = 10_000
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        offsets[1:] = lengths.cumsum(0)
        nodes = len(lengths)
        return offsets.cuda(), torch.randint(0, nodes, (int(offsets[-1]),), generator=generator).cuda()

    def case(kind: str, width: int, dtype: Any, how: str, relu: bool) -> Any:
        offsets, index = graph(kind)
        rows, count = len(offsets) - 1, len(index)
        x, bias = torch.randn(rows, width, device="cuda", dtype=dtype), torch.randn(width, device="cuda", dtype=dtype)
        weight = torch.rand(count, device="cuda", dtype=dtype)
        owner = torch.repeat_interleave(torch.arange(rows, device="cuda"), offsets.diff())
        act = torch.relu if relu else lambda v: v

        def function(x: Any, weight: Any, bias: Any) -> Any:
            return F.gelu(reduce(act(x[index] * weight[:, None]), offsets, how) + bias)

        def segment(x: Any, weight: Any, bias: Any) -> Any:
            messages = act(x[index] * weight[:, None])
            return F.gelu(torch.segment_reduce(messages, how, offsets=offsets, axis=0) + bias)

        def scatter(x: Any, weight: Any, bias: Any) -> Any:
            messages = act(x[index] * weight[:, None])
            if how == "sum":
                made = torch.zeros_like(x).index_add(0, owner, messages)
            else:
                kind_ = {"mean": "mean", "max": "amax"}[how]
                made = torch.zeros_like(x).scatter_reduce(
                    0, owner[:, None].expand_as(messages), messages, kind_, include_self=False
                )
            return F.gelu(made + bias)

        others: dict[str, Any] = {"index_add" if how == "sum" else "scatter_reduce": scatter}
        if dtype == torch.float32:
            others["segment_reduce"] = segment
        if not relu and how == "sum":
            others["EmbeddingBag"] = lambda x, weight, bias: F.gelu(
                F.embedding_bag(index, x, offsets[:-1], mode="sum", per_sample_weights=weight) + bias
            )
        sides = _sides(function, **others)
        if not relu and how == "sum" and dtype == torch.float32:
            sides["sparse.mm"] = lambda x, weight, bias: F.gelu(
                torch.sparse.mm(torch.sparse_csr_tensor(offsets, index, weight, (rows, rows)), x) + bias
            )
        size = x.element_size()
        moved = {"fused": count * (width * size + 8 + size) + rows * width * size,
                 "unfused": count * (3 * width * size + 8 + size) + 3 * rows * width * size}  # fmt: skip
        return sides, [(x, weight, bias)], moved

    found: dict[str, Callable[[], Any]] = {}
    for width, dtype in ((32, torch.float32), (128, torch.float32), (8, torch.bfloat16)):
        name = f"long rows x {width} {str(dtype)[6:]}, gather, weight, ReLU, sum, bias, GELU"
        found[name] = partial(case, "long", width, dtype, "sum", True)
    for kind in ("regular", "skewed"):
        for width in (32, 64, 128, 256, 100):
            for dtype in (torch.float32, torch.bfloat16):
                name = f"{kind} graph x {width} {str(dtype)[6:]}, gather, weight, ReLU, sum, bias, GELU"
                found[name] = partial(case, kind, width, dtype, "sum", True)
        name = f"{kind} graph x 128 float32, gather, weight, {{}}, bias, GELU"
        found[name.format("sum")] = partial(case, kind, 128, torch.float32, "sum", False)
        found[name.format("ReLU, max")] = partial(case, kind, 128, torch.float32, "max", True)
        found[name.format("ReLU, mean")] = partial(case, kind, 128, torch.bfloat16, "mean", True)
    return found


# --- costs ---


def measure_cost(place: Path) -> Result:
    """Host time of the first calls with a chain, in milliseconds: new ones, and known ones.

    The families are built with cubins, so that the first call does not wait for the link with LTO.
    """
    families = {name: jitlto.load(name, build([tiered(name)], place / f"{name}.tiers").path) for name in _FAMILIES}
    inverse = jitlto.torch_operator(replace(declare_inverse(families["fft"]), qualname="jitlto_benchmark::inverse"))
    declared = declare_segment_reduce(families["segment_reduce"])
    reduce = jitlto.torch_operator(replace(declared, qualname="jitlto_benchmark::reduce"))
    y = torch.randn(64, 513, dtype=torch.complex64, device="cuda")
    x, offsets = torch.randn(1000, 128, device="cuda"), torch.arange(0, 1001, 10, device="cuda")
    calls: dict[str, tuple[Callable[[float], Callable[..., Any]], tuple[Any, ...]]] = {
        "irfft": (lambda number: lambda y: F.gelu(inverse(y) * number), (y,)),
        "segment_reduce": (lambda number: lambda x, o: reduce(torch.relu(x * number), o, "sum"), (x, offsets)),
    }
    found: Result = {}
    for name, (make, given) in calls.items():
        make(1.0)(*given)  # the kernel without a function
        _first_call(make(0.125), given)  # whatever is loaded once
        new = [_first_call(make(1 + number / 64), given) for number in range(9)]
        known = [_first_call(make(1 + number / 64), given, pause=0) for number in range(9)]
        found[name] = {"new": sorted(new)[4], "known": sorted(known)[4], "all_new": sorted(new)}
    return found


def _first_call(function: Callable[..., Any], given: tuple[Any, ...], pause: float = 2) -> float:
    """The time from the traced graph to the end of the first call, some seconds after the call before."""
    traced = torch.fx.experimental.proxy_tensor.make_fx(
        function, tracing_mode="fake", decomposition_table=torch._inductor.decomposition.select_decomp_table()
    )(*given)
    torch.cuda.synchronize()
    time.sleep(pause)  # for what is linked behind the call before
    begin = time.perf_counter()
    jitlto.torch_fusion()(traced.graph)
    traced.recompile()
    traced(*given)
    torch.cuda.synchronize()
    return round(1000 * (time.perf_counter() - begin), 2)


# --- numbers ---


def measure_numbers(chains: int) -> Result:
    """How far printed functions are from double, beside Inductor's: in units in the last place of the result."""
    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        groups = list(pool.map(_numbers, [range(n, min(chains, n + 50)) for n in range(0, chains, 50)]))
    worse = [each for group in groups for each in group.pop("chains_worse")]
    total = {name: sum(group[name] for group in groups) for name in groups[0]}
    return {**total, "chains_worse": len(worse), "worst_chains": sorted(worse, key=lambda each: -each["elements"])[:20]}


def _numbers(seeds: range) -> Result:
    """The same of some chains, which Inductor compiles together."""
    import cupy as cp

    count = 4096
    generator = torch.Generator(device="cuda").manual_seed(3)
    wide = torch.randn(2, count, generator=generator, device="cuda", dtype=torch.float64) * 3
    element = jitlto.torch_operator(element_operator())
    found: Result = {"chains": 0, "not_fused": 0, "elements": 0, "equal": 0, "within_1_ulp": 0, "worse_by_1_ulp": 0,
                     "better_by_1_ulp": 0, "chains_worse": []}  # fmt: skip
    made = [make_chain(seed) for seed in seeds]
    inputs = [tuple(each.to(getattr(torch, dtype)) for each in wide) for _, dtype, _ in made]
    functions = [function for function, *_ in made]

    def together(all_: Any, functions: Any = functions) -> Any:
        return [function(*given) for function, given in zip(functions, all_, strict=True)]

    inductor = torch.compile(together, dynamic=False)(inputs)
    texts = [printed(element, function, *given) for function, given in zip(functions, inputs, strict=True)]
    kernels = [
        _kernel(text, number, str(given[0].dtype)[6:])
        for number, (text, given) in enumerate(zip(texts, inputs, strict=True))
        if text
    ]
    module = cp.RawModule(code=PRELUDE + "".join(kernels), options=("-std=c++17",))
    for number, (function, given, theirs) in enumerate(zip(functions, inputs, inductor, strict=True)):
        found["chains"] += 1
        if not texts[number]:
            found["not_fused"] += 1
            continue
        ours = torch.empty_like(theirs)
        pointers = tuple(cp.int64(each.data_ptr()) for each in (*given, ours))
        module.get_function(f"k{number}")((16,), (256,), pointers)
        torch.cuda.synchronize()
        exact = function(*(each.double() for each in given)).to(ours.dtype)
        between, own, other = _units(ours, theirs), _units(ours, exact), _units(theirs, exact)
        found["elements"] += count
        found["equal"] += int((between == 0).sum())
        found["within_1_ulp"] += int((between <= 1).sum())
        found["better_by_1_ulp"] += int((other > own + 1).sum())
        worse = (own > other + 1) & (between > 1)
        found["worse_by_1_ulp"] += int(worse.sum())
        if worse.any():
            place = int(worse.to(torch.int8).argmax())
            example = [float(each[place]) for each in (*given, ours, theirs, exact)]
            found["chains_worse"].append({"seed": seeds[number], "elements": int(worse.sum()), "example": example})
    torch._dynamo.reset()
    return found


def _kernel(text: str, number: int, dtype: str) -> str:
    head = f'extern "C" __global__ void k{number}(const void* v, void* w, void* output)'
    index = "const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;"
    return make_kernel(text, number, dtype, head, index)


def _units(one: Any, other: Any) -> Any:
    """The distance of numbers in units in the last place of the second; 0 where both are NaN."""
    info, wide, base = torch.finfo(other.dtype), one.double(), other.double()
    ulp = torch.exp2(torch.floor(torch.log2(base.abs().clamp(min=info.tiny)))) * info.eps
    apart = (wide - base).abs() / ulp
    apart = torch.where((wide == base) | (wide.isnan() & base.isnan()), 0.0, apart)
    return apart.nan_to_num(nan=1e9, posinf=1e9)


def plot(result: Result) -> Mapping[str, str]:
    """Draw how many times as fast the fused kernels are."""
    sides = ("unfused torch.compile", "best of PyTorch's own")
    groups = []
    for name, each in result.get("shapes", {}).get("problems", {}).items():
        if "x 128" in name or name.split()[1] in ("64", "1024", "8192"):
            times = each["milliseconds"]
            values = [svg.Value.faster(times, "fused", side) for side in ("unfused", each["best"]) if side]
            groups.append(svg.Group(name, values))
    title = "Fused into the kernel: times as fast as without"
    return {"": svg.bars(title, sides, groups, "times as fast", reference=1.0)} if groups else {}


if __name__ == "__main__":
    script.run(__doc__, measure, plot, rounds=15, chains=2000, only="", parts=["shapes", "cost", "numbers"])
