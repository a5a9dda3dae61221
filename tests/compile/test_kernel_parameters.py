"""Names and types of a kernel's parameters, from the compile that is made anyway, by each toolchain."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.mangling import base_name, parameter_types
from jitlto.base.versions import Architecture
from jitlto.compile.compiler import CompiledSource, CompileJob, Toolchain, find_toolchain
from jitlto.compile.kernel_probe import NO_PROBE, make_probe
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from tests.support.errors import raises

TOOLCHAINS = ["nvrtc", pytest.param("nvcc", marks=pytest.mark.slow)]


@cache
def toolchain(name: str) -> Toolchain:
    try:
        return find_toolchain(name)
    except ToolchainError as error:
        pytest.skip(error.what)


def compile_text(name: str, text: str, *options: str, asked: bool = True) -> CompiledSource:
    tool, source = toolchain(name), text.encode()
    probe = make_probe([source]) if asked else NO_PROBE
    options = ("--std=c++17", *options)
    images = (ImageKind.LTOIR, ImageKind.PTX)
    job = CompileJob(name, tool.identity, Source(source, {}), (Architecture(75),), options, images, 1, probe)
    return tool.compile(job)


def parameters(name: str, text: str, *options: str) -> dict[str, Any]:
    return {base_name(kernel): found for kernel, found in compile_text(name, text, *options).parameters}


TYPES = """
typedef unsigned int u32; typedef const u32* cup; struct S { float a; int b; }; enum class E : short { A };
namespace ns { template <class T> struct box { T t; }; using real = double; typedef S alias; }
extern "C" __global__ void __launch_bounds__(128)
    k(const float* __restrict__ x, u32 n, cup p, u32* const* pp, float (*f)(float, int), int arr[4], const int c,
      long long l, unsigned long m, bool q, signed char y, void* v, S s, ns::alias a, E e, const __grid_constant__ S g,
      S* const sp) { *(int*)v = n; }
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLCHAINS)
def test_an_extern_c_kernel_has_names_and_the_types_that_the_compiler_sees(name: str) -> None:
    assert parameters(name, TYPES)["k"] == (
        ("x", "float const*"),
        ("n", "unsigned int"),
        ("p", "unsigned int const*"),
        ("pp", "unsigned int* const*"),
        ("f", "float (*)(float, int)"),
        ("arr", "int*"),
        ("c", "int"),
        ("l", "long long"),
        ("m", "unsigned long"),
        ("q", "bool"),
        ("y", "signed char"),
        ("v", "void*"),
        *((n, "S") for n in "sa"),
        ("e", "E"),
        ("g", "S"),
        ("sp", "S*"),
    )


SPELLED = """
int S::*m, int (S::*f)(int), int (*const b)[3], const float (*c)[2][4], int (**g)(S*), void (*)(int, float),
float (&e)[2], const S& h, const float (&)[2][3], float* (&)[2], const float* (*)[2], void (&)(int, float*), n::E&,
const S (&)[4], float* const (&)[2], const volatile int* o, volatile float* q, const float& r, long double* s,
char16_t u, char32_t v, wchar_t w, decltype(nullptr) x, n::T (*z)[3], const n::T* const (*)[3][4], float*& i,
const float* const& j, int (*(&k)[2])(float), box<box<float*>>& l, float (*(*y)[2])[3], const volatile int (&)[2],
float* (*aa)(int), long& cc, unsigned char const volatile* const* dd
"""
WIDE = ", __int128 a, unsigned __int128 d, __int128* p, const __int128& ee, box<__int128> ff, int (*gg)(__int128)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "listed", "options"),
    [
        ("nvrtc", SPELLED, ()),
        ("nvrtc", SPELLED + WIDE, ("--device-int128",)),
        ("nvrtc", SPELLED + ", char8_t t", ("--std=c++20",)),
        ("nvcc", SPELLED + WIDE, ()),
    ],
)
def test_types_of_an_extern_c_kernel_are_spelled_as_those_of_another(
    name: str, listed: str, options: tuple[str, ...]
) -> None:
    both = f"""struct S {{ int x; }}; template <class T> struct box {{ T t; }};
namespace n {{ enum class E : short {{ A }}; struct T {{ int x; }}; }}
extern "C" __global__ void k({listed}) {{}}
__global__ void other({listed}) {{}}
"""
    compiled = dict(compile_text(name, both, *options).parameters)
    (mangled,) = (kernel for kernel in compiled if kernel != "k")
    assert [type_ for _, type_ in compiled["k"]] == parameter_types(mangled)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLCHAINS)
