"""Kernels as their sources define them: names where they can be told for sure, and none where not."""

import pytest

from jitlto.compile.signatures import Parameters, find_parameters
from jitlto.cuda.toolkit import find_binary
from tests.conftest import BuildFamily

needs_nvcc = pytest.mark.skipif(find_binary("nvcc") is None, reason="needs nvcc")


def find(text: str, *options: str, name: str = "k", most: int = 8) -> Parameters | None:
    """Return the parameters that a text tells, of whichever number."""
    found = [made for n in range(most) for _, made in find_parameters([text.encode()], options, [(name, n)])]
    return found[0] if len(found) == 1 else None


def names_of(parameters: str) -> tuple[str | None, ...] | None:
    made = find(f"__global__ void k({parameters}) {{}}")
    return None if made is None else tuple(name for name, _ in made)


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("float x", "x"),
        ("const float* __restrict__ x", "x"),
        ("ns::box<int, float> x", "x"),
        ("typename T::type x", "x"),
        ("const __grid_constant__ S x", "x"),
        ("int x = f(1, 2)", "x"),
        ("T<(3 > 2), 1> x", "x"),
        ("decltype(f(1, 2)) x", "x"),
        ("float x /* , int y */", "x"),
        ("RESTRICTED(float) x", "x"),
        # No name, or none that is sure.
        ("float", None),
        ("S", None),
        ("ns::S", None),
        ("ns::box<int>", None),
        ("T<(N <= 2)> = 1", None),
        ("float*", None),
        ("float (*)(float, int)", None),
        ("MACRO(float, x)", None),
        ("float (*x)(float, int)", None),
        ("int (*x)[3]", None),
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
    expected = {"one": ("x", "n"), "two": (), "three": ("y",), "four": ("z",), "no": None}
    for name, names in expected.items():
        made = find(text.decode(), name=name)
        assert (None if made is None else tuple(n for n, _ in made)) == names


@pytest.mark.parametrize(
    "macros",
    [
        "#define N n_real\n__global__ void k(float* x, int N) {}",
        "#define N n_real\n__global__ void k(float* x, int N) {}\n#undef N\n",
        "#define TWO float* a, int b\n__global__ void k(TWO) {}",
        "#define P(t, n) t n\n__global__ void k(P(float*, a), int b) {}",
        "#define FIRST float* a, int\n#define NONE\n__global__ void k(FIRST b NONE) {}",
        *(
            f"{define} N n_real\n__global__ void k(float* x, int N) {{}}\n#undef N"
            for define in ("%:define", "# /* c */ define", "#def\\\nine", "/* c */ #define", "#/*\n*/define")
        ),
        "__global__ void k(float* x, int OPTION) {}\n#undef OPTION",
        # A macro defines the kernel, and what looks like its definition is none.
        "#define K __global__ void k(float* x, int real) {\nK }\n#if 0\n__global__ void k(float* y, int z) {}\n#endif",
        "#define kk k\n#if 0\n__global__ void k(float* y, int z) {}\n#endif\n__global__ void kk(float* x, int real) {}",
        "#define K __global__ void k(float* x, int n) {\n#define DROP(...)\nK }\nDROP(__global__ void k(int z) {})",
        "#if A\n__global__ void k(float* y, int z) {}\n#else\n__global__ void k(float* x, int n) {}\n#endif",
    ],
)
def test_a_macro_never_gives_a_wrong_name(macros: str) -> None:
    assert all(name is None for name, _ in find(macros) or ())


def test_a_macro_of_an_option_hides_a_name_too() -> None:
    assert find("__global__ void k(float* x, int n) {}", "-Dn=m") is None


def test_definitions_are_told_apart_by_the_number_of_their_parameters() -> None:
    text = "#ifdef A\n__global__ void k(int a) {}\n#else\n__global__ void k(float b, int c) {}\n#endif"
    found = dict(find_parameters([text.encode()], (), [("_Z1ki", 1), ("_Z1kfi", 2)]))
    assert found == {"_Z1ki": (("a", "int"),), "_Z1kfi": (("b", "float"), ("c", "int"))}


def test_types_are_those_of_numbers_and_pointers() -> None:
    text = "const float* __restrict__ x, unsigned n, void* v, int64_t* const p, int a[4], S s, S* t, __int128 w"
    assert find(f'extern "C" __global__ void k({text}) {{}}', most=10) == (
        ("x", "float const*"),
        ("n", "unsigned int"),
        ("v", "void*"),
        ("p", "long long*"),
        ("a", "int*"),
        ("s", None),
        ("t", "S*"),
        ("w", "__int128"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("toolchain", ["nvrtc", pytest.param("nvcc", marks=needs_nvcc)])
def test_parameters_by_grid_constant_keep_their_names(build_family: BuildFamily, toolchain: str) -> None:
    kernel = """struct limits { float low, high; };
namespace n { template <class T> struct box { T each[3]; }; }
__global__ void kern(const __grid_constant__ limits bounds, __grid_constant__ const int count, float* __restrict__ out,
                     const __grid_constant__ n::box<float> other) {
  *out = bounds.low + count + other.each[1];
}
"""
    toml = f'[family]\nname = "grid"\ntoolchain = "{toolchain}"\n'
    toml += '[entrypoint.kern]\nmatrix = "one.json"\ntemplate = "kern.cu.jinja"\n'
    (made,) = build_family({"family.toml": toml, "one.json": "{}", "kern.cu.jinja": kernel}).fragments
    assert [str(each) for each in made.signature] == ["limits bounds", "int count", "float* out", "n::box<float> other"]


def test_a_header_that_defines_what_has_no_type_for_old_compilers_hides_no_name() -> None:
    made = find("#ifndef __grid_constant__\n#define __grid_constant__\n#endif\n"
                "__global__ void k(const __grid_constant__ S s) {}")  # fmt: skip
    assert made == (("s", None),)
