"""Checks between fragments: one definition for one name, one layout for one interface."""

from __future__ import annotations

import pytest

from jitlto.base.errors import CompileError
from jitlto.base.versions import Architecture
from jitlto.build import proof
from jitlto.build.proof import UnplannedKernelsError
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions
from tests.conftest import BuildFamily
from tests.support.compiled import compiled
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.index import open_written


def fragment(group: str, text: str, role: Role = Role.DEVICE, **parameters: str) -> Fragment:
    result = compiled(text)
    entry = next((s.name for s in result.module.provides if s.kind.value == "kernel"), "")
    key = FragmentKey.make("f", group, parameters)
    return Fragment(key, role, entry, (), result.module.provides, result.module.requires, ())


def check(*fragments: Fragment) -> None:
    """Check fragments as a build does."""
    groups = tuple(
        GroupRecord(name, role, (), None, False) for name, role in {f.key.group: f.role for f in fragments}.items()
    )
    family = FamilyRecord("f", (), LinkOptions(), (Architecture(75),), groups, ())
    with open_written(fragments, [family]) as database:
        proof.require_kernels(database)


KERNEL = "{helper}__device__ float op(float); __global__ void k(float* x) {{ x[0] = op(x[0]) + {call}; }}"
OP = "{helper}__device__ float op(float x) {{ return x + {call}; }}"
HELPERS = {
    "inline": ("__device__ inline float help(float x) { return x * %s; }\n", "help(1)"),
    "noinline": ("__device__ __noinline__ inline float help(float x) { return x * %s; }\n", "help(1)"),
    "forceinline": ("__device__ __forceinline__ float help(float x) { return x * %s; }\n", "help(1)"),
    "template": ("template <class T> __device__ T help(T x) { return x * %s; }\n", "help(1.f)"),
    "member": ("struct S { __device__ float help(float x) { return x * %s; } };\n", "S().help(1)"),
    "variable": ("template <class T> __device__ T value = %s; \n", "value<float>"),
}


