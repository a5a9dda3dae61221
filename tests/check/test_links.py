"""The links of a check: failures by cause, and what nvJitLink cannot read."""

import time
from pathlib import Path

import pytest

from jitlto.base.errors import VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.check.check import check
from jitlto.check.links import require_readable
from jitlto.cuda import nvjitlink
from jitlto.link.parallel import run_parallel
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import built, calling_op, tiered


def test_a_caller_that_stops_does_not_wait_for_the_rest() -> None:
    taken = []

    def call(number: int) -> None:
        taken.append(number)
        time.sleep(0.01)

    outcomes = run_parallel(call, list(range(1000)), 2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert len(taken) < 1000


def image(kind: ImageKind, version: Version, isa: Version | None = None) -> Image:
    return Image(kind, Architecture(75), "0" * 64, 1, "nvrtc", version, isa)


def test_a_database_that_nvjitlink_cannot_read_is_refused_in_one_message(mini: KernelFamily) -> None:
    newer = Version(99, 0)
    ltoir, ptx = image(ImageKind.LTOIR, newer), image(ImageKind.PTX, newer, Version(7, 0))

    def made(*images: Image) -> list[Fragment]:
        return [Fragment(FragmentKey.make("f", "k", {}), Role.DEVICE, "", (), (), (), images)]

    require_readable(mini.database.fragments("mini"), "x.fragdb")
    with raises(VersionError, "link-version", "f/k[]", "LTO-IR", "99.0", where="x.fragdb", hint="nvJitLink"):
        require_readable(made(ltoir, ptx), "x.fragdb")
    older = image(ImageKind.LTOIR, Version(11, 8))
    with raises(VersionError, "link-version", "11.8", hint=f"CUDA {nvjitlink.version().major}"):
        require_readable(made(older), "x.fragdb")
    for images in ((ptx,), ()):
        with raises(VersionError, "link-version-no-image", "f/k[]"):
            require_readable(made(*images), "x.fragdb")


# --- what callers supply ---

_POINT = "struct point { float x, y; };\n"
#: What an interface declares that callers define, and a call of it.
_SUPPLIED = {
    "C linkage": ('extern "C" __device__ int op(const float*, float);', "x[1] = op(x, *x);"),
    "nothing returned": ("__device__ void op(float*);", "op(x);"),
    "a reference": ("__device__ float& op(float&);", "op(*x) = 1;"),
    "a structure": (f"{_POINT}__device__ point op(point, const point&);", "*x = op({1, 2}, {3, 4}).y;"),
    "a pointer": ('extern "C" __device__ const float* op(int);', "*x = *op(1);"),
    "a template": ("namespace n { template <class T> __device__ T op(T a); }", "*x = n::op(*x) + n::op(1.0);"),
    "small results": ("__device__ bool op(signed char);", "*x = op(1);"),
    "half": ("#include <cuda_fp16.h>\n__device__ __half op(__half);", "*x = __half2float(op(__float2half(*x)));"),
    "several": ("__device__ float op(float);\n__device__ double op(double, int);", "*x = op(*x) + op(1.0, 2);"),
    "a member": ("struct point { float x; __device__ float op(point) const; };", "*x = point{*x}.op({1});"),
    "a variable": ("namespace n { extern __device__ float op; }", "*x = n::op;"),
    "a table": ("extern __constant__ int op[4];", "*x = op[threadIdx.x];"),
    "an open table": ("extern __device__ double op[];", "*x = op[threadIdx.x];"),
}


@pytest.mark.parametrize("declared", _SUPPLIED)
def test_kernels_are_linked_with_a_stub_of_what_callers_supply(tmp_path: Path, declared: str) -> None:
    declaration, call = _SUPPLIED[declared]
    family = built(tmp_path, calling_op("call", declaration, f"__global__ void kern(float* x) {{ {call} }}"), "call")
    (found,) = check(family.database, targets=[Architecture(90), Architecture(120)]).families
    assert found.holds
    assert (found.kernels, found.completed_by_callers, found.linked) == (1, 1, 1)
    assert {note.code for note in found.notes} == {"build-supplied"}
    assert all("of op at run time" in note.message for note in found.notes)


def test_an_interface_of_what_callers_supply_may_have_a_path(tmp_path: Path) -> None:
    files = calling_op("call", "__device__ float op(float);", "__global__ void kern(float* x) { *x = op(*x); }")
    files["family.toml"] = files["family.toml"].replace('interface = "op.cuh"', 'interface = "./sub/../op.cuh"')
    (found,) = check(built(tmp_path, files, "call").database, targets=[Architecture(90)]).families
    assert (found.holds, found.completed_by_callers, found.linked) == (True, 1, 1)


@pytest.mark.slow
def test_a_kernel_with_two_tiers_is_linked_with_a_stub_in_both(tmp_path: Path) -> None:
    kernel = "__global__ void kern(float* x) { *x = op(*x); }"
    family = built(tmp_path, tiered(calling_op("call", "__device__ float op(float);", kernel), "call"), "call")
    (found,) = check(family.database, targets=[Architecture(90)]).families
    assert found.holds
    assert (found.linked, found.cubins) == (1, 1)
    assert [note.code for note in found.notes] == ["build-supplied"]


def test_the_rest_of_a_kernel_is_proved_by_linking_it_with_a_stub(tmp_path: Path) -> None:
    kernel = "__global__ void kern(float* x) { *x = op(*x); }"
    family = built(tmp_path, calling_op("call", "__device__ float op(float);", kernel, 'archs = ["90a"]'), "call")
    (found,) = check(family.database, targets=[Architecture(90, "a"), Architecture(100)]).families
    assert not found.holds
    (cause,) = found.failures
    assert (cause.code, cause.notes[-1].message) == ("link-architecture", "at call/kern: for sm_100")
