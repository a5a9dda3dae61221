"""A caller's functions and those of fragments that have one name: the same, or an error when they are linked."""

from pathlib import Path

import pytest

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture
from jitlto.plan.planner import Planner
from jitlto.runtime.family import KernelFamily
from tests.support.compiled import compiled
from tests.support.errors import raises
from tests.support.families import built, calling_op

CODE = "link-conflicting-definitions"
FAMILY = calling_op(
    "helped",
    "__device__ float op(float a);",
    """inline __device__ float helper(float a, int n) { for (int i = 0; i < n; i++) a *= 2.0f; return a; }
inline __device__ __noinline__ float standing(float a) { return a * 7.0f; }
__global__ void kern(float* x) { x[threadIdx.x] = op(helper(x[threadIdx.x], 40) + standing(x[0])); }""",
    'images = ["ltoir", "ptx"]\n',
)
HIDDEN = {
    "family.toml": """
[family]
name = "hidden"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
params = ["int* p"]

[device.g]
matrix = "g.json"
template = "g.cu.jinja"
key = ["v"]
interface = "g.cuh"
""",
    "kern.json": "{}",
    "g.json": '{"v": ["1", "2"]}',
    "g.cuh": '#pragma once\nextern "C" __device__ int g();\n',
    "g.cu.jinja": '#include "g.cuh"\n#include "help.cuh"\nextern "C" __device__ int g() { return help({{v}}); }\n',
    "kern.cu.jinja": """#include "g.cuh"
#include "help.cuh"
__global__ void kern(int* p) { float s, c; sincospif(*p, &s, &c); *p = g() + 1000 * help(*p) + int(s + c); }
""",
}
HELP = "__device__ int help(int x) { return x + 7; }\n"
HELPER = "__device__ float helper(float a, int n) { for (int i = 0; i < n; i++) a *= 2.0f; return a; }\n"
STANDING = "__device__ __noinline__ float standing(float a) { return a * 7.0f; }\n"
OP = "__device__ float op(float a) { return helper(a, int(a)) + standing(a); }\n"
SAME = f"inline {HELPER}inline {STANDING}{OP}"


@pytest.fixture(scope="module")
def helped(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("helped"), FAMILY, "helped")


def added(family: KernelFamily, text: str, kind: str) -> Planner[object]:
    planner = family.planner()
    if kind == "source":
        return planner.add_source(text)
    if kind == "ltoir":
        return planner.add_ltoir(compiled(text).ltoir[Architecture(75)], name="user.cu")
    return planner.add_ptx(compiled(text).ptx, name="user.cu")


def link(planner: Planner[object], mode: str = "lto") -> bytes:
    return planner.plan(link_mode=mode).link("sm_90").cubin


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "ltoir", "ptx"])
def test_functions_with_the_same_name_and_body_are_fine(helped: KernelFamily, kind: str) -> None:
    assert link(added(helped, "// moved\n\n" + SAME, kind))


@pytest.mark.slow
def test_variables_with_one_name_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    scales = "template <bool> __device__ float scales[2] = {1, 2};\n"
    op = "__device__ float op(float a) { return a * scales<true>[int(a)]; }\n"
    kernel = "__global__ void kern(float* x) { x[threadIdx.x] = op(x[0]) + scales<true>[threadIdx.x % 2]; }"
    family = built(tmp_path, calling_op("scaled", "__device__ float op(float a);", scales + kernel), "scaled")
    assert link(added(family, scales + op, "source"))
    with raises(LinkError, CODE, "scales<true>", "scaled/kern[]", "user.cu"):
        link(added(family, scales.replace("{1, 2}", "{1, 3}") + op, "source"))


@pytest.mark.slow
def test_a_shared_variable_is_the_same_wherever_the_optimiser_puts_it(tmp_path: Path) -> None:
    most = """inline __device__ int most(int n) {
  __shared__ int seen[64];
  seen[threadIdx.x % 64] = n;
  __syncthreads();
  for (int i = 0; i < 64; i++) n = max(n, seen[i]);
  return n;
}
"""
    op = "__device__ int op(int a) { return a + 1; }\n__device__ int unused(int a) { return most(a); }\n"
    kernel = "__global__ void kern(int* x) { x[threadIdx.x] = op(x[0]) + most(x[1]); }"
    family = built(tmp_path, calling_op("shared", "__device__ int op(int a);", most + kernel), "shared")
    assert link(added(family, most + op, "source"))
    with raises(LinkError, CODE, "most(int)", "shared/kern[]", "user.cu"):
        link(added(family, most.replace("max", "min") + op, "source"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "ptx"])