def test_kernels_in_namespaces_templates_and_pairs(name: str) -> None:
    found = parameters(
        name,
        """namespace ns { extern "C" __global__ void one(int a) {}
template <class T> __global__ void two(const T* in, T val) {}
template __global__ void two<float>(const float*, float); }
__global__ void three(int, float last) {}
__global__ void four() {}""",
    )
    assert found["one"] == (("a", "int"),)
    assert [n for n, _ in found["two"]] == ["in", "val"]
    assert [n for n, _ in found["three"]] == [None, "last"]
    assert found["four"] == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLCHAINS)
def test_a_kernel_that_a_macro_chooses(name: str) -> None:
    text = """
#ifdef FIRST
namespace ns { extern "C" __global__ void k(int a) {} }
#else
extern "C" __global__ void k(float b, int c) {}
#endif
#ifdef SECOND
extern "C" __global__ void other(int a) {}
#endif
"""
    assert parameters(name, text) == {"k": (("b", "float"), ("c", "int"))}
    assert parameters(name, text, "-DFIRST") == {"k": (("a", "int"),)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "macros",
    [
        "#define N n_real\n__global__ void k(float* x, int N) {}",
        "#define N n_real\n__global__ void k(float* x, int N) {}\n#undef N\n",
        "#define TWO float* a, int b\n__global__ void k(TWO) {}",
        "#define P(t, n) t n\n__global__ void k(P(float*, a), int b) {}",
        "#define FIRST float* a, int\n#define NONE\n__global__ void k(FIRST b NONE) {}",
        '#define SHIFT float* a, int b\nextern "C" __global__ void k(SHIFT) {}',
        *(
            f"{define} N n_real\n__global__ void k(float* x, int N) {{}}\n#undef N"
            for define in ("%:define", "# /* c */ define", "#def\\\nine", "/* c */ #define", "#/*\n*/define")
        ),
        "__global__ void k(float* x, int OPTION) {}\n#undef OPTION",
        # A macro defines the kernel, and what looks like its definition is none.
        "#define K __global__ void k(float* x, int real) {\nK }\n#if 0\n__global__ void k(float* y, int z) {}\n#endif",
        "#define kk k\n#if 0\n__global__ void k(float* y, int z) {}\n#endif\n__global__ void kk(float* x, int real) {}",
        """#define K __global__ void k(float* x, int n_real) {
           #define DROP(...)
           K }
           DROP(__global__ void k(float* y, int z) {})""",
    ],
)
def test_a_macro_never_gives_a_wrong_name(macros: str) -> None:
    """NVRTC does not tell what it made of them: no name is known. nvcc's front end tells."""
    assert all(name is None for name, _ in parameters("nvrtc", macros).get("k", ()))


@pytest.mark.slow
def test_a_macro_that_hides_nothing_does_no_harm() -> None:
    text = "#define RESTRICT __restrict__\n#define REAL float\n__global__ void k(REAL* RESTRICT x, int n) {}"
    assert [name for name, _ in parameters("nvrtc", text)["k"]] == ["x", "n"]


@pytest.mark.slow
def test_a_macro_of_an_option_is_known_to_the_compiler_alone() -> None:
    text = "__global__ void k(float* x, int n) {}"
    assert [name for name, _ in parameters("nvrtc", text, "-Dn=m")["k"]] == [None, None]


@pytest.mark.slow
def test_the_names_that_nvcc_makes_up_for_a_pack_are_none() -> None:
    text = "template <class... T> __global__ void k(T... a) {}\ntemplate __global__ void k<int, float>(int, float);"
    assert parameters("nvcc", text)["k"] == ((None, "int"), (None, "float"))


