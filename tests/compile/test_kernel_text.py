"""Kernels as their sources define them: names where they can be told for sure, and none where not."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile.kernel_text import find_kernels, read_front_end


def names_of(parameters: str) -> tuple[str | None, ...] | None:
    (kernel,) = find_kernels(f"__global__ void k({parameters}) {{}}".encode())
    return kernel.names


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("float x", "x"),
        ("const float* __restrict__ x", "x"),
        ("float *x", "x"),
        ("const unsigned x", "x"),
        ("ns::box<int, float> x", "x"),
        ("typename T::type x", "x"),
        ("struct S x", "x"),
        ("const __grid_constant__ S x", "x"),
        ("int x[4]", "x"),
        ("float (*x)(float, int)", "x"),
        ("int (*x)[3]", "x"),
        ("int x = f(1, 2)", "x"),
        ("T<(3 > 2), 1> x", "x"),
        ("T<(N == 2), int> x", "x"),
        ("T<N == 2> x = {N == 2}", "x"),
        ("decltype(f(1, 2)) x", "x"),
        ("float x /* , int y */", "x"),
        ("RESTRICTED(float) x", "x"),
        # No name, or none that is sure.
        ("float", None),
        ("const unsigned", None),
        ("S", None),
        ("const S", None),
        ("struct S", None),
        ("ns::S", None),
        ("ns::box<int>", None),
        ("T<N == 2>", None),
        ("T<(N <= 2)> = 1", None),
        ("float*", None),
        ("float* const", None),
        ("int[4]", None),
        ("float (*)(float, int)", None),
        ("MACRO(float, x)", None),
    ],
)
def test_the_name_of_a_parameter(parameter: str, name: str | None) -> None:
    assert names_of(parameter) == (name,)
    assert names_of(f"int before, {parameter}, int behind") == ("before", name, "behind")


@pytest.mark.parametrize(
    ("parameters", "names"),
    [("", ()), ("void", ()), ("float a\n#if X\n, int b\n#endif\n", None), ("int a, ...", None), ("int a, int a", None)],
)
def test_the_list_of_parameters(parameters: str, names: tuple[str, ...] | None) -> None:
    assert names_of(parameters) == names


def test_what_defines_a_kernel_and_what_does_not() -> None:
    text = rb"""
// __global__ void no(int x) {}
const char* s = "__global__ void no(int x) {}"; const char* r = R"x(__global__ void no(int x) {})x"; char c = '{';
__global__ void no(int x);
template __global__ void no<float>(float x);
struct Q { __global__ static void no(int x) {} };
namespace a { namespace b::c {
template <typename T, int N = (3 > 2)>
__global__ void __launch_bounds__(128, 2) one(const T* x, int n) { if (n < 1'000) { } }
} extern "C" { __global__ [[maybe_unused]] LAUNCH(3) void two(void) noexcept {} } }
extern "C" __global__ __launch_bounds__(32) void \
three(int y) {}
#ifdef X
void f() {
#else
void g() {
#endif
}
namespace { __global__ void no(int x) {} }
__global__ void four(int z) {}
"""
    found = {kernel.name: (kernel.is_c, kernel.names) for kernel in find_kernels(text)}
    assert found == {
        "a::b::c::one": (False, ("x", "n")),
        "a::two": (True, ()),
        "three": (True, ("y",)),
        "four": (False, ("z",)),
    }


_WORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda word: not keyword.iskeyword(word))
_TYPES = st.sampled_from(
    ["float", "const T*", "ns::S<a, (b > c)>", "S<a == b, c>", "unsigned long", "T (&)[2]", "struct S"]
)


@pytest.mark.slow
@given(st.lists(st.tuples(_TYPES.filter(lambda t: "&" not in t), st.none() | _WORDS.map("p_{}".format)), max_size=6))
def test_names_are_found_in_their_order_or_not_at_all(parameters: list[tuple[str, str | None]]) -> None:
    names = tuple(name for _, name in parameters)
    found = names_of(", ".join(f"{type_} {name or ''}" for type_, name in parameters))
    given = [name for name in names if name]
    assert found == (names if len(set(given)) == len(given) else None)


@pytest.mark.slow
@given(st.binary(max_size=200).map(lambda data: b"__global__ void k(" + data))
def test_any_text_is_read(text: bytes) -> None:
    find_kernels(text)


def test_what_nvccs_front_end_makes_tells_names_and_types() -> None:
    code = """__global__ __var_used__ void c(
# 6 "z.cu"
float *a,
# 6 "z.cu"
int b,  int __T1){
}
__attribute__((nv_weak_odr)) __global__ void _Z1tIfEvPKT_(const float *__restrict__ in){ }"""
    stubs = "static void __device_stub__ZN2ns1cEPfii(float *, int, int);"
    assert read_front_end(code, stubs, {"c": 3, "_Z1tIfEvPKT_": 1, "_Z1ui": 1}) == {
        "c": (("a", "float*"), ("b", "int"), (None, "int")),
        "_Z1tIfEvPKT_": (("in", "float const*"),),
        "_Z1ui": ((None, "int"),),
    }
    assert read_front_end("", "", {"c": 1}) == {"c": ((None, None),)}