def test_without_link_time_optimisation_too(helped: KernelFamily, kind: str) -> None:
    assert link(added(helped, SAME, kind), "ptx")
    with raises(LinkError, CODE, "standing(float)", "helped/kern[]", "user.cu"):
        link(added(helped, SAME.replace("7.0f", "8.0f"), kind), "ptx")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "ltoir", "ptx"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("7.0f", "8.0f"), ("a * 7.0f", "__fmul_rd(a, 7.0f)"), ("return a * 7", "if (a < 3) return 1; return a * 7")],
)
def test_a_different_body_is_an_error_that_names_both(helped: KernelFamily, kind: str, before: str, after: str) -> None:
    with raises(LinkError, CODE, "standing(float)", "helped/kern[]", "user.cu"):
        link(added(helped, SAME.replace(before, after), kind))


@pytest.mark.slow
def test_what_a_database_cannot_tell_of_a_function_is_no_agreement(tmp_path: Path) -> None:
    alone = {name: text.replace('["ltoir", "ptx"]', '["ltoir"]') for name, text in FAMILY.items()}
    family = built(tmp_path, alone, "helped")
    with raises(LinkError, CODE, "standing(float)", "helped/kern[]", "user.cu"):
        link(added(family, SAME.replace("7.0f", "8.0f"), "ptx"))
    assert link(added(family, SAME.replace("inline __device__", "static __device__"), "ptx"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "ltoir"])
@pytest.mark.parametrize(
    ("before", "after"), [("2.0f", "3.0f"), ("{ for (int i", "{ __builtin_assume(n > 0); for (int i")]
)
def test_a_body_that_is_inlined_counts_too(helped: KernelFamily, kind: str, before: str, after: str) -> None:
    with raises(LinkError, CODE, "helped/kern[]", "user.cu"):
        link(added(helped, SAME.replace(before, after), kind))


@pytest.mark.slow
@pytest.mark.parametrize(("linkage", "where"), [("", "inline "), ("", "__forceinline__ "), ('extern "C" ', "inline ")])
def test_so_is_one_that_is_not_inline_in_the_callers_ltoir_alone(tmp_path: Path, linkage: str, where: str) -> None:
    """It is neither in the fragment's record nor among the functions that the fragments call."""
    family = built(tmp_path, HIDDEN | {"help.cuh": linkage + where + HELP}, "hidden")
    own = 'extern "C" __device__ int g() { return help(50); }\n'
    with raises(LinkError, CODE, "help", "hidden/kern[]", "user.cu"):
        link(added(family, linkage + HELP.replace("7", "9") + own, "ltoir"))
    assert link(added(family, f"static {HELP.replace('7', '9')}{own}", "ltoir"))
    assert link(added(family, linkage + where + HELP + own, "ltoir"))


@pytest.mark.slow
def test_two_inputs_of_a_caller_are_compared_with_each_other(helped: KernelFamily) -> None:
    first = "__device__ float elsewhere(float);\ninline __device__ float mine(float a) { return a * 3; }\n"
    first += "__device__ float op(float a) { return elsewhere(mine(a)); }\n"
    second = "inline __device__ float mine(float a) { return a * 4; }\n"
    second += "__device__ float elsewhere(float a) { return mine(a); }\n"
    planner = helped.planner().add_source(first, name="first.cu")
    with raises(LinkError, CODE, "mine(float)", "first.cu", "second.cu"):
        link(planner.add_source(second, name="second.cu"))


def test_a_kernel_that_is_in_the_cache_is_not_compared_again(
    helped: KernelFamily, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert link(added(helped, SAME, "source"))
    monkeypatch.setattr("jitlto.link.conflicts.ConflictSearch", lambda *_, **__: pytest.fail("compared again"))
    assert link(added(helped, SAME, "source"))
