"""The family ``fft``: every kernel plans, all pairs of values link, and a caller's callbacks take their place."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from docs.examples.fft import Launch
from jitlto.base.versions import Architecture
from jitlto.check.covering_array import choose_cover
from jitlto.cuda import ptx
from jitlto.cuda.nvjitlink import InputKind, LinkInput, find_undefined, link
from jitlto.record.fragment import ImageKind, Role
from jitlto.runtime.family import KernelFamily
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


def test_every_configuration_plans_to_its_kernel_and_two_callbacks(fft: KernelFamily) -> None:
    digests = set()
    for configuration in fft.configurations():
        plan = fft.plan(arch="sm_90", **configuration)  # type: ignore[arg-type]
        assert [f.key.group for f in plan.fragments] == ["fft_kernel", "fft_load", "fft_store"]
        assert plan.configuration == configuration
        digests.add(plan.digest)
    assert len(digests) == 2496


@pytest.mark.parametrize("target", TARGETS)
def test_all_values_link_and_nothing_is_left_to_call(fft: KernelFamily, target: str) -> None:
    """All pairs of a small size, and all sizes."""
    configurations = list(fft.configurations())
    small = [each for each in configurations if each["size"] == "64"]
    chosen = [
        of[place] for of, strength in ((small, 2), (configurations, 1)) for place in choose_cover(of, strength)[0]
    ]
    assert {each["size"] for each in chosen} == set(map(str, SIZES))

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


def test_the_example_launches_kernels_with_the_threads_that_they_are_made_for(fft: KernelFamily) -> None:
    entries = [f for f in fft.database.fragments("fft") if f.role is Role.ENTRYPOINT]
    for place in choose_cover([dict(f.key.parameters) for f in entries], 1)[0]:
        entry, chosen = entries[place], dict(entries[place].key.parameters)
        image = next(iter(entry.images_of(ImageKind.LTOIR)))
        data = fft.database.read(image)
        text = link([LinkInput(InputKind.FATBIN, data, "kernel")], Architecture(90), ["-lto"], ptx=True).data.decode()
        threads = re.search(r"\.maxntid (\d+)", text)
        assert threads is not None
        own = Launch.of(int(chosen["size"]), DTYPES[chosen["data_type"]], chosen["kind"])
        assert own.block == int(threads[1])
        assert own.shared_memory <= 128 * 1024


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
