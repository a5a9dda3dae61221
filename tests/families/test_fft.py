"""The family ``fft``: every kernel plans, all pairs of values link, and a caller's callbacks take their place."""

import re

import pytest

from docs.examples.fft import Launch
from jitlto.base.versions import Architecture
from jitlto.check.compare import choose_cover
from jitlto.cuda.nvjitlink import InputKind, LinkInput, find_undefined, link
from jitlto.record.fragment import ImageKind, Role
from jitlto.runtime.family import KernelFamily
from tests.support.fft_reference import DTYPES, SIZES, TRANSFORMS
from tests.support.shipped import ARCHS, check_links, check_plans, cover

LOAD = "__device__ float2 fft_load(const float2* data, unsigned row, unsigned index, unsigned length, void* info)"
STORE = (
    "__device__ void fft_store(float2* data, unsigned row, unsigned index, unsigned length, float2 value, void* info)"
)


@pytest.fixture(scope="module")
def chosen(fft: KernelFamily) -> dict[str, str]:
    """One of the transforms of ``float2`` that were built."""
    wanted = {"kind": "c2c", "direction": "forward", "data_type": "float"}
    found = next(each for each in fft.configurations() if each.items() >= wanted.items())
    return {**wanted, "size": found["size"]}


def test_there_are_16_kernels_of_each_transform(fft: KernelFamily) -> None:
    check_plans(fft, 16)
    assert len(SIZES) * len(TRANSFORMS) * len(DTYPES) == 156


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_link_and_nothing_is_left_to_call(fft: KernelFamily, arch: str) -> None:
    """All values, each on one of the targets, and on the oldest all pairs of a small size."""
    pairs = cover(fft, 2, size="64") if arch == ARCHS[0] else []
    check_links(fft, arch, [*pairs, *cover(fft, 1)[ARCHS.index(arch) :: 2]])


def test_the_example_launches_kernels_with_the_threads_that_they_are_made_for(fft: KernelFamily) -> None:
    entries = [f for f in fft.database.fragments("fft") if f.role is Role.ENTRYPOINT]
    for place in choose_cover([dict(f.key.parameters) for f in entries], 1):
        entry, chosen = entries[place], dict(entries[place].key.parameters)
        image = next(iter(entry.images_of(ImageKind.LTOIR)))
        data = fft.database.read(image)
        text = link([LinkInput(InputKind.FATBIN, data, "kernel")], Architecture(90), ["-lto"], ptx=True).data.decode()
        threads = re.search(r"\.maxntid (\d+)", text)
        assert threads is not None
        own = Launch.of(int(chosen["size"]), DTYPES[chosen["data_type"]], chosen["kind"])
        assert own.block == int(threads[1])
        assert own.shared_memory <= 128 * 1024


@pytest.mark.parametrize(
    ("target", "given"),
    [(ARCHS[0], (LOAD,)), (ARCHS[1], (STORE,)), (ARCHS[0], (LOAD, STORE)), (ARCHS[1], (LOAD, STORE))],
    ids=["load", "store", "both", "both on the newest"],
)
def test_a_callers_callback_takes_the_place_of_the_shipped_ones(
    fft: KernelFamily, chosen: dict[str, str], given: tuple[str, ...], target: str
) -> None:
    bodies = {LOAD: "{ return data[row * length + index]; }", STORE: "{ data[row * length + index] = value; }"}
    shipped = {name: "identity" for name, text in (("load", LOAD), ("store", STORE)) if text not in given}
    planner = fft.planner(**chosen, **shipped)
    for text in given:
        planner.add_source(text + bodies[text])
    plan = planner.plan(arch=target)
    groups = {"fft_kernel", *(f"fft_{name}" for name in shipped)}
    assert {f.key.group for f in plan.fragments} == groups
    assert plan.calls_left() == []
    assert find_undefined(plan.link().cubin) == []


def test_a_callers_arithmetic_is_in_the_kernel(fft: KernelFamily, chosen: dict[str, str]) -> None:
    source = LOAD + "{ float2 x = data[row * length + index]; x.x = __sinf(x.x); return x; }"
    plan = fft.planner(**chosen, store="identity").add_source(source).plan(arch="sm_90")
    assert "sin.approx" in plan.link_ptx()
    assert "sin.approx" not in fft.plan(arch="sm_90", **chosen, load="identity", store="identity").link_ptx()
