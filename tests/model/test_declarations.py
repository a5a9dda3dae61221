"""What is read of headers and sources where the front end proves nothing."""

from __future__ import annotations

import pytest

from jitlto.model.declarations import Conflict, find_conflicts, read_declarations
from jitlto.model.options import option_macros

INTERFACE = b"""#define WIDTH 4
template <class T> struct L { float a; };
#define SPECIAL(T) template <> struct L<T> { float b; }
template <class T> __device__ int pick(const T& value);
template <class T> struct M { decltype(pick(T())) a; };
template <class T> constexpr int count = 2;
struct Open;
"""


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        (b"#undef WIDTH", "undef", "WIDTH"),
        (b"#undef WIDTH\n#define WIDTH 3", "macro", "WIDTH"),
        (b"template <> struct L<int> { };", "specialisation", "L"),
        (b"template <> struct API ::L<int> final { };", "specialisation", "L"),
        (b"SPECIAL(int);", "specialisation", "L"),
        (b"#define MINE(T) \\\n template <> struct L<T>", "specialisation", "L"),
        (b"#define MINE(T) \\\n template <> struct L<T> { }", "specialisation", "L"),
        (b"#define NAME ::n::L\ntemplate <class T> class NAME<T*> { };", "specialisation", "L"),
        (b"template <> constexpr int count<int> = 3;", "specialisation", "count"),
        (b"__device__ float pick(int);", "overload", "pick"),
        (b"template <class U> __device__ int pick(const U&);", "overload", None),
        (b"template <class U, class V> __device__ int pick(const V&) { }", "overload", "pick"),
        (b"struct Own { };\n__device__ float pick(const Own& own, int);", "overload", None),
        (b"void other() { pick(1); }\nstruct S { int pick(int); };", "overload", None),
        (b"struct Own { };\ntemplate <> struct L<Own> { };", "specialisation", None),
        (b"struct Own;\ntemplate <> struct L<Own*> { };", "specialisation", "L"),
        (b"struct Open { };", "definition", "Open"),
    ],
)  # fmt: skip
def test_what_a_source_must_not_do_behind_an_interface(text: bytes, kind: str, name: str | None) -> None:
    found = list(find_conflicts(text, {"f.cuh": INTERFACE}))
    assert found == ([Conflict(kind, name, "f.cuh")] if name else [])


def test_macros_of_options() -> None:
    options = ["-DA=1", "-D B", "--undefine-macro=C", "--extended-lambda", "-Xcompiler=-O2,-DD,-UE"]
    assert set(option_macros(options)) == {"A", "B", "C", "D", "E"}


@pytest.mark.parametrize(
    ("condition", "macros"),
    [
        ("#ifdef __CUDACC_EXTENDED_LAMBDA__", {"__CUDACC_EXTENDED_LAMBDA__"}),
        ("#if defined(__cpp_concepts) && __cplusplus > 1", {"__cpp_concepts"}),
        ("#if defined(__CUDACC_RTC__) || defined(__NVCC__) || __CUDA_ARCH__ > 750 || _MSC_VER", set()),
        ("#ifndef WIDE", set()),
    ],
)
def test_macros_of_the_compiler_that_a_header_asks_for(condition: str, macros: set[str]) -> None:
    read = read_declarations(f"{condition}\nint x;\n#endif\n".encode())
    assert read.asks_compiler == macros
    assert read.asks_standard == ("__cp" in condition)
    assert not read_declarations(f"void f() {{\n{condition}\n#endif\n}}\n".encode()).asks_compiler
