"""The proof of a build: kernels that lack something are errors, each cause once, with the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import CompileError
from jitlto.base.versions import Architecture
from jitlto.build import proof
from jitlto.build.proof import UnplannedKernelsError, prove_once, require_kernels
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels
from jitlto.plan.resolve import resolve
from jitlto.record.check_result import Cause
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role, SymbolKind
from jitlto.record.options import LinkOptions
from tests.conftest import BuildFamily
from tests.plan.test_resolve import HELPER, OP, OP_DOUBLE, fragment, function, kernel
from tests.support.compiled import compiled
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.index import index_of, open_written

pytestmark = pytest.mark.one_major

MORE = "_Z4morei"
INLINE_OP = function(OP, weak=True)


def record(
    *fragments: Fragment, name: str = "f", supplied: bool = False, uses: tuple[str, ...] = (), headers: str = ""
) -> FamilyRecord:
    names = dict.fromkeys((f.key.group, f.role) for f in fragments if f.key.family == name)
    groups = [GroupRecord(group, role, (), None, False) for group, role in names]
    groups += [GroupRecord("user", Role.DEVICE, (), "user.cuh", True)] * supplied
    texts = (("user.cuh", headers),) if supplied else ()
    return FamilyRecord(name, (), LinkOptions(), (Architecture(75),), tuple(groups), texts, uses)


def prove(
    families: list[FamilyRecord], fragments: Iterable[Fragment], gaps: Iterable[FragmentKey] = (), **how: bool
) -> list[str]:
    with open_written(fragments, families, gaps) as database:
        return require_kernels(database, **how)  # type: ignore[arg-type]


def causes(*fragments: Fragment) -> list[Cause]:
    """What keeps kernels of a family from being planned."""
    with raises(UnplannedKernelsError, "build-unplanned-kernels", *(f.key.family for f in fragments[:1])) as caught:
        prove([record(*fragments)], fragments)
    error = caught.value
    assert isinstance(error, UnplannedKernelsError)  # for mypy
    (found,) = error.causes.values()
    for cause in found:
        assert str(error).count(cause.message) == 1
    return list(found)


def test_a_strong_helper_of_many_kernels_is_one_cause() -> None:
    kernels = [fragment("kern", provides=[HELPER], requires=[OP], role=Role.ENTRYPOINT, n=n) for n in "123"]
    variants = [fragment("op", provides=[OP, HELPER], op_name=name) for name in ("relu", "gelu")]
    (cause,) = causes(*kernels, *variants)
    assert (cause.code, cause.count) == ("plan-duplicate-definition", 6)
    for part in ("helper(int)", "f/kern[n=1]", "f/op[op_name="):
        assert part in cause.message
    assert "inline" in (cause.hint or "")
    assert cause.at[0].configuration.keys() == {"n", "op_name"}


def test_a_helper_of_two_device_fragments_is_refused_where_they_meet() -> None:
    op, more = fragment("op", provides=[OP, HELPER]), fragment("more", provides=[MORE, HELPER])
    (cause,) = causes(kernel(OP, MORE), op, more)
    assert "f/op[]" in cause.message and "f/more[]" in cause.message and "inline" in (cause.hint or "")
    apart = kernel(OP, group="one"), kernel(MORE, group="two"), op, more
    assert prove([record(*apart)], apart) == []
    inline = function(HELPER, weak=True)
    shared = kernel(OP, MORE), fragment("op", provides=[OP, inline]), fragment("more", provides=[MORE, inline])
    assert prove([record(*shared)], shared) == []
    (cause,) = causes(kernel(OP, MORE), op, shared[2])  # inline in one of them alone
    assert "f/op[]" in cause.message and "f/more[]" in cause.message


def test_what_nothing_defines_is_named_with_who_requires_it() -> None:
    (cause,) = causes(kernel(OP, data_type="float"), kernel(OP, data_type="double"))
    assert (cause.code, cause.count) == ("plan-missing-provider", 2)
    assert "op(float)" in cause.message and "f/kern[data_type=double]" in cause.message


def test_a_value_that_a_matrix_lacks_is_in_the_remedy() -> None:
    kernels = kernel(OP, data_type="float"), kernel(OP_DOUBLE, data_type="double")
    (cause,) = causes(*kernels, fragment("op", provides=[OP], data_type="float"))
    assert cause.at[0].configuration == {"data_type": "double"}
    assert "data_type=double" in (cause.hint or "") and "op" in (cause.hint or "")
    # Where no value is to blame, the types are.
    (cause,) = causes(*kernels, fragment("op", provides=[OP], n="1"))
    assert "f/op[n=1] provides op(float)" in (cause.hint or "")


def test_two_groups_that_define_one_symbol_are_ambiguous() -> None:
    (cause,) = causes(kernel(OP), fragment("op", provides=[OP]), fragment("copy", provides=[OP]))
    assert cause.code == "plan-ambiguous-fragments"
    assert all(part in cause.message for part in ("op(float)", "f/op[]", "f/copy[]"))
    # Where their values tell them apart, they are halves of one.
    halves = (
        kernel(OP, n="1"),
        kernel(OP, n="2"),
        fragment("op", provides=[OP], n="1"),
        fragment("b", provides=[OP], n="2"),
    )
    assert prove([record(*halves)], halves) == []


def test_different_causes_are_told_apart() -> None:
    found = causes(kernel(OP, n="1"), kernel(HELPER, n="2"), kernel(HELPER, n="3"), fragment("op", provides=[OP, MORE]))
    assert [cause.count for cause in found] == [2]
    found = causes(kernel(OP_DOUBLE, n="1"), kernel(HELPER, n="2"), kernel(HELPER, n="3"))
    assert [cause.count for cause in found] == [2, 1]


def test_incomplete_families_can_be_allowed() -> None:
    fragments = kernel(OP, n="1"), kernel(OP, n="2")
    (advice,) = prove([record(*fragments)], fragments, allow_incomplete=True)
    assert "op(float)" in advice and "f/kern[n=1]" in advice


def test_what_callers_supply_is_no_gap() -> None:
    fragments = (kernel(OP),)
    supplied = record(*fragments, supplied=True, headers="__device__ float op(float);")
    assert prove([supplied], fragments) == []
    others = record(*fragments, supplied=True, headers="__device__ float other(float);")
    with raises(UnplannedKernelsError, "build-unplanned-kernels", "op(float)"):
        prove([others], fragments)


def test_a_family_that_lends_groups_has_no_kernels() -> None:
    lent = fragment("op", provides=[OP])
    assert prove([record(lent)], [lent]) == []
    own = Fragment(FragmentKey.make("g", "kern", {}), Role.ENTRYPOINT, "k", (), (), (function(OP),), ())
    families = [record(lent), record(own, name="g", uses=("f",))]
    assert prove(families, [lent, own]) == []
    with raises(UnplannedKernelsError, "build-unplanned-kernels", "op(float)", "g/kern[]"):
        prove(families, [own])


OTHER = fragment("other", provides=[HELPER], requires=[OP])


@pytest.mark.parametrize("own", [OP, INLINE_OP])
def test_a_kernel_that_defines_what_a_group_is_there_for_gets_advice(own: str) -> None:
    mine = fragment("kern", provides=[own], role=Role.ENTRYPOINT)
    variants = [fragment("op", provides=[OP], op_name=name) for name in ("relu", "gelu")]
    (advice,) = prove([record(mine, *variants)], [mine, *variants])
    assert all(part in advice for part in ("f/kern[]", "op(float)", "f/op[", "interface"))


def test_a_kernel_that_defines_what_others_require_of_a_group_is_refused() -> None:
    mine = fragment("kern", provides=[OP], requires=[HELPER], role=Role.ENTRYPOINT)
    (cause,) = causes(mine, OTHER, fragment("op", provides=[OP]))
    assert cause.code == "plan-duplicate-definition" and "interface" in (cause.hint or "")


def test_fragments_that_a_merge_leaves_out_are_no_error() -> None:
    fragments = kernel(OP, n="1"), kernel(OP, n="2"), fragment("op", provides=[OP], n="1")
    gap = FragmentKey.make("f", "op", {"n": "2"})
    assert prove([record(*fragments)], fragments, [gap]) == []
    with raises(UnplannedKernelsError, "build-unplanned-kernels"):
        prove([record(*fragments)], fragments)


def test_a_proof_is_kept_by_digest_and_a_failure_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)

    def once(digest: str, *fragments: Fragment, allow_incomplete: bool = False) -> list[str]:
        advice: list[str] = []
        with open_written(fragments, [record(*fragments)]) as database:
            monkeypatch.setattr(proof, "FragmentDatabase", lambda _: database)
            prove_once(advice, database.path, digest * 64, store, allow_incomplete=allow_incomplete)
        return advice

    good, bad = (kernel(OP), fragment("op", provides=[OP])), kernel(OP)
    for _ in range(2):
        with raises(UnplannedKernelsError):
            once("1", bad)
        assert once("1", bad, allow_incomplete=True)
    assert once("2", *good) == []
    monkeypatch.setattr(proof, "enumerate_kernels", None)
    assert once("2", *good) == []
    with pytest.raises(TypeError):
        once("3", *good)


def made_of(group: str, text: str, role: Role = Role.DEVICE) -> Fragment:
    """A fragment that was compiled."""
    module = compiled(text).module
    entry = next((s.name for s in module.provides if s.kind is SymbolKind.KERNEL), "")
    return Fragment(FragmentKey.make("f", group, {}), role, entry, (), module.provides, module.requires, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declaration", "call", "definition", "is_right"),
    [
        ("__device__ float op(float);", "op(x[0])", "__device__ float op(double x) { return x; }", False),
        ("__device__ float op(float);", "op(x[0])", "__device__ double op(float x) { return x; }", False),
        ("__device__ float op(float);", "op(x[0])", "__device__ float op(float x, int) { return x; }", False),
        ("struct P { float x, y; }; __device__ float op(P);", "op(P{})",
         "struct P { float x, y, z; }; __device__ float op(P p) { return p.x; }", False),
        ("extern __constant__ float op[4];", "op[threadIdx.x]", "__constant__ float op[5] = {};", False),
        ("extern __constant__ float op[4];", "op[threadIdx.x]", "__device__ float op[4] = {};", False),
        ("extern __constant__ float op[];", "op[threadIdx.x]", "__constant__ float op[5] = {};", True),
    ],
)  # fmt: skip
def test_declarations_of_c_are_compared_by_their_layout(
    declaration: str, call: str, definition: str, is_right: bool
) -> None:
    text = f'extern "C" {{ {declaration} }} __global__ void k(float* x) {{ x[0] = {call}; }}'
    both = made_of("kern", text, Role.ENTRYPOINT), made_of("op", f'extern "C" {{ {definition} }}')
    if is_right:
        assert prove([record(*both)], both) == []
    else:
        (cause,) = causes(*both)
        assert "f/kern[] calls it with layout" in cause.message
        assert "f/op[]: defines op with layout" in cause.message


@pytest.mark.slow
def test_a_kernel_must_exist_for_every_architecture(build_family: BuildFamily) -> None:
    files = dict(MINI)
    files["family.toml"] = files["family.toml"].replace('name = "mini"', 'name = "mini"\narchs = ["75", "90"]')
    files["kern.cu.jinja"] = "#if __CUDA_ARCH__ < 900\n" + files["kern.cu.jinja"] + "\n#endif\n"
    with raises(CompileError, "compile-architectures", "compute_75", "compute_90"):
        build_family(files)


@pytest.mark.slow
def test_a_build_refuses_what_is_inline_in_one_fragment_of_a_kernel_alone(build_family: BuildFamily) -> None:
    helper = "__device__ __noinline__ {}float help(float x) {{ return x; }}\n".format
    kernel_ = MINI["kern.cu.jinja"].replace("if (i < n)", "if (i < n && help(1.f) > 0)")
    op = MINI["op.cu.jinja"].replace("return", "return T(help(1.f)) *")
    with raises(UnplannedKernelsError, None, "help(float)", "mini/kern", "mini/op"):
        build_family(MINI | {"kern.cu.jinja": helper("") + kernel_, "op.cu.jinja": helper("inline ") + op})


# --- covering sets


def many(count: int) -> list[Fragment]:
    """A family of ``count`` cubed kernels, in whose groups ``a``, ``b`` and ``c`` nothing depends on another."""
    names = {"a": "_Z1av", "b": "_Z1bv", "c": "_Z1cv"}
    groups = [fragment(g, provides=[s], **{g: str(n)}) for g, s in names.items() for n in range(count)]
    return [kernel(*names.values()), *groups]


def test_a_covering_set_holds_every_fragment_and_is_smaller_by_far() -> None:
    fragments = many(12)
    found = list(enumerate_kernels(index_of(fragments), most=0))
    assert len(found) < 100
    kernels = [each for each in found if isinstance(each, Kernel)]
    assert {f.key for each in kernels for f in each.resolution.fragments} == {f.key for f in fragments}
    assert len(list(enumerate_kernels(index_of(fragments), most=1000))) > 1000
    assert len(list(enumerate_kernels(index_of(many(3)), most=27))) == 27


def test_a_covering_set_finds_what_fails_in_a_single_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "MOST_KERNELS", 5)
    fragments = many(12)
    for number in (10, 30):  # a=9 and c=5
        fragments[number] = replace(fragments[number], provides=(*fragments[number].provides, function(HELPER)))
    fragments[20] = replace(fragments[20], requires=(function(MORE),))  # b=7
    found = {cause.code: cause.message for cause in causes(*fragments)}
    assert found.keys() == {"plan-duplicate-definition", "plan-missing-provider"}
    assert "f/a[a=9]" in found["plan-duplicate-definition"] and "f/c[c=5]" in found["plan-duplicate-definition"]
    assert "more(int)" in found["plan-missing-provider"] and "f/b[b=7]" in found["plan-missing-provider"]


def _families() -> Iterator[st.SearchStrategy[Fragment]]:
    symbols = st.lists(st.sampled_from(["_Z1av", "_Z1bv", "_Z1cv"]), max_size=2, unique=True)
    values = st.dictionaries(st.sampled_from("pqr"), st.sampled_from("12"), max_size=2)
    for role, groups in ((Role.ENTRYPOINT, "kl"), (Role.DEVICE, "xyz")):
        yield st.builds(
            lambda group, values, provides, requires, role=role: fragment(
                group, provides=provides if role is Role.DEVICE else (), requires=requires, role=role, **values
            ),
            st.sampled_from(groups), values, symbols, symbols,
        )  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.one_of(*_families()), max_size=9, unique_by=lambda f: f.key))
def test_a_covering_set_fails_where_the_whole_does(fragments: list[Fragment]) -> None:
    whole, cover = (list(enumerate_kernels(index_of(fragments), most=most)) for most in (None, 0))
    assert any(isinstance(each, DeadEnd) for each in whole) == any(isinstance(each, DeadEnd) for each in cover)
    planned = [[each for each in found if isinstance(each, Kernel)] for found in (whole, cover)]
    assert {k.resolution.entry.key for k in planned[0]} == {k.resolution.entry.key for k in planned[1]}
    assert {f.key for k in planned[0] for f in k.resolution.device} == {
        f.key for k in planned[1] for f in k.resolution.device
    }
    assert all(any(c.resolution.fragments == w.resolution.fragments for w in planned[0]) for c in planned[1])


@given(st.lists(st.one_of(*_families()), max_size=9, unique_by=lambda f: f.key))
def test_each_kernel_is_what_its_configuration_plans(fragments: list[Fragment]) -> None:
    index = index_of(fragments)
    for each in enumerate_kernels(index):
        if isinstance(each, Kernel):
            assert resolve(index, each.configuration, entry_group=each.resolution.entry.key.group) == each.resolution


def test_a_value_that_no_fragment_has_is_in_the_configuration_if_the_kernel_depends_on_it() -> None:
    a, b, c = "_Z1av", "_Z1bv", "_Z1cv"
    several = [fragment("y", provides=[c, a], p="1", r="2"), fragment("z", provides=[c], p="1", r="1")]
    other = fragment("y", provides=[a], requires=[a], q="2", r="1")
    chosen = fragment("x", provides=[a, c]), fragment("z", provides=[b], p="2")
    index = index_of([kernel(b, c), *chosen, *several, other])
    (found,) = (each for each in enumerate_kernels(index) if isinstance(each, Kernel))
    assert resolve(index, found.configuration) == found.resolution


def test_all_values_are_combined_where_something_depends_on_them_together() -> None:
    values = list(product("1234", repeat=2))
    fragments = [kernel("_Z1av"), *(fragment("a", provides=["_Z1av"], p=p, q=q) for p, q in values)]
    assert len(list(enumerate_kernels(index_of(fragments), most=0))) == len(values)