def pair(kind: str, one: str, other: str) -> tuple[Fragment, Fragment]:
    helper, call = HELPERS[kind]
    return (
        fragment("kern", KERNEL.format(helper=helper % one, call=call), Role.ENTRYPOINT),
        fragment("op", OP.format(helper=helper % other, call=call)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", HELPERS)
def test_one_helper_with_one_body_is_fine(kind: str) -> None:
    check(*pair(kind, "2", "2"))


@pytest.mark.slow
def test_a_helper_in_an_anonymous_namespace_is_each_ones_own() -> None:
    helper = "namespace {{ __device__ __noinline__ float help(float x) {{ return x * {}; }} }}\n"
    check(
        fragment("kern", KERNEL.format(helper=helper.format(2), call="help(1)"), Role.ENTRYPOINT),
        fragment("op", OP.format(helper=helper.format(3), call="help(1)")),
    )


ALTERNATIVE = "template <class T> __device__ T op(T x) {{ return x {op} x; }} template __device__ float op(float);"
GENERIC = "template <class T> __device__ T op(T); __global__ void k(float* x) { x[0] = op(x[0]); }"


@pytest.mark.slow
def test_alternatives_of_one_interface_are_fine() -> None:
    check(
        fragment("kern", GENERIC, Role.ENTRYPOINT),
        fragment("op", ALTERNATIVE.format(op="+"), op_name="twice"),
        fragment("op", ALTERNATIVE.format(op="*"), op_name="square"),
    )  # fmt: skip


STRONG = "__device__ __noinline__ float help(float x) { return x; }\n"
WEAK = "__device__ __noinline__ inline float help(float x) { return x; }\n"


@pytest.mark.slow
def test_a_function_that_is_inline_in_one_fragment_alone_is_refused_where_the_two_meet() -> None:
    kernel = fragment("kern", KERNEL.format(helper=STRONG, call="help(1)"), Role.ENTRYPOINT, data_type="float")
    with raises(UnplannedKernelsError, None, "help(float)", "f/kern[data_type=float]", "f/op[]"):
        check(kernel, fragment("op", OP.format(helper=WEAK, call="help(1)")))


def made(group: str, provides: str = "", requires: str = "", role: Role = Role.DEVICE, **parameters: str) -> Fragment:
    """A fragment of functions that are not inline, by their names; with ``*``, inline."""

    def symbols(names: str) -> tuple[Symbol, ...]:
        return tuple(
            Symbol(f"_Z{len(n)}{n}f", SymbolKind.FUNCTION, "(4)(4)", weak)
            for name in names.split()
            for n, weak in [(name.rstrip("*"), name.endswith("*"))]
        )

    return Fragment(FragmentKey.make("f", group, parameters), role, "", (), symbols(provides), symbols(requires), ())


KERN = made("kern", requires="op", role=Role.ENTRYPOINT)


def test_a_helper_may_be_inline_where_it_is_not_if_the_two_never_meet() -> None:
    kernels = [made(f"kern{n}", requires=f"op{n}", role=Role.ENTRYPOINT) for n in "12"]
    one, other = made("op1", "op1 help"), made("op2", "op2 help*")
    check(*kernels, one, other)
    with raises(UnplannedKernelsError, None, "help(float)", "f/op1[]", "f/op2[]"):
        check(made("kern", requires="op1 op2", role=Role.ENTRYPOINT), one, other)


def test_an_inline_helper_of_kernel_and_group_is_no_implementation() -> None:
    kernel = made("kern", "help*", "op", role=Role.ENTRYPOINT)
    check(kernel, made("op", "op help*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declaration", "call", "definition"),
    [
        ("__device__ float op(float);", "op(x[0])", "__device__ float op(double x) { return x; }"),
        ("__device__ float op(float);", "op(x[0])", "__device__ double op(float x) { return x; }"),
        ("__device__ float op(float);", "op(x[0])", "__device__ float op(float x, int) { return x; }"),
        ("struct P { float x, y; }; __device__ float op(P);", "op(P{})",
         "struct P { float x, y, z; }; __device__ float op(P p) { return p.x; }"),
        ("extern __constant__ float op[4];", "op[threadIdx.x]", "__constant__ float op[5] = {};"),
        ("extern __constant__ float op[4];", "op[threadIdx.x]", "__device__ float op[4] = {};"),
    ],
)  # fmt: skip
def test_extern_c_declarations_that_differ_in_layout(declaration: str, call: str, definition: str) -> None:
    kernel = f'extern "C" {{ {declaration} }} __global__ void k(float* x) {{ x[0] = {call}; }}'
    with raises(UnplannedKernelsError, None, "f/kern[] calls it with layout", "f/op[]: defines op with layout"):
        check(fragment("kern", kernel, Role.ENTRYPOINT), fragment("op", f'extern "C" {{ {definition} }}'))


@pytest.mark.slow
def test_a_declaration_of_an_unsized_array_fits_any_size() -> None:
    kernel = 'extern "C" { extern __constant__ float op[]; } __global__ void k(float* x) { x[0] = op[threadIdx.x]; }'
    provider = fragment("op", 'extern "C" { __constant__ float op[5] = {}; }')
    check(fragment("kern", kernel, Role.ENTRYPOINT), provider)


@pytest.mark.slow
def test_a_kernel_must_exist_for_every_architecture(build_family: BuildFamily) -> None:
    files = dict(MINI)
    files["family.toml"] = files["family.toml"].replace('name = "mini"', 'name = "mini"\narchs = ["75", "90"]')
    files["kern.cu.jinja"] = "#if __CUDA_ARCH__ < 900\n" + files["kern.cu.jinja"] + "\n#endif\n"
    with pytest.raises(CompileError) as caught:
        build_family(files)
    assert "compute_75" in caught.value.what
    assert "compute_90" in caught.value.what


@pytest.mark.slow
def test_a_build_refuses_what_is_inline_in_one_fragment_of_a_kernel_alone(build_family: BuildFamily) -> None:
    kernel = MINI["kern.cu.jinja"].replace("if (i < n)", "if (i < n && help(1.f) > 0)")
    files = MINI | {
        "kern.cu.jinja": STRONG + kernel,
        "op.cu.jinja": WEAK + MINI["op.cu.jinja"].replace("return", "return T(help(1.f)) *"),
    }
    with raises(UnplannedKernelsError, None, "help(float)", "mini/kern", "mini/op"):
        build_family(files)
