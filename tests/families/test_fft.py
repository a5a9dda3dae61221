"""The family ``fft``: every kernel plans, all pairs of values link, and a caller's callbacks take their place."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from docs.examples import fft as front
from docs.examples.fft import Launch
from jitlto.base.errors import (
    AmbiguousConfigurationError,
    CompileError,
    InterfaceMismatchError,
    PlanError,
    UnknownValueError,
)
from jitlto.base.versions import Architecture
from jitlto.check.covering_array import choose_cover
from jitlto.cuda import ptx
from jitlto.cuda.nvjitlink import InputKind, LinkInput, find_undefined, link
from jitlto.record.fragment import ImageKind, Role
from jitlto.record.tuning import launch
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.fft_reference import DTYPES, SIZES, TRANSFORMS

# Those that CUDA 12.9 and 13 both know.
TARGETS = ["sm_80", "sm_120"]  # the oldest and the newest kind of device
CHOSEN = {"kind": "c2c", "direction": "forward", "data_type": "float", "size": "256"}
LOAD = "__device__ float2 fft_load(const float2* data, unsigned row, unsigned index, unsigned length, void* info)"
STORE = (
    "__device__ void fft_store(float2* data, unsigned row, unsigned index, unsigned length, float2 value, void* info)"
)


def test_there_are_2496_kernels_of_180_fragments(fft: KernelFamily) -> None:
    fragments = fft.database.fragments("fft")
    assert Counter(f.key.group for f in fragments) == {"fft_kernel": 156, "fft_load": 12, "fft_store": 12}
    assert [f.key.group for f in fragments if f.role is Role.ENTRYPOINT] == ["fft_kernel"] * 156
    kernels = len(SIZES) * len(TRANSFORMS) * len(DTYPES)
    assert kernels == 156
    assert kernels * 4 * 4 == 2496


def test_the_parameters_have_exactly_the_declared_values(fft: KernelFamily) -> None:
    assert {name: set(values) for name, values in fft.parameters.items()} == {
        "kind": {"c2c", "r2c", "c2r"},
        "direction": {"forward", "inverse"},
        "data_type": {"float", "double", "__half"},
        "size": {str(2**n) for n in range(1, 14)},
        "load": {"identity", "scale", "window", "pad"},
        "store": {"identity", "scale", "window", "crop"},
    }


def test_every_configuration_plans_to_its_kernel_and_two_callbacks(fft: KernelFamily) -> None:
    digests = set()
    for configuration in fft.configurations():
        plan = fft.plan(arch="sm_90", **configuration)  # type: ignore[arg-type]
        assert [f.key.group for f in plan.fragments] == ["fft_kernel", "fft_load", "fft_store"]
        assert plan.configuration == configuration
        digests.add(plan.digest)
    assert len(digests) == 2496


@pytest.mark.parametrize("target", TARGETS)
def test_all_pairs_of_values_link_and_nothing_is_left_to_call(fft: KernelFamily, target: str) -> None:
    configurations = list(fft.configurations())
    chosen = [configurations[place] for place in choose_cover(configurations, 2)[0]]
    assert len(chosen) >= len(SIZES) * len(TRANSFORMS)

    def link_one(configuration: dict[str, str]) -> None:
        plan = fft.plan(arch=target, **configuration)  # type: ignore[arg-type]
        module = ptx.parse_ptx(plan.link_ptx())
        assert module.requires == (), configuration
        # Nothing but the kernel and its buffer: no function of a fragment that could be called, no variable of one.
        assert {name for name in module.declarations if "shared" not in name} == {plan.entry.entry}, configuration
        linked = plan.link()
        assert find_undefined(linked.cubin) == [], configuration
        assert b"fft_load" not in linked.cubin, configuration
        assert b"fft_store" not in linked.cubin, configuration

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(link_one, chosen))


def test_the_example_launches_each_kernel_with_the_threads_that_it_is_made_for(fft: KernelFamily) -> None:
    for entry in (f for f in fft.database.fragments("fft") if f.role is Role.ENTRYPOINT):
        chosen = dict(entry.key.parameters)
        image = next(iter(entry.images_of(ImageKind.LTOIR)))
        data = fft.database.read(image)
        text = link([LinkInput(InputKind.FATBIN, data, "kernel")], Architecture(90), ["-lto"], ptx=True).data.decode()
        threads = re.search(r"\.maxntid (\d+)", text)
        assert threads is not None
        own = Launch.of(int(chosen["size"]), DTYPES[chosen["data_type"]], chosen["kind"])
        assert own.block == int(threads[1])
        assert own.shared_memory <= 128 * 1024


def test_a_tuned_launch_is_that_of_the_example(fft: KernelFamily) -> None:
    (record,) = (group.tune for group in fft.record.groups if group.tune is not None)
    for entry in (f for f in fft.database.fragments("fft") if f.role is Role.ENTRYPOINT):
        chosen = dict(entry.key.parameters)
        declared = {launch(variant, chosen, {"batch": 1001}) for variant in record.variants({}, chosen)}
        own = Launch.of(int(chosen["size"]), DTYPES[chosen["data_type"]], chosen["kind"])
        assert [(each.grid, each.block, each.shared_memory) for each in declared] == [
            ((-(-1001 // own.rows),), (own.block,), own.shared_memory)
        ]


def test_callers_see_the_declared_names_and_types(fft: KernelFamily) -> None:
    expected = {
        ("c2c", "float"): ("float2 const* input", "float2* output"),
        ("r2c", "double"): ("double const* input", "double2* output"),
        ("c2r", "__half"): ("__half2 const* input", "__half* output"),
    }
    for (kind, data_type), arrays in expected.items():
        direction = "inverse" if kind == "c2r" else "forward"
        plan = fft.plan(kind=kind, direction=direction, data_type=data_type, size=64, load="pad", store="crop")
        others = ("unsigned int batch", "void* load_info", "void* store_info")
        assert tuple(str(parameter) for parameter in plan.entry.signature) == arrays + others


def test_real_transforms_have_one_direction(fft: KernelFamily) -> None:
    callbacks = {"load": "identity", "store": "identity"}
    plan = fft.plan(kind="r2c", data_type="float", size=32, **callbacks)
    assert plan.configuration["direction"] == "forward"
    with raises(UnknownValueError, "plan-unknown-value-combination", "direction", "inverse"):
        fft.plan(kind="r2c", direction="inverse", data_type="float", size=32, **callbacks)
    with raises(AmbiguousConfigurationError, None, "direction"):
        fft.plan(kind="c2c", data_type="float", size=32, **callbacks)


@pytest.mark.parametrize("size", [1, 96, 16384])
def test_other_sizes_are_errors(fft: KernelFamily, size: int) -> None:
    with raises(UnknownValueError, None, "size", str(size)):
        fft.plan(**{**CHOSEN, "size": size}, load="identity", store="identity")  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("given", [(LOAD,), (STORE,), (LOAD, STORE)], ids=["load", "store", "both"])
def test_a_callers_callback_takes_the_place_of_the_shipped_ones(
    fft: KernelFamily, given: tuple[str, ...], target: str
) -> None:
    bodies = {LOAD: "{ return data[row * length + index]; }", STORE: "{ data[row * length + index] = value; }"}
    shipped = {name: "identity" for name, text in (("load", LOAD), ("store", STORE)) if text not in given}
    planner = fft.planner(**CHOSEN, **shipped)
    for text in given:
        planner.add_source(text + bodies[text])
    plan = planner.plan(arch=target)
    groups = {"fft_kernel", *(f"fft_{name}" for name in shipped)}
    assert {f.key.group for f in plan.fragments} == groups
    assert plan.calls_left() == []
    assert find_undefined(plan.link().cubin) == []


def test_a_callers_arithmetic_is_in_the_kernel(fft: KernelFamily) -> None:
    source = LOAD + "{ float2 x = data[row * length + index]; x.x = __sinf(x.x); return x; }"
    plan = fft.planner(**CHOSEN, store="identity").add_source(source).plan(arch="sm_90")
    assert "sin.approx" in plan.link_ptx()
    assert "sin.approx" not in fft.plan(arch="sm_90", **CHOSEN, load="identity", store="identity").link_ptx()


@pytest.mark.parametrize(
    "parameters",
    [
        "const float2* data, unsigned long long offset, void* info, void* shared",
        "float2* data, unsigned row, unsigned index, unsigned length, void* info",
        "const float2* data, int row, unsigned index, unsigned length, void* info",
        "const float2* data, unsigned row, unsigned index, unsigned length, const void* info",
    ],
)
def test_other_parameters_are_an_error_that_shows_both_signatures(fft: KernelFamily, parameters: str) -> None:
    source = f"__device__ float2 fft_load({parameters}) {{ return {{}}; }}"
    required = "fft_load(float2 const*, unsigned int, unsigned int, unsigned int, void*)"
    with raises(InterfaceMismatchError, None, required, "mine.cu"):
        fft.planner(**CHOSEN, store="identity").add_source(source, "mine.cu").plan(arch="sm_90")


def test_another_result_contradicts_the_interface(fft: KernelFamily) -> None:
    source = LOAD.replace("float2 fft_load", "double2 fft_load") + "{ return {}; }"
    with raises(CompileError, None, "mine.cu(1): error"):
        fft.planner(**CHOSEN, store="identity").add_source(source, "mine.cu").plan(arch="sm_90")


@pytest.mark.parametrize(("data", "result"), [("__half2", "float2"), ("float", "float")])
def test_a_callback_for_other_data_leaves_the_callback_open(fft: KernelFamily, data: str, result: str) -> None:
    source = f"__device__ {result} fft_load(const {data}* data, unsigned, unsigned, unsigned, void*) {{ return {{}}; }}"
    with raises(AmbiguousConfigurationError, None, "fft_load(float2 const*"):
        fft.planner(**CHOSEN, store="identity").add_source(source).plan(arch="sm_90")


def test_one_source_may_define_the_callbacks_of_several_kernels(fft: KernelFamily) -> None:
    source = "\n".join(
        f"__device__ {result} fft_load(const {data}* data, unsigned, unsigned, unsigned, void*) {{ return {{}}; }}"
        for data, result in (("float2", "float2"), ("float", "float"), ("__half2", "float2"))
    )
    for kind, data_type in (("c2c", "float"), ("r2c", "float"), ("c2c", "__half")):
        configuration = {**CHOSEN, "kind": kind, "data_type": data_type, "store": "identity"}
        plan = fft.planner(**configuration).add_source(source).plan(arch="sm_90")  # type: ignore[arg-type]
        assert plan.calls_left() == []


def test_two_sources_for_one_callback_are_an_error(fft: KernelFamily) -> None:
    source = LOAD + "{ return {}; }"
    with raises(PlanError, "plan-duplicate-definition", "fft_load", "a.cu", "b.cu"):
        fft.planner(**CHOSEN, store="identity").add_source(source, "a.cu").add_source(source, "b.cu").plan(arch="sm_90")


def test_without_a_load_callback_the_error_names_those_there_are(fft: KernelFamily) -> None:
    with raises(AmbiguousConfigurationError, None, "load", "identity, pad, scale, window"):
        fft.plan(arch="sm_90", **CHOSEN, store="identity")


@pytest.mark.parametrize(("side", "name"), [("load", n) for n in ("scale", "window", "pad")] + [("store", "crop")])
def test_a_callback_without_what_it_needs_is_refused(fft: KernelFamily, side: str, name: str) -> None:
    """Not given None for a number, which NumPy takes for NaN."""
    with pytest.raises(ValueError, match=f"{name} needs .*: give {side}_info"):
        front.plan(16, 10, family=fft, **{side: name})  # type: ignore[arg-type]


def test_a_plan_is_for_one_row_or_more(fft: KernelFamily) -> None:
    with pytest.raises(ValueError, match="one row or more, not 0"):
        front.plan(16, 0, family=fft)
