"""The proof of a database: each cause once, with the remedy; failures are told from notes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base.cache_dir import CacheDir
from jitlto.base.diagnostic import Diagnostic
from jitlto.base.errors import BuildError, CompileError
from jitlto.base.versions import Architecture
from jitlto.build import proof
from jitlto.build.causes import group_causes
from jitlto.build.proof import FamilyProof, Planned, Proofs, prove_once, require_kernels
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.plan.test_enumeration import many
from tests.plan.test_resolve import HELPER, OP, OP_DOUBLE, fragment, function, kernel
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.index import open_written

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


def prove(families: list[FamilyRecord], fragments: Iterable[Fragment], **how: bool) -> list[Diagnostic]:
    with open_written(fragments, families) as database:
        return require_kernels(database, **how)[1]  # type: ignore[arg-type]


def causes(*fragments: Fragment) -> list[Diagnostic]:
    """What keeps kernels of a family from being planned."""
    with raises(BuildError, "build-unplanned-kernels", *(f.key.family for f in fragments[:1])) as caught:
        prove([record(*fragments)], fragments)
    for cause in caught.value.causes:
        assert str(caught.value).count(cause.message) == 1
    return list(caught.value.causes)


def test_a_strong_helper_of_many_kernels_is_one_cause() -> None:
    kernels = [fragment("kern", provides=[HELPER], requires=[OP], role=Role.ENTRYPOINT, n=n) for n in "123"]
    variants = [fragment("op", provides=[OP, HELPER], op_name=name) for name in ("relu", "gelu")]
    (cause,) = causes(*kernels, *variants)
    assert (cause.code, len(cause.notes)) == ("plan-duplicate-definition", 6)
    for part in ("helper(int)", "f/kern[n=1]", "f/op[op_name="):
        assert part in cause.message
    assert "inline" in (cause.hint or "")
    assert cause.notes[0].message == "at f/kern: n=1 op_name=gelu"


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
    assert (cause.code, len(cause.notes)) == ("plan-missing-provider", 2)
    assert "op(float)" in cause.message and "f/kern[data_type=double]" in cause.message


def test_a_value_that_a_matrix_lacks_is_in_the_remedy() -> None:
    kernels = kernel(OP, data_type="float"), kernel(OP_DOUBLE, data_type="double")
    (cause,) = causes(*kernels, fragment("op", provides=[OP], data_type="float"))
    assert [note.message for note in cause.notes] == ["at f/kern: data_type=double"]
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


def test_a_family_that_lends_groups_has_no_kernels() -> None:
    lent = fragment("op", provides=[OP])
    assert prove([record(lent)], [lent]) == []
    own = Fragment(FragmentKey.make("g", "kern", {}), Role.ENTRYPOINT, "k", (), (), (function(OP),), ())
    families = [record(lent), record(own, name="g", uses=("f",))]
    assert prove(families, [lent, own]) == []
    with raises(BuildError, "build-unplanned-kernels", "op(float)", "g/kern[]"):
        prove(families, [own])


def test_fragments_of_a_shared_family_are_unused_only_if_some_user_reaches_others_of_it() -> None:
    def of(family: str, group: str, role: Role, *provides: str, requires: tuple[str, ...] = ()) -> Fragment:
        functions = tuple(map(function, provides)), tuple(map(function, requires))
        return Fragment(FragmentKey.make(family, group, {}), role, group, (), *functions, ())

    lent = fragment("op", provides=[OP])
    caller = [of("caller", "kern", Role.ENTRYPOINT, requires=(OP,))]
    # It uses the family, has a device group of its own, and calls that alone.
    other = [of("other", "kern", Role.ENTRYPOINT, requires=(HELPER,)), of("other", "own", Role.DEVICE, HELPER)]
    records = [record(lent), record(*other, name="other", uses=("f",))]
    assert prove(records, [lent, *other]) == []
    records.append(record(*caller, name="caller", uses=("f",)))
    assert prove(records, [lent, *other, *caller]) == []
    more = fragment("more", provides=[MORE])
    (advice,) = prove([record(lent, more), *records[1:]], [lent, more, *other, *caller])
    assert "f/more[]" in advice.message


@pytest.mark.parametrize("own", [OP, INLINE_OP])
def test_a_kernel_that_defines_what_a_group_is_there_for_gets_advice(own: str) -> None:
    mine = fragment("kern", provides=[own], role=Role.ENTRYPOINT)
    variants = [fragment("op", provides=[OP], op_name=name) for name in ("relu", "gelu")]
    (advice,) = prove([record(mine, *variants)], [mine, *variants])
    assert all(part in advice.message for part in ("op(float)", "f/op["))


def test_a_proof_is_kept_by_digest_and_a_failure_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = Proofs(CacheDir(tmp_path / "cache", 1 << 20))

    def once(digest: str, *fragments: Fragment, allow_incomplete: bool = False) -> tuple[Planned, list[Diagnostic]]:
        advice: list[Diagnostic] = []
        with open_written(fragments, [record(*fragments)]) as database:
            monkeypatch.setattr(proof, "FragmentDatabase", lambda *_: database)
            given = proofs, advice, database.fragments(), database.path, digest * 64
            return prove_once(*given, allow_incomplete=allow_incomplete), advice

    good, bad = (kernel(OP), fragment("op", provides=[OP])), kernel(OP)
    for _ in range(2):
        with raises(BuildError, "build-unplanned-kernels"):
            once("1", bad)
        assert once("1", bad, allow_incomplete=True)[1]
    known = Planned({"f": 1}, ("f", {}))
    assert once("2", *good) == (known, [])
    monkeypatch.setattr(proof, "enumerate_kernels", None)
    assert once("2", *good) == (known, [])
    with pytest.raises(TypeError):
        once("3", *good)


@pytest.mark.slow
def test_a_kernel_must_exist_for_every_architecture(build_family: BuildFamily) -> None:
    files = dict(MINI)
    files["family.toml"] = files["family.toml"].replace('name = "mini"', 'name = "mini"\narchs = ["75", "90"]')
    files["kern.cu.jinja"] = "#if __CUDA_ARCH__ < 900\n" + files["kern.cu.jinja"] + "\n#endif\n"
    with raises(CompileError, "compile-architectures", "compute_75", "compute_90"):
        build_family(files)


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


Prove = Callable[..., FamilyProof]


KERN = "f/kern[data_type=float]"


def load(
    path: Path, fragments: tuple[Fragment, ...], headers: dict[str, str], supplied: dict[str, str]
) -> KernelFamily:
    """Write fragments into a database as the family ``f`` and open it; ``supplied``: group → interface header."""
    names = dict.fromkeys((f.key.group, f.role) for f in fragments)
    groups = [
        GroupRecord(name, role, (), f"{name}.cuh" if f"{name}.cuh" in headers else None, False) for name, role in names
    ]
    groups += [GroupRecord(name, Role.DEVICE, (), header, True) for name, header in supplied.items()]
    record = FamilyRecord("f", (), LinkOptions(), (Architecture(75),), tuple(groups), tuple(sorted(headers.items())))
    write(path, [record], fragments, {})
    return KernelFamily("f", FragmentDatabase(path))


def prove_family(family: KernelFamily) -> FamilyProof:
    return proof.prove(family.database, [family.name])[family.name]


@pytest.fixture
def found_of(tmp_path: Path) -> Prove:
    def make(
        *fragments: Fragment, headers: dict[str, str] | None = None, supplied: dict[str, str] | None = None
    ) -> FamilyProof:
        return prove_family(load(tmp_path / "f.fragdb", fragments, headers or {}, supplied or {}))

    return make


def failures(found: FamilyProof) -> list[tuple[str, dict[str, str]]]:
    return [(failure.code, dict(values)) for failure, values in found.failures]


def notes(found: FamilyProof, code: str) -> list[str]:
    return [note.message for note, _ in found.notes if note.code == code]


def test_a_value_that_only_one_of_two_groups_has_is_a_failure_that_names_the_combination(found_of: Prove) -> None:
    found = found_of(
        kernel(OP, HELPER, data_type="float"),
        kernel(OP, data_type="double"),
        *(fragment("op", provides=[OP], metric=m) for m in ("l1", "l2")),
        fragment("helper", provides=[HELPER], metric="l1"),
    )
    assert failures(found) == [("plan-unknown-value-combination", {"data_type": "float", "metric": "l2"})]
    assert "metric=l2" in found.failures[0][0].message
    assert len(found.kernels) == 3


def test_authors_get_an_authors_remedy(found_of: Prove) -> None:
    found = found_of(
        kernel(OP, veclen="16"), *(fragment("op", provides=[OP], veclen=n) for n in ("1", "4")), kernel(veclen="4")
    )
    hint = found.failures[0][0].hint or ""
    assert "matrix" in hint and "kern" in hint and "give" not in hint


def test_two_names_of_one_type_in_two_matrices_are_named(found_of: Prove) -> None:
    found = found_of(kernel(OP, data_type="int8_t"), fragment("op", provides=[OP], data_type="signed char"))
    assert {code for code, _ in failures(found)} == {"plan-unknown-value-combination", "build-unused-fragment"}
    assert all(part in found.failures[-1][0].message for part in ("data_type=int8_t", "data_type=signed char"))


def test_layouts_that_differ_are_a_failure_only_where_the_two_meet(found_of: Prove) -> None:
    small, large = function(OP, "(4)(4)"), function(OP, "(4)(8)")
    found = found_of(
        kernel(small, data_type="float"),
        kernel(large, data_type="double"),
        fragment("op", provides=[small], data_type="float"),
        fragment("op", provides=[large], data_type="double"),
    )
    assert found.holds
    found = found_of(kernel(small), fragment("op", provides=[large], data_type="float"))
    assert [code for code, _ in failures(found)] == ["plan-interface-mismatch-layout"]
    assert "layout (4)(8)" in found.failures[0][0].message


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (fragment("x", provides=["_Z5otherf"]), "no fragment requires other(float)"),
        (fragment("x", provides=[]), "no fragment requires anything of it"),
        (
            fragment("x", provides=[OP], data_type="half"),
            f"{KERN}, which requires its symbols, has data_type=float",
        ),
        (fragment("x", provides=[HELPER], requires=[HELPER]), "no fragment requires helper(int)"),
    ],
)
def test_a_fragment_that_no_kernel_contains_is_a_failure_with_its_reason(
    found_of: Prove, extra: Fragment, reason: str
) -> None:
    found = found_of(kernel(OP, data_type="float"), fragment("op", provides=[OP], data_type="float"), extra)
    ((failure, _),) = found.failures
    assert failure.code == "build-unused-fragment"
    assert failure.message == f"no kernel contains {extra.key}: {reason}"


def test_symbols_that_callers_supply_are_noted_and_other_missing_symbols_are_failures(found_of: Prove) -> None:
    header = {"user.cuh": "__device__ float op(float); // not helper\n"}
    found = found_of(
        kernel(OP, HELPER), fragment("x", provides=["_Z5otherf"]), headers=header, supplied={"user": "user.cuh"}
    )
    assert failures(found) == [("plan-missing-provider", {})]
    assert "nothing provides helper(int)" in found.failures[0][0].message
    found = found_of(kernel(OP), fragment("x", provides=["_Z5otherf"]), headers=header, supplied={"user": "user.cuh"})
    assert found.holds
    assert notes(found, "build-supplied") == ["callers supply op(float) of user at run time, for 1 kernel"]
    # The callers' code may call it.
    assert len(notes(found, "build-unused-fragment")) == 1


def test_findings_that_differ_in_names_values_and_numbers_only_have_one_cause(found_of: Prove) -> None:
    found = found_of(
        *(kernel(op, data_type=t) for op, t in ((OP, "float"), (OP_DOUBLE, "double"))),
        *(fragment("x", provides=[f"_Z5otherP1{letter}"], n=letter) for letter in "abc"),
    )
    assert len(found.failures) == 5
    causes = group_causes(found.failures)
    # Those that know the symbols see that op(float) and op(double) are one function.
    (requirement,) = [cause for cause in causes if cause.code == "plan-missing-provider"]
    assert len(requirement.notes) == 2
    assert requirement.message == found.failures[0][0].message
