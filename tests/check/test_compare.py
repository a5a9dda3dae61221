"""The comparison of inline functions: the ways in which two definitions can differ, and those in which they do not."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.versions import Version
from jitlto.check.check import CheckResult, check
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import linkable_architectures
from jitlto.cuda.nvjitlink import Linked, LinkInput
from jitlto.database import FragmentDatabase
from tests.support.families import built

FAMILY = """
[family]
name = "pair"
{archs}

[entrypoint.kern]
matrix = "one.json"
template = "kern.cu.jinja"
params = ["float* x", "float* y", "int n"]

[device.other]
matrix = "one.json"
template = "other.cu.jinja"
interface = "other.cuh"
"""
KERNEL = """#include "other.cuh"
__global__ void kern(float* x, float* y, int n) { x[threadIdx.x] = helper(x, y, n) + other(x, y, n); }
"""
OTHER = """#include "other.cuh"
__device__ float other(float* x, float* y, int n) { return 2 * helper(y, x, n + 1); }
"""
LOOP = "float s = 0; for (int i = 0; i < n; i++) { y[i] = x[0] + i; s += x[0] * y[i]; }"


def body(
    *,
    before: str = "",
    after: str = "return s;",
    where: str = "inline",
    types: str = "float* x, float* y",
    top: str = "",
) -> str:
    """The text of `helper`, in a header of its own."""
    return f"{top}\n__device__ {where} float helper({types}, int n) {{ {before} {LOOP} {after} }}\n"


def either(condition: str, one: str, other: str) -> str:
    return f"#if{condition}\n{one}\n#else\n{other}\n#endif\n"


SAME = body()
CHECK = "\n#ifndef NDEBUG\nif (n < 3) __trap();\n#endif\n"
#: name → the helper of the kernel, and that of the other fragment
DIFFERENT: dict[str, tuple[str, str]] = {
    "a constant": (SAME, body(after="return s * 2;")),
    "__builtin_assume": (SAME, body(before="__builtin_assume(n > 0);")),
    "__restrict__": (SAME, body(types="float* __restrict__ x, float* __restrict__ y")),
    "__CUDACC_DEBUG__": (SAME, either("def __CUDACC_DEBUG__", SAME, body(after="return s + 1;"))),
    "__forceinline__": (body(where="__forceinline__"), body(where="__forceinline__", after="return s + 1;")),
    "#pragma unroll": (
        body(before="\n#pragma unroll 1\nfor (int i = 0; i < 8; i++) y[i] += x[i];"),
        body(before="\n#pragma unroll 8\nfor (int i = 0; i < 8; i++) y[i] += x[i];"),
    ),
    "asm": (SAME, body(after='asm volatile("membar.gl;"); return s;')),
    "NDEBUG": (body(before=CHECK), "#define NDEBUG\n" + body(before=CHECK)),
    "the layout of a structure": (
        body(top="struct pair { int a; float b; };", after="return s + ((pair*)x)->b;"),
        body(top="struct pair { int a; int c; float b; };", after="return s + ((pair*)x)->b;"),
    ),
    "the alignment of a structure": (
        body(top="struct four { float v[4]; };", after="*(four*)y = *(four*)x; return s;"),
        body(top="struct alignas(16) four { float v[4]; };", after="*(four*)y = *(four*)x; return s;"),
    ),
    "a static local's initial value": (
        body(after="static __device__ int calls = 1; return s + calls++;"),
        body(after="static __device__ int calls = 2; return s + calls++;"),
    ),
    "a default template argument": (
        "template <int N = 3> __device__ inline int three() { return N; }\n" + body(after="return s + three<>();"),
        "template <int N = 4> __device__ inline int three() { return N; }\n" + body(after="return s + three<>();"),
    ),
    "a function that it calls": (
        "static __device__ float inner(float v) { return v + 1; }\n" + body(after="return inner(s);"),
        "static __device__ float inner(float v) { return v + 2; }\n" + body(after="return inner(s);"),
    ),
    "a template": tuple(
        f"template <typename T> __device__ T add(T v) {{ return v + {n}; }}\n" + body(after="return add(s);")
        for n in (1, 2)
    ),  # type: ignore[dict-item]
    "a member function": tuple(
        f"struct adder {{ __device__ float operator()(float v) const {{ return v + {n}; }} }};\n"
        + body(after="return adder()(s);")
        for n in (1, 2)
    ),  # type: ignore[dict-item]
    "the text of printf": (body(before='printf("one %d", n);'), body(before='printf("two %d", n);')),
    "a table": tuple(
        body(before=f"const float table[4] = {{1, 2, {n}, 4}};", after="return s + table[n & 3];") for n in (3, 5)
    ),  # type: ignore[dict-item]
}
#: name → two texts of one helper
ALIKE: dict[str, tuple[str, str]] = {
    "the same text": (SAME, SAME),
    "comments and white space": (SAME, "// helps\n" + SAME.replace("{", "{\n  /* here */").replace(";", " ;\n") + "\n"),
    "a name of a parameter": (SAME, SAME.replace("int n", "int count").replace("< n", "< count")),
    "a macro": (SAME, "#define RESULT s\n" + body(after="return RESULT;")),
    "a static function beside it": (
        "static __device__ float a(float v) { return v * 3; }\n" + body(after="return a(s);"),
        "static __device__ float b() { return 5; }\nstatic __device__ float a(float v) { return v * 3; }\n"
        + body(after="return a(s);"),
    ),
    "literals": (body(before='printf("%d", n);'), "// other\n" + body(before='printf("%d", n);')),
    "static tables": (
        "static __device__ const float table[4] = {1, 2, 3, 4};\n" + body(after="return s + table[n & 3];"),
    )
    * 2,  # type: ignore[dict-item]
    "different functions": (SAME, SAME.replace("helper", "another") + "#define helper another\n"),
    "static functions": (SAME.replace("inline", "static"), body(after="return s + 1;", where="static")),
}

Compare = Callable[..., CheckResult]


def make_pair(directory: Path, mine: str, theirs: str, options: str) -> FragmentDatabase:
    files = {
        "family.toml": FAMILY.format(archs=options),
        "one.json": "{}",
        "kern.cu.jinja": mine + KERNEL,
        "other.cu.jinja": theirs + OTHER,
        "other.cuh": "#pragma once\n__device__ float other(float* x, float* y, int n);\n",
    }
    return built(directory, files, "pair").database


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Check a family of a kernel and a function, each with a helper of its own."""

    def run(mine: str, theirs: str, archs: str = "") -> CheckResult:
        with make_pair(tmp_path / str(len(list(tmp_path.iterdir()))), mine, theirs, archs) as database:
            return check(database)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("way", DIFFERENT)
