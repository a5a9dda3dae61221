"""What is read of headers and sources where the front end proves nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile.declarations import Conflict, find_conflicts, read_declarations
from jitlto.compile.signatures import find_parameters
from jitlto.record.options import macro_values, option_macros

INTERFACE = b"""#define WIDTH 4
template <class T> struct L { float a; };
#define SPECIAL(T) template <> struct L<T> { float b; }
template <class T> __device__ int pick(const T& value);
template <class T> struct M { decltype(pick(T())) a; };
template <class T> constexpr int count = 2;
template <class T> struct B { char a[sizeof(measure(T()))]; };
struct Open;
"""


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        (b"#undef WIDTH", "undef", "WIDTH"),
        (b"template <> struct L<int> { };", "specialisation", "L"),
        (b"template <> struct L<int>::in { using type = int; };", "specialisation", "L"),
        (b"template <> enum L<int>::kind : int { one };", "specialisation", "L"),
        (b"SPECIAL(int);", "specialisation", "L"),
        (b"#define MINE(T) \\\n template <> struct L<T> { }", "specialisation", "L"),
        (b"template <> constexpr int count<int> = 3;", "specialisation", "count"),
        (b"__device__ float pick(int);", "overload", "pick"),
        (b"template <class U> __device__ int pick(const U&);", "overload", None),
        (b"template <class U, class V> __device__ int pick(const V&) { }", "overload", "pick"),
        (b"struct Own { };\n__device__ float pick(const Own& own, int);", "overload", None),
        (b"void other() { pick(1); }\nstruct S { int pick(int); };", "overload", None),
        (b"struct Own { };\ntemplate <> struct L<Own> { };", "specialisation", None),
        (b"struct Own;\ntemplate <> struct L<Own*> { };", "specialisation", "L"),
        (b"template <class T> L<(sizeof(T) >= 4)> own(T x);", "specialisation", None),
        (b"template <> constexpr int count<(2 >= 1)> = 3;", "specialisation", "count"),
        (b"struct Open { };", "definition", "Open"),
    ],
)  # fmt: skip
def test_what_a_source_must_not_do_behind_an_interface(text: bytes, kind: str, name: str | None) -> None:
    found = list(find_conflicts(text, {"f.cuh": INTERFACE}))
    assert found == ([Conflict(kind, name, "f.cuh")] if name else [])


def test_macros_of_options() -> None:
    options = ["-DA=1", "-D B", "--undefine-macro=C", "--extended-lambda", "-Xcompiler=-O2,-DD,-UE"]
    assert set(option_macros(options)) == {"A", "B", "C", "D", "E"}


def test_values_of_macros_are_the_same_in_every_spelling() -> None:
    for options in (["-DA", "-UB"], ["-D A=1", "--undefine-macro=B"], ["--define-macro=A=1", "-U B"]):
        assert macro_values(options) == {"A": "1", "B": None}
    assert macro_values(["-DA=", "--define-macro F(x)=x", "--minimal"]) == {"A": "", "F": "(x)x"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"static __device__ float scale, other[2] = {1};", {"scale", "other"}),
        (b"namespace { __device__ float scale; }", {"scale"}),
        (b"static __device__ const float* place;", {"place"}),
        (b"static __device__ float scale[] = {1, 2};", {"scale"}),
        (b"static __device__ const float scale = 1;\nstatic constexpr __device__ int n = 1;", set()),
        (b"extern __device__ float scale;\nstatic __constant__ float table[2];\nstatic int of_the_host;", set()),
        (b"static __device__ float f(float x) { static float y; return x; }", set()),
        (b"#if A\nint f(int x) {\n#else\nint f() {\n#endif\n}\nstatic __device__ float scale;", {"scale"}),
        (b"struct S { static __device__ float f(); };\nnamespace n { __device__ float scale; }", set()),
    ],
)
def test_variables_of_which_each_source_has_its_own(text: bytes, names: set[str]) -> None:
    assert read_declarations(text).internal == names


_PARTS = (
    *"<>(){}[];:=,", "template", "struct", "enum", "S", "T", "int", "const", "static", "operator", "__device__",
    "__global__", '"C"', "namespace", "typedef", "::", "/*", "*/", "//", "\\\n", '"', "'", 'R"(', ')"', "...", "\v",
    "\n#if A\n", "\n#else\n", "\n#endif\n", "\n#define M(x) template <> struct L<x> {\n", "M",
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.sampled_from(_PARTS), max_size=40).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    assert read_declarations(text.encode()).internal is not None
    assert list(find_conflicts(text.encode(), {"f.cuh": b""})) == []
    assert list(find_parameters([text.encode()], (), [("other", 1)])) == []
    assert {conflict.header for conflict in find_conflicts(text.encode(), {"f.cuh": INTERFACE})} <= {"f.cuh"}
