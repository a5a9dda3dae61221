"""Fragments from compiled sources: the checks of a group's role and of ``params``."""

import hashlib
import tempfile
from functools import cache
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError
from jitlto.base.types import UNKNOWN_TYPE
from jitlto.base.versions import Architecture
from jitlto.build.assemble import assemble
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.nvrtc import Compiler
from jitlto.families.declaration import GroupDeclaration
from jitlto.families.language import Template
from jitlto.families.matrix import Matrix
from jitlto.families.templates import RenderedHeaders, RenderedSource
from jitlto.record.fragment import Fragment, FragmentKey, ImageKind, Parameter, Role
from jitlto.record.headers import Source
from tests.support.compiled import forms
from tests.support.errors import raises


@cache
def compile_text(text: str) -> CompiledSource:
    compiler = Compiler()
    architectures = (Architecture(75), Architecture(80))
    source, images = Source(text.encode(), {}), forms(architectures)
    return compiler.compile(CompileJob("nvrtc", compiler.identity, source, architectures, ("--std=c++17",), images))


def make(
    text: str,
    params: tuple[str, ...] = (),
    *,
    role: Role = Role.ENTRYPOINT,
    entry: str | None = None,
) -> tuple[Fragment, dict[str, bytes]]:
    template = Path(tempfile.mkdtemp()) / "g.cu.jinja"
    template.write_text(text)
    (toml := template.with_name("family.toml")).write_text(f"[{role}.g]\nparams = {list(params)}\n")
    group = GroupDeclaration("g", role, (), None, template=template, params=params, entry=entry)
    made_of = toml, Matrix({}), Template(template, "cmake")
    rendered = RenderedSource(
        FragmentKey("f", "g"), group, {"a": "1"}, text, params, RenderedHeaders({}, {}, "g"), *made_of
    )
    return assemble(rendered, compile_text(text))


def refuse(code: str, text: str, *names: str, params: tuple[str, ...] = ()) -> None:
    """Expect an error with this code, whose message has the names, at a line of the template or the declaration."""
    with raises(BuildError, code, *names) as caught:
        make(text, params)
    assert caught.value.diagnostic.line, caught.value


KERNEL = """
namespace n {
template <class T> __global__ void k(const T* x, unsigned n) {}
template __global__ void k(const float*, unsigned);
}
"""
PARAMS = ("const float* x", "uint32_t n")


@pytest.mark.slow
def test_a_kernel_with_declared_parameters() -> None:
    fragment, _ = make(KERNEL, PARAMS)
    assert fragment.entry == "_ZN1n1kIfEEvPKT_j"
    assert fragment.signature == (Parameter("x", "float const*", 8, 8), Parameter("n", "unsigned int", 4, 4))


def test_a_kernel_without_declared_parameters_gives_them_numbers() -> None:
    fragment, _ = make(KERNEL)
    assert [(p.name, p.type) for p in fragment.signature] == [("arg0", "float const*"), ("arg1", "unsigned int")]


@pytest.mark.slow
def test_an_enum_is_told_from_a_structure_of_its_size() -> None:
    text = """
namespace n {
enum class color : short { red };
struct point { short x; };
template <class T> struct box { T x; };
}
enum old { a };
"""
    parameters = "n::color a, n::point b, old c, n::box<n::color> d, n::color* e, void (*f)(int), wchar_t g, short h"
    expected = [
        "enum n::color", "n::point", "enum old", "n::box<n::color>", "n::color*", "void (*)(int)", "wchar_t", "short",
    ]  # fmt: skip
    fragment, _ = make(f"{text} __global__ void k({parameters}) {{}}")
    assert [parameter.type for parameter in fragment.signature] == expected
    fragment, _ = make(f'{text} extern "C" __global__ void k(n::color a, old b) {{}}', ("enum n::color a", "old b"))
    assert [parameter.type for parameter in fragment.signature] == ["enum n::color", "enum old"]


def test_images_match_their_hashes() -> None:
    fragment, blobs = make(KERNEL, PARAMS)
    assert [(i.kind, i.architecture.number) for i in fragment.images] == [
        (ImageKind.LTOIR, 75), (ImageKind.LTOIR, 80), (ImageKind.PTX, 75),
    ]  # fmt: skip
    for image in fragment.images:
        assert hashlib.sha256(blobs[image.sha256]).hexdigest() == image.sha256
        assert len(blobs[image.sha256]) == image.size
        assert (image.ptx_isa is not None) == (image.kind is ImageKind.PTX)
    assert len(blobs) == 3


