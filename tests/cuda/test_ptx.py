"""Parsing PTX from the installed compiler: symbols, layouts, and comparable bodies."""

import time
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.nvrtc_program import Step
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import ImageKind, SymbolKind
from jitlto.record.headers import Source
from tests.support.compiled import compiled
from tests.support.errors import raises


@cache
def for_debugging(text: str) -> Module:
    options = ["--std=c++17", "--device-debug"]
    source = Source(text.encode(), {})
    return parse_ptx(nvrtc.run_step(source, Step(ImageKind.PTX, Architecture(75), options)).data.decode())


KINDS = r"""
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
struct Pod { float x; int y; };
struct alignas(16) Wide { double a, b; };
struct Three { float x, y, z; };
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counter = 7;
__device__ double grid[3][5];
__device__ Wide wide;
__device__ static int hidden = 3;
extern __device__ int far;
extern __constant__ float table[];
extern __device__ Pod pods[8];
extern __shared__ float scratch[];
__device__ float provided(float x, long long n, const Pod* p);
__device__ float required(float x);
__device__ Three shape(Pod p, Wide w, Three t, char c);
extern "C" __device__ void plain(int);
__device__ float provided(float x, long long n, const Pod* p) {
  printf("%f\n", x);
  void* m = malloc(16); free(m);
  if (n == 3) __assertfail("no", "file", 1, "f", 1);
  Pod pod = *p; Wide w = wide; Three t = {x, x, x};
  Three u = shape(pod, w, t, 'c');
  plain(1);
  extern __shared__ float scratch[];
  scratch[n] = x;
  return required(x) + u.x + far + table[n] + pods[n].x + hidden++ + weights[n] + counter + grid[1][n];
}
template <typename T> __device__ T generic(T x) { return x + 1; }
template __device__ int generic<int>(int);
__global__ void kern(float* out, Pod p, Wide w, Three t, char c, const __grid_constant__ Wide v) {
  out[0] = provided(p.x, c, &p) + w.a + t.x + v.b;
}
static __global__ void unseen() {}
"""
FORMS = pytest.mark.parametrize(
    "module", [lambda: compiled(KINDS).module, lambda: for_debugging(KINDS)], ids=["O3", "G"]
)


@pytest.mark.slow
@FORMS
def test_what_a_module_provides(module: Callable[[], Module]) -> None:
    provides = module().provides
    assert list(provides) == sorted(provides)
    assert {(s.name, s.kind, s.layout, s.weak) for s in provides} == {
        ("weights", SymbolKind.VARIABLE, "const 16@4", False),
        ("counter", SymbolKind.VARIABLE, "global 4@4", False),
        ("grid", SymbolKind.VARIABLE, "global 120@8", False),
        ("wide", SymbolKind.VARIABLE, "global 16@16", False),
        ("_Z8providedfxPK3Pod", SymbolKind.FUNCTION, "(4)(4,8,8)", False),
        ("_Z7genericIiET_S0_", SymbolKind.FUNCTION, "(4)(4)", True),
        ("_Z4kernPf3Pod4Wide5ThreecS1_", SymbolKind.KERNEL, "()(8,b8,b16,b12,1,b16)", False),
    }


@FORMS
def test_what_a_module_requires(module: Callable[[], Module]) -> None:
    requires = module().requires
    assert {(s.name, s.kind, s.layout) for s in requires} == {
        ("_Z8requiredf", SymbolKind.FUNCTION, "(4)(4)"),
        ("_Z5shape3Pod4Wide5Threec", SymbolKind.FUNCTION, "(b12)(b8,b16,b12,4)"),
        ("plain", SymbolKind.FUNCTION, "()(4)"),
        ("far", SymbolKind.VARIABLE, "global 4@4"),
        ("table", SymbolKind.VARIABLE, "const ?@4"),
        ("pods", SymbolKind.VARIABLE, "global 64@4"),
    }
    assert list(requires) == sorted(requires)


@pytest.mark.parametrize(
    "text",
    [
        "", "garbage", "\0\1\2", ".version 8.0", ".target sm_75", ".version x\n.target sm_75",
        ".version 8.0\n.target sm_7x", "__global__ void k() {}", ".version 8.0\n.target sm_75\n.func f() {",
        ".version 8.0\n.target sm_75\n}",
    ],
)  # fmt: skip
def test_what_is_not_ptx(text: str) -> None:
    with pytest.raises(JitltoError, match=r"jitlto-(ptx|architecture)"):
        parse_ptx(text)


@pytest.mark.slow
@given(st.text() | st.text('.funcextrnvisble{}()[];"/*\\ \n$%_0189').map(lambda t: f".version 8.0\n.target sm_75\n{t}"))
def test_any_text_is_a_module_or_a_jitlto_error(text: str) -> None:
    try:
        module = parse_ptx(text)
    except JitltoError:
        return
    assert module.provides == tuple(sorted(module.provides))


def test_ptx_that_was_cut_is_noticed() -> None:
    text = compiled(KINDS).ptx
    depth, inside = 0, []
    for position, character in enumerate(text):
        if depth:
            inside.append(position)
        depth += {"{": 1, "}": -1}.get(character, 0)
    for position in inside[:: len(inside) // 60]:
        with raises(JitltoError, "jitlto-ptx"):
            parse_ptx(text[:position])


def test_comments_and_strings_are_no_code() -> None:
    module = parse_ptx(
        ".version 8.0\n.target sm_75\n.address_size 64\n// .extern .func a;\n/* .extern .func b;\n*/\n"
        '.pragma "}{;.extern .func c;";\n.extern .func d;\n'
    )
    assert [s.name for s in module.requires] == ["d"]


def test_a_definition_counts_more_than_its_declarations() -> None:
    for text in ("{d} {f}", "{f} {d}"):
        text = text.format(
            d=".extern .func (.param .b32 r) f(.param .b32 p);",
            f=".visible .func (.param .b32 r) f(.param .b32 p) { ret; }",
        )
        module = parse_ptx(f".version 8.0\n.target sm_75\n{text}")
        assert [s.name for s in module.provides] == ["f"]
        assert module.requires == ()


def test_the_function_that_stands_in_for_a_seed_is_no_symbol() -> None:
    text = 'extern "C" __device__ int f(int x) { return x; }\n' + nvrtc.anchor(b"any", Version(12, 8)).decode()
    assert [symbol.name for symbol in for_debugging(text).provides] == ["f"]
    assert nvrtc.anchor(b"any", Version(12, 9)) == b""


@pytest.mark.timing
def test_blank_lines_cost_no_more_than_their_number() -> None:
    blank = "\n" * 200_000
    start = time.perf_counter()
    module = parse_ptx(f"{blank}.version 8.0\n{blank}.target sm_75\n{blank}.extern .func f ();\n")
    assert [symbol.name for symbol in module.requires] == ["f"]
    assert time.perf_counter() - start < 2