def test_definitions_that_differ_are_a_failure_that_names_both_fragments(compare: Compare, way: str) -> None:
    result = compare(*DIFFERENT[way])
    assert not result.holds
    (cause,) = result.families[0].failures
    assert cause.code == "link-conflicting-definitions"
    assert "pair/kern[]" in cause.message
    assert "pair/other[]" in cause.message


@pytest.mark.slow
@pytest.mark.parametrize("way", ALIKE)
def test_definitions_that_compile_to_the_same_are_none(compare: Compare, way: str) -> None:
    result = compare(*ALIKE[way])
    assert result.holds, result.families[0].failures
    assert result.families[0].compared == 1


@pytest.mark.slow
def test_a_function_that_differs_is_named(compare: Compare) -> None:
    (cause,) = compare(SAME, body(after="return s * 2;")).families[0].failures
    assert cause.message.startswith("helper(float*, float*, int) is defined differently")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["inline", "__forceinline__"])
def test_a_function_that_is_inline_in_one_fragment_alone_is_a_failure(compare: Compare, where: str) -> None:
    """No order shows it: the one that is not inline always wins."""
    result = compare(body(where=where), body(where="", after="return s + 1;"))
    (cause,) = result.families[0].failures
    assert cause.code == "link-conflicting-definitions"
    assert cause.message == "helper(float*, float*, int) is inline in pair/kern[], but not in pair/other[]"


