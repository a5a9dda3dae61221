"""Checks between fragments: one definition for one name, one layout for one interface."""

from __future__ import annotations

import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.base.errors import BuildError, CompileError
from jitlto.base.versions import Architecture
from jitlto.build import validate
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind
from jitlto.record.index import agrees
from jitlto.record.options import LinkOptions
from tests.conftest import BuildFamily
from tests.support.compiled import compiled
from tests.support.errors import raises
from tests.support.families import MINI


def fragment(group: str, text: str, role: Role = Role.DEVICE, **parameters: str) -> Fragment:
    result = compiled(text)
    entry = next((s.name for s in result.module.provides if s.kind.value == "kernel"), "")
    key = FragmentKey.make("f", group, parameters)
    return Fragment(key, role, entry, (), result.module.provides, result.module.requires, ())


def check(*fragments: Fragment) -> None:
    names = dict.fromkeys((f.key.group, f.role) for f in fragments)
    groups = tuple(GroupRecord(name, role, (), None, False) for name, role in names)
    validate.check_fragments(FamilyRecord("f", (), LinkOptions(), (Architecture(75),), groups, ()), fragments)


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
    op = fragment("op", OP.format(helper=WEAK, call="help(1)"), data_type="double")
    kernel = fragment("kern", KERNEL.format(helper=STRONG, call="help(1)"), Role.ENTRYPOINT, data_type="float")
    check(kernel, op)
    with raises(BuildError, "build-conflicting-definitions", "help(float)", "f/kern[data_type=float]", "f/op[]"):
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


def test_inline_functions_that_fragments_share_are_known() -> None:
    meet = [made("kern", "help*", "op", role=Role.ENTRYPOINT), made("op", "op help*")]
    assert validate.shares_inline_functions(meet)
    assert not validate.shares_inline_functions([made("op", "op help*", n="1"), made("op", "op help*", n="2"), KERN])
    assert not validate.shares_inline_functions([KERN, made("op", "op*")])


def test_a_helper_may_be_inline_where_it_is_not_if_the_two_never_meet() -> None:
    kernels = [made(f"kern{n}", requires=f"op{n}", role=Role.ENTRYPOINT) for n in "12"]
    one, other = made("op1", "op1 help"), made("op2", "op2 help*")
    check(*kernels, one, other)
    with raises(BuildError, "build-conflicting-definitions", "help(float)", "f/op1[]", "f/op2[]"):
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
    with raises(BuildError, "build-layout-mismatch", "f/kern[] requires op", "f/op[] provides it"):
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


def _symbols(names: set[str]) -> tuple[Symbol, ...]:
    return tuple(Symbol(name, SymbolKind.FUNCTION, "()()", False) for name in sorted(names))


_names = st.sets(st.sampled_from(["f", "g"]), max_size=2)
_fragments = st.builds(
    lambda role, group, parameters, provides, requires, inline: Fragment(
        FragmentKey.make("f", group, parameters), role, "", (),
        (*_symbols(provides), *(replace(symbol, weak=True) for symbol in _symbols(inline - provides))),
        _symbols(requires), (),
    ),
    st.sampled_from(Role), st.sampled_from("ab"),
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=2), _names, _names,
    st.sets(st.sampled_from(["f", "h"]), max_size=2),
)  # fmt: skip


def _reached(group: str, fragments: list[Fragment]) -> set[str]:
    """Return the groups that a kernel of ``group`` may take fragments from: what they require is provided there."""
    reached: set[str] = set()
    more = {group}
    while more - reached:
        reached |= more
        required = {s.name for f in fragments if f.key.group in reached for s in f.requires}
        providers = (f for f in fragments if f.role is Role.DEVICE)
        more = {f.key.group for f in providers if any(s.name in required for s in f.provides)}
    return reached


@pytest.mark.slow
@given(st.lists(_fragments, max_size=6))
def test_what_is_inline_in_one_alone_is_refused_where_the_two_can_meet(fragments: list[Fragment]) -> None:
    interface = {s.name for f in fragments for s in f.requires}
    kernels = [_reached(f.key.group, fragments) for f in fragments if f.role is Role.ENTRYPOINT]

    def differ(a: Fragment, b: Fragment) -> bool:
        names, others = ({s.name: s.weak for s in f.provides} for f in (a, b))
        both = names.keys() & others.keys()
        if a.role is b.role is Role.ENTRYPOINT or both & interface or not agrees(a.key, dict(b.key.parameters)):
            return False
        if not any({a.key.group, b.key.group} <= groups for groups in kernels):
            return False
        return any(names[name] != others[name] for name in both)

    try:
        check(*fragments)
    except BuildError as error:
        refused = error.code == "build-conflicting-definitions"
        assert refused
    else:
        refused = False
    assert refused == any(differ(a, b) for a, b in combinations(fragments, 2))


@pytest.mark.slow
def test_thousands_of_kernels_with_helpers_of_one_name_are_checked_at_once() -> None:
    fragments = [
        Fragment(
            FragmentKey.make("f", f"group{number % 4}", {"n": str(number)}),
            Role.ENTRYPOINT if number % 2 else Role.DEVICE, "", (),
            tuple(Symbol(f"_Z4h{n:04}v", SymbolKind.FUNCTION, "()()", weak=True) for n in range(5))
            + _symbols({f"_Z4f{number:04}v"}),
            _symbols({f"_Z4g{number:04}v"}), (),
        )
        for number in range(2000)
    ]  # fmt: skip
    begin = time.perf_counter()
    check(*fragments)
    assert time.perf_counter() - begin < 10