@pytest.mark.slow
def test_nvcc_tells_the_names_that_macros_make() -> None:
    text = "#define N n_real\n#define TWO float* a, int b\n__global__ void k(TWO, int N) {}"
    assert [name for name, _ in parameters("nvcc", text)["k"]] == ["a", "b", "n_real"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [TYPES, '#include "none.h"\n' + TYPES.replace("k(", "k2("), "__global__ void k(int a) {}"]
)
def test_asking_changes_no_byte(text: str) -> None:
    text = text.removeprefix('#include "none.h"\n')
    asked, plain = compile_text("nvrtc", text), compile_text("nvrtc", text, asked=False)
    assert asked.images == plain.images
    assert (asked.log, plain.parameters) == (plain.log, ())
    assert asked.parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        'struct k; extern "C" __global__ void other(int b) {}\n#if 0\nextern "C" __global__ void k(int a) {}\n#endif',
        'namespace n { extern "C" __global__ void k(int a) {} }\n#define n m\n',
        '#define EXTRA(x) x\nEXTRA(namespace m {) extern "C" __global__ void k(int a) {} EXTRA(})',
    ],
)
def test_a_question_that_does_not_compile_is_not_asked(text: str) -> None:
    assert compile_text("nvrtc", text).images == compile_text("nvrtc", text, asked=False).images


def test_a_source_that_does_not_compile_has_its_own_errors_alone() -> None:
    with raises(CompileError) as caught:
        compile_text("nvrtc", 'extern "C" __global__ void k(int a) { no(); }')
    assert "jitlto_probe" not in caught.value.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "line"),
    [("--diag-suppress=1215", ""), ("-diag-error=1215,177", ""), ("-Xcudafe=--diag_error=1215", ""),
     ("-Xcudafe=--diag_remark=1215", ""), ("-Xcudafe=--diag_suppress=1215,1444", ""), ("--no-display-error-number", ""),
     ("-DX", "#pragma nv_diag_suppress deprecated_entity"), ("-DX", "#pragma nv_diag_error 1215")],
)  # fmt: skip
def test_what_is_made_of_single_warnings_does_not_matter(option: str, line: str) -> None:
    text = f'{line}\nextern "C" __global__ void k(const float* p, int n) {{ *(float*)p = n; }}\n'
    assert parameters("nvrtc", text, option) == {"k": (("p", "float const*"), ("n", "int"))}


@pytest.mark.slow
def test_a_warning_made_an_error_still_is_one_in_the_source() -> None:
    text = '[[deprecated]] __device__ int f(); extern "C" __global__ void k(int* p) { *p = f(); }'
    with raises(CompileError):
        compile_text("nvrtc", text, "--diag-error=1215,1444")


@pytest.mark.slow
def test_without_warnings_nothing_is_known() -> None:
    assert parameters("nvrtc", TYPES, "-w") == {}


NESTED = """
template <int N> struct Int {}; template <class... T> struct Tuple {}; template <class A, class B> struct Layout {};
namespace lib { template <class T, class U> struct Mainloop { T alpha; };
template <class T, class Op> __global__ void device_kernel(const T* in, T* out, Op op, Tuple<Op, T>* more, int n) {} }
"""
types = st.recursive(
    st.sampled_from(["float", "int", "const double*", "unsigned char", "Int<7>"]),
    lambda inner: (
        st.builds("Layout<{}, {}>".format, inner, inner)
        | st.builds("lib::Mainloop<float, {}>".format, inner)
        | st.lists(inner, min_size=1, max_size=6).map(lambda several: f"Tuple<{', '.join(several)}>")
    ),
    max_leaves=60,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(types, st.integers(0, 40))
@example("Tuple<" + ", ".join(f"Layout<Int<{n}>, Int<{n + 1}>>" for n in range(150)) + ">", 0)
@example("float", 40)
def test_the_parameters_of_a_kernel_with_a_name_of_any_length_are_those_that_the_compiler_sees(
    op: str, depth: int
) -> None:
    """The compiler itself compares the types that are told with its own."""
    op = f"lib::Mainloop<float, {'Tuple<' * depth}{op}{'>' * depth}>"
    expected = ["const float*", "float*", op, f"Tuple<{op}, float>*", "int"]
    made = f"template __global__ void lib::device_kernel<float, {op}>({', '.join(expected)});"
    (kernel,) = dict(compile_text("nvrtc", NESTED + made).parameters)
    told = parameter_types(kernel)
    assert told is not None
    same = "template <class, class> struct is {}; template <class T> struct is<T, T> { typedef int yes; };\n"
    asked = "\n".join(
        f"typedef is<{mine}, {theirs}>::yes ok{number};"
        for number, (mine, theirs) in enumerate(zip(told, expected, strict=True))
    )
    compile_text("nvrtc", f"{NESTED}{same}{asked}\n__global__ void k(int a) {{}}", asked=False)
    assert base_name(kernel) == "device_kernel"