def test_a_call_with_other_pointers_than_the_definition_is_no_difference(tmp_path: Path) -> None:
    """The order decides whether such a call is inlined."""
    files = {
        "family.toml": '[family]\nname = "pair"\n[entrypoint.k]\nmatrix = "one.json"\ntemplate = "k.cu.jinja"\n'
        '[device.f]\nmatrix = "one.json"\ntemplate = "f.cu.jinja"\ninterface = false\n',
        "one.json": "{}",
        "k.cu.jinja": 'extern "C" __device__ float f(void*);\n__global__ void k(float* x) { x[0] = f(x + 2); }\n',
        "f.cu.jinja": 'extern "C" __device__ float f(float* x) { return x[1]; }\n',
    }
    with built(tmp_path, files, "pair").database as database:
        assert check(database).holds


@pytest.mark.slow
def test_definitions_are_compared_for_every_architecture(compare: Compare) -> None:
    mine, theirs = (either(" __CUDA_ARCH__ >= 900", body(after=f"return s + {n};"), SAME) for n in (1, 2))
    assert compare(mine, theirs).holds
    assert not compare(mine, theirs, archs='archs = ["75", "90"]').holds
    assert compare(mine, mine, archs='archs = ["75", "90"]').holds


def test_definitions_for_the_oldest_architecture_are_compared(compare: Compare) -> None:
    oldest = min(linkable_architectures(nvjitlink.version()))
    result = compare(SAME, SAME, archs=f'archs = ["{oldest}"]')
    assert result.holds, result.families[0].failures
    assert result.families[0].compared == 1


@pytest.mark.slow
def test_a_family_that_cannot_be_compared_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_pair(tmp_path / "pair", SAME, SAME, 'images = ["ltoir"]') as database:
        monkeypatch.setattr("jitlto.cuda.nvjitlink.version", lambda: Version(12, 0))
        result = check(database)
    assert result.holds
    assert result.families[0].compared is None
    assert [note.code for note in result.families[0].notes] == ["build-uncompared"]