TWO = "namespace a { __global__ void one(int) {} } __global__ void two(int) {}"
OVERLOADS = "__global__ void k(int) {} __global__ void k(float) {}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "entry", "role", "code", "names"),
    [
        ("__device__ int f() { return 1; }", None, Role.ENTRYPOINT, "build-no-kernel", ()),
        ("template <class T> __global__ void k(T) {}", None, Role.ENTRYPOINT, "build-no-kernel", ("instantiate",)),
        (TWO, None, Role.ENTRYPOINT, "build-several-kernels", ("a::one(int)", "two(int)", "entry =")),
        (TWO, "three", Role.ENTRYPOINT, "build-no-kernel", ("'three'",)),
        (OVERLOADS, "k", Role.ENTRYPOINT, "build-several-kernels", ("'k'", "k(int)", "k(float)")),
        ("__global__ void k(int) {}", None, Role.DEVICE, "build-unexpected-kernel", ("k(int)",)),
        ("static __device__ int f() { return 1; }", None, Role.DEVICE, "build-nothing-provided", ()),
    ],
)
def test_a_source_that_does_not_suit_its_groups_role(
    text: str, entry: str | None, role: Role, code: str, names: tuple[str, ...]
) -> None:
    with raises(BuildError, code) as caught:
        make(text, role=role, entry=entry)
    assert [name for name in names if name not in f"{caught.value} {caught.value.hint}"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "name"), [("one", "_ZN1a3oneEi"), ("two", "_Z3twoi")])
def test_entry_selects_a_kernel(entry: str, name: str) -> None:
    assert make(TWO, entry=entry)[0].entry == name


C = 'extern "C" __global__ void k(const float* x, long long n, int3 size) {}'


@pytest.mark.slow
def test_the_parameters_of_an_extern_c_kernel_are_those_declared() -> None:
    fragment, _ = make(C, ("const float* x", "int64_t n", "int3 size"))
    assert fragment.entry == "k"
    assert [(p.name, p.type, p.size, p.alignment) for p in fragment.signature] == [
        ("x", "const float*", 8, 8), ("n", "int64_t", 8, 8), ("size", "int3", 12, 4),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "params", "code", "names"),
    [
        (C, (), "mismatch", ("3 parameters", "declares 0", 'extern "C"')),
        (C, ("const float* x", "int n", "int3 size"), "mismatch", ("'n'", "type int", "4 bytes", "takes 8")),
        (C, ("float x", "int64_t n", "int3 size"), "mismatch", ("'x'", "type float", "4 bytes", "takes 8")),
        (KERNEL, ("const float* x",), "mismatch", ("2 parameters", "declares 1")),
        (KERNEL, ("float* x", "unsigned n"), "mismatch", ("'x'", "float*", "float const*")),
        (KERNEL, ("const float* x", "unsigned x"), "duplicate", ("x, x",)),
        (KERNEL, ("const float*", "unsigned n"), "syntax", ("'const float*'",)),
        (KERNEL, ("", "unsigned n"), "syntax", ("''",)),
    ],
)
def test_params_that_contradict_the_kernel(
    text: str, params: tuple[str, ...], code: str, names: tuple[str, ...]
) -> None:
    refuse(f"build-params-{code}", text, *names, params=params)


NESTED = "template <class T> struct wrap {}; template <class T> __global__ void k(T* x, wrap<T> y, int n) {}\n"


def test_a_kernel_whose_name_nobody_reads_builds_with_types_of_params_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitlto.compile.signatures.parameter_types", lambda _: None)
    text = NESTED + "template __global__ void k<float>(float*, wrap<float>, int);"
    fragment, _ = make(text, ("x", "y", "n"))
    assert fragment.signature == (
        Parameter("x", UNKNOWN_TYPE, 8, 8),
        Parameter("y", UNKNOWN_TYPE, 1, 1),
        Parameter("n", UNKNOWN_TYPE, 4, 4),
    )
    fragment, _ = make(text, ("float* x", "wrap<float> y", "int n"))
    assert [parameter.type for parameter in fragment.signature] == ["float*", "wrap<float>", "int"]
    refuse("build-params-mismatch", text, "'n'", params=("float* x", "wrap<float> y", "double n"))


def test_a_kernel_with_a_name_of_thousands_of_characters_has_its_types_and_its_name() -> None:
    wide = ", ".join(f"wrap<wrap<int[{n}]>>" for n in range(1, 200))
    text = (
        NESTED
        + f"""template <class... T> struct pack {{}}; namespace n {{ using op = pack<{wide}>; }}
template __global__ void k<n::op>(n::op*, wrap<n::op>, int);"""
    )
    fragment, _ = make(text, entry="k")
    assert len(fragment.entry) > 2000
    first, second, third = (parameter.type for parameter in fragment.signature)
    assert (first.endswith("> >*"), second, third) == (True, f"wrap<{first[:-1]} >", "int")
    refuse("build-params-mismatch", text, "'n'", params=("x", "y", "float n"))
