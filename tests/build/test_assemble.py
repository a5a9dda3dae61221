"""From a compiled source to a fragment: what a group's role promises, and what ``params`` declares."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

from jitlto.build.assemble import assemble
from jitlto.build.compilers.base import CompiledSource, CompileJob
from jitlto.build.compilers.nvrtc import Compiler
from jitlto.build.templates import RenderedSource
from jitlto.errors import BuildError
from jitlto.model.fragment import Fragment, FragmentKey, ImageKind, Parameter, Role
from jitlto.model.headers import Source
from jitlto.model.versions import Architecture
from jitlto.storage.declaration import GroupDeclaration


@cache
def unit(text: str) -> CompiledSource:
    compiler = Compiler()
    architectures = (Architecture(75), Architecture(80))
    source, images = Source(text.encode(), {}), tuple(ImageKind)
    return compiler.compile(CompileJob("nvrtc", compiler.identity, source, architectures, ("--std=c++17",), images))


def make(
    text: str, params: tuple[str, ...] = (), *, role: Role = Role.ENTRYPOINT, entry: str | None = None
) -> tuple[Fragment, dict[str, bytes]]:
    group = GroupDeclaration("g", role, Path("g.json"), Path("g.cu.jinja"), (), params, None, entry, "jinja")
    return assemble(RenderedSource(FragmentKey("f", "g"), group, {"a": "1"}, text, params), unit(text))


def failure(text: str, params: tuple[str, ...] = (), *, role: Role = Role.ENTRYPOINT, entry: str | None = None) -> str:
    with pytest.raises(BuildError) as caught:
        make(text, params, role=role, entry=entry)
    assert str(caught.value.where).startswith("g.cu.jinja (group g, a=1)")
    assert caught.value.hint
    return f"{caught.value.what}; {caught.value.hint}"


KERNEL = """
namespace n {
template <class T> __global__ void k(const T* x, unsigned n) {}
template __global__ void k(const float*, unsigned);
}
"""
PARAMS = ("const float* x", "uint32_t n")


def test_a_kernel_with_declared_parameters() -> None:
    fragment, _ = make(KERNEL, PARAMS)
    assert fragment.entry == "_ZN1n1kIfEEvPKT_j"
    assert fragment.signature == (Parameter("x", "float const*", 8, 8), Parameter("n", "unsigned int", 4, 4))


def test_a_kernel_without_declared_parameters_gives_them_numbers() -> None:
    fragment, _ = make(KERNEL)
    assert [(p.name, p.type) for p in fragment.signature] == [("arg0", "float const*"), ("arg1", "unsigned int")]


def test_a_kernel_without_parameters() -> None:
    assert make("__global__ void k() {}")[0].signature == ()
    assert make('extern "C" __global__ void k() {}')[0].signature == ()


def test_images_are_what_their_hashes_say() -> None:
    fragment, blobs = make(KERNEL, PARAMS)
    assert [(i.kind, i.architecture.number) for i in fragment.images] == [
        (ImageKind.LTOIR, 75), (ImageKind.LTOIR, 80), (ImageKind.PTX, 75),
    ]  # fmt: skip
    for image in fragment.images:
        assert hashlib.sha256(blobs[image.sha256]).hexdigest() == image.sha256
        assert len(blobs[image.sha256]) == image.size
        assert (image.ptx_isa is not None) == (image.kind is ImageKind.PTX)
    assert len(blobs) == 3


def test_no_kernel_in_an_entrypoint_group() -> None:
    assert "defines no __global__ function" in failure("__device__ int f() { return 1; }")
    assert "explicit instantiation" in failure("template <class T> __global__ void k(T) {}")


TWO = "namespace a { __global__ void one(int) {} } __global__ void two(int) {}"


def test_several_kernels_need_to_be_told_apart() -> None:
    message = failure(TWO)
    assert "defines 2 kernels" in message
    assert "a::one(int)" in message
    assert "two(int)" in message
    assert "entry =" in message


@pytest.mark.parametrize(("entry", "name"), [("one", "_ZN1a3oneEi"), ("two", "_Z3twoi")])
def test_entry_says_which_kernel_is_meant(entry: str, name: str) -> None:
    assert make(TWO, entry=entry)[0].entry == name


def test_an_entry_that_is_no_kernel_or_several() -> None:
    assert "has 0 kernels called 'three'" in failure(TWO, entry="three")
    overloads = "__global__ void k(int) {} __global__ void k(float) {}"
    assert "has 2 kernels called 'k'" in failure(overloads, entry="k")


def test_a_kernel_in_a_device_group() -> None:
    assert "defines a kernel, k(int), in a device group" in failure("__global__ void k(int) {}", role=Role.DEVICE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'extern "C" __device__ __forceinline__ int f() { return 1; }',
        "static __device__ int f() { return 1; }",
        "template <class T> __device__ T f(T x) { return x; }",
        "__device__ inline int f() { return 1; }",
    ],
)
def test_a_device_group_that_defines_nothing(text: str) -> None:
    assert "defines nothing that another fragment could call" in failure(text, role=Role.DEVICE)


def test_a_device_group_may_define_a_variable_alone() -> None:
    fragment, _ = make("__constant__ float table[4] = {1, 2, 3, 4};", role=Role.DEVICE)
    assert [s.name for s in fragment.provides] == ["table"]
    assert (fragment.entry, fragment.signature) == ("", ())


C = 'extern "C" __global__ void k(const float* x, long long n, int3 size) {}'


def test_the_parameters_of_an_extern_c_kernel_are_those_declared() -> None:
    fragment, _ = make(C, ("const float* x", "int64_t n", "int3 size"))
    assert fragment.entry == "k"
    assert [(p.name, p.type, p.size, p.alignment) for p in fragment.signature] == [
        ("x", "const float*", 8, 8), ("n", "int64_t", 8, 8), ("size", "int3", 12, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        (C, (), 'takes 3 parameters, but params declares 0.*extern "C"'),
        (C, ("const float* x",), "takes 3 parameters, but params declares 1"),
        (C, ("const float* x", "int n", "int3 size"), "parameter 'n' of type int has 4 bytes, but the kernel takes 8"),
        (C, ("float x", "int64_t n", "int3 size"), "parameter 'x' of type float has 4 bytes, but the kernel takes 8"),
        (C, ("const float* x", "int64_t n", "int* size"), "has 8 bytes, but the kernel takes 12"),
        (KERNEL, ("const float* x",), "takes 2 parameters, but params declares 1"),
        (KERNEL, (*PARAMS, "int m"), "takes 2 parameters, but params declares 3"),
        (KERNEL, ("float* x", "unsigned n"), r"'x' is declared as float\*, but the kernel takes float const\*"),
        (KERNEL, ("const double* x", "unsigned n"), r"'x' is declared as const double\*, but"),
        (KERNEL, ("const float* x", "int n"), "'n' is declared as int, but the kernel takes unsigned int"),
        (KERNEL, ("const float* x", "unsigned x"), "uses a name twice: x, x"),
        (KERNEL, ("const float*", "unsigned n"), "is not «type name»"),
        (KERNEL, ("const float* x[4]", "unsigned n"), "is not «type name»"),
        (KERNEL, ("", "unsigned n"), "is not «type name»"),
    ],
)
def test_params_that_contradict_the_kernel(text: str, params: tuple[str, ...], message: str) -> None:
    assert re.search(message, failure(text, params))