def make_many(directory: Path, helpers: list[str]) -> FragmentDatabase:
    """Build a kernel that calls a function of each of many groups, each with a helper of its own."""
    names = range(len(helpers))
    groups = "".join(
        f'[device.g{n}]\nmatrix = "one.json"\ntemplate = "g{n}.cu.jinja"\ninterface = false\n' for n in names
    )
    declared = "".join(f"__device__ float f{n}(float* x, float* y, int n);\n" for n in names)
    calls = "".join(f"x[{n}] = f{n}(x, y, n);\n" for n in names)
    files = {
        "family.toml": '[family]\nname = "many"\n[entrypoint.k]\nmatrix = "one.json"\ntemplate = "k.cu.jinja"\n'
        + groups,
        "one.json": "{}",
        "k.cu.jinja": f"{declared}__global__ void k(float* x, float* y, int n) {{\n{calls}}}\n",
    }
    for n, helper in enumerate(helpers):
        text = f"__device__ float f{n}(float* x, float* y, int n) {{ return {n} + HELPER(y, x, n); }}\n"
        files[f"g{n}.cu.jinja"] = helper + text.replace("HELPER", f"own{n}" if f"own{n}(" in helper else "helper")
    return built(directory, files, "many").database


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of inputs of each link of a check."""
    counts: list[int] = []

    def spy(inputs: Sequence[LinkInput], *args: Any, **options: Any) -> Linked:
        counts.append(len(inputs))
        return nvjitlink.link(inputs, *args, **options)

    monkeypatch.setattr("jitlto.link.definitions.link", spy)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a constant", "__forceinline__", "a static local's initial value"])
def test_one_definition_among_many_that_differs_is_found(tmp_path: Path, way: str) -> None:
    """It is neither the first nor the last: the order of the fragments alone would not show it."""
    usual, other = DIFFERENT[way]
    with make_many(tmp_path / "many", [usual] * 2 + [other] + [usual] * 2) as database:
        (cause,) = check(database).families[0].failures
    assert cause.code == "link-conflicting-definitions"
    assert "many/g2[]" in cause.message


@pytest.mark.parametrize("where", ["inline", pytest.param("__forceinline__", marks=pytest.mark.slow)])
@pytest.mark.parametrize("after", ["return s;", pytest.param("return s + 1;", marks=pytest.mark.slow)])
def test_a_function_that_is_inline_in_one_of_many_fragments_alone_is_a_failure(
    tmp_path: Path, where: str, after: str
) -> None:
    others = [body(where="inline").replace("helper", f"own{n}") for n in range(9)]
    with make_many(tmp_path / "many", [body(where=""), *others[1:], body(where=where, after=after)]) as database:
        (cause,) = check(database).families[0].failures
    assert cause.code == "link-conflicting-definitions"
    assert cause.message == "helper(float*, float*, int) is inline in many/g9[], but not in many/g0[]"


def make_kernels(directory: Path, helpers: list[str], theirs: str = SAME) -> FragmentDatabase:
    """Build a kernel for each helper, and two functions, with a helper of their own, one of which each kernel calls."""
    op = "__device__ float op(float* x, float* y, int n);\n"
    files = {
        "family.toml": '[family]\nname = "several"\n[entrypoint.k]\nmatrix = "k.json"\ntemplate = "k.cu.jinja"\n'
        'key = ["number"]\n[device.op]\nmatrix = "op.json"\ntemplate = "op.cu.jinja"\nkey = ["factor"]\n'
        'interface = "op.cuh"\n',
        "k.json": json.dumps({"_": [{"number": str(n), "helper": helper} for n, helper in enumerate(helpers)]}),
        "k.cu.jinja": "{{helper}}__global__ void k{{number}}(float* x, float* y, int n) "
        "{ x[{{number}}] = op(x, y, n) + helper(x, y, n); }\n",
        "op.json": '{"factor": ["2", "3"]}',
        "op.cuh": op,
        "op.cu.jinja": f"{theirs}{op[:-2]} {{ return {{{{factor}}}} * helper(y, x, n); }}\n",
    }
    return built(directory, files, "several").database


@pytest.mark.slow
def test_kernels_that_differ_in_their_entrypoint_alone_are_compared_in_one_link(
    tmp_path: Path, linked: list[int]
) -> None:
    with make_kernels(tmp_path, [SAME] * 3) as database:
        assert check(database).families[0].compared == 6
    # With the input that decides on the layout and a stub: each fragment alone, without and with optimisation; and all
    # kernels with each function.
    assert sorted(linked) == [1 + 1 + 1] * 10 + [3 + 1 + 1 + 1] * 2


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a constant", "__builtin_assume", "__forceinline__", "a function that it calls"])
def test_of_kernels_that_are_compared_in_one_link_those_that_differ_are_named(tmp_path: Path, way: str) -> None:
    usual, other = DIFFERENT[way]
    with make_kernels(tmp_path, [usual, other, usual], usual) as database:
        failures = check(database).families[0].failures
    assert failures and all(note.message.endswith(" number=1") for cause in failures for note in cause.notes)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["inline", "__forceinline__"])
def test_kernels_may_differ_from_each_other(tmp_path: Path, where: str) -> None:
    """No link has both, though one compares both."""
    helpers = [
        f"{body(where=where, after=f'return s + {n};').replace('helper', 'own')}#define helper own\n" for n in (1, 2)
    ]
    with make_kernels(tmp_path, helpers) as database:
        assert check(database).holds


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_the_work_of_a_comparison_grows_with_the_fragments(tmp_path: Path, linked: list[int], shared: bool) -> None:
    totals = []
    for count in (2, 4, 8):
        helpers = [SAME if shared else SAME.replace("helper", f"own{n}") for n in range(count)]
        with make_many(tmp_path / f"{count}", helpers) as database:
            linked.clear()
            assert check(database).holds
        totals.append(sum(linked))
    assert totals[2] - totals[1] <= 2 * (totals[1] - totals[0]) + 2  # and one stub more for each sixteen
