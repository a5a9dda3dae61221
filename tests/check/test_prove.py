"""The proof of a family finds every configuration, and tells failures from notes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import LinkError, PlanError, VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.build import proof as proofs
from jitlto.build.findings import Kind, group_findings, link_failure
from jitlto.build.proof import FamilyProof
from jitlto.check.links import LinkJob, require_readable
from jitlto.cuda import nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.database.index import Index
from jitlto.database.writer import write
from jitlto.link.parallel import run_parallel
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels
from jitlto.plan.resolve import resolve
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.record.options import LinkOptions
from jitlto.record.parameters import agrees
from jitlto.runtime.family import KernelFamily
from tests.plan.test_resolve import HELPER, OP, OP_DOUBLE, fragment, function, kernel
from tests.support.errors import raises
from tests.support.index import index_of

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


def prove(family: KernelFamily) -> FamilyProof:
    return proofs.prove(family.database, [family.name])[family.name]


@pytest.fixture
def proof(tmp_path: Path) -> Prove:
    def make(
        *fragments: Fragment, headers: dict[str, str] | None = None, supplied: dict[str, str] | None = None
    ) -> FamilyProof:
        return prove(load(tmp_path / "f.fragdb", fragments, headers or {}, supplied or {}))

    return make


def failures(found: FamilyProof) -> list[tuple[str, dict[str, str]]]:
    return [(failure.kind.value, dict(failure.configuration)) for failure in found.failures]


def notes(found: FamilyProof, kind: Kind) -> list[str]:
    return [note.message for note in found.notes if note.kind is kind]


def test_the_shipped_families_hold(search: KernelFamily, transform: KernelFamily) -> None:
    found = prove(search)
    assert found.holds
    assert len(found.kernels) == 96
    assert found.notes == ()
    found = prove(transform)
    assert found.holds
    assert len(found.kernels) == 2
    assert notes(found, Kind.SUPPLIED) == [
        "callers supply user_transform(double) at run time, for 1 kernel",
        "callers supply user_transform(float) at run time, for 1 kernel",
    ]


def test_every_configuration_plans_to_a_different_kernel(search: KernelFamily, mini: KernelFamily) -> None:
    for family, count in ((search, 96), (mini, 4)):
        configurations = list(family.configurations())
        plans = {family.plan(arch="sm_90", **c).resolution.fragments for c in configurations}  # type: ignore[arg-type]
        assert len(configurations) == len(plans) == count
        assert all(set(c) == set(family.parameters) for c in configurations)


def test_configurations_are_found_lazily(search: KernelFamily) -> None:
    assert next(search.configurations()) == next(search.configurations())


def test_a_configuration_names_the_entrypoint_if_a_family_has_several(tmp_path: Path) -> None:
    fragments = (kernel(group="one"), kernel(OP, group="two"), fragment("op", provides=[OP], metric="l1"))
    family = load(tmp_path / "f.fragdb", fragments, {}, {})
    assert list(family.configurations()) == [{"entry": "one"}, {"entry": "two", "metric": "l1"}]
    for configuration in family.configurations():
        assert family.plan(**configuration).entry.key.group == configuration["entry"]  # type: ignore[arg-type]


def test_a_provider_that_is_missing_for_one_type_is_a_failure_that_names_it(proof: Prove) -> None:
    found = proof(
        kernel(OP, data_type="float"), kernel(OP_DOUBLE, data_type="double"), fragment("op", provides=[OP], n="1")
    )
    assert failures(found) == [("requirement", {"data_type": "double"})]
    assert "nothing provides op(double), which f/kern[data_type=double] requires" in found.failures[0].message
    # What there is beside it is most likely what was meant.
    assert "f/op[n=1] provides op(float)" in (found.failures[0].hint or "")
    assert len(found.kernels) == 1


def test_a_value_that_only_one_of_two_groups_has_is_a_failure_that_names_the_combination(proof: Prove) -> None:
    found = proof(
        kernel(OP, HELPER, data_type="float"),
        kernel(OP, data_type="double"),
        *(fragment("op", provides=[OP], metric=m) for m in ("l1", "l2")),
        fragment("helper", provides=[HELPER], metric="l1"),
    )
    assert failures(found) == [("requirement", {"data_type": "float", "metric": "l2"})]
    assert "metric=l2" in found.failures[0].message
    assert len(found.kernels) == 3


def test_a_fragment_that_a_kernel_replaces_by_its_own_is_unused_for_that_reason(proof: Prove) -> None:
    own = fragment("kern", provides=[OP], role=Role.ENTRYPOINT)
    (failure,) = proof(own, fragment("op", provides=[OP])).failures
    assert failure.kind is Kind.UNUSED
    assert "f/kern[] defines op(float) itself" in failure.message
    assert "interface" in (failure.hint or "")


def test_authors_get_an_authors_remedy(proof: Prove) -> None:
    found = proof(
        kernel(OP, veclen="16"), *(fragment("op", provides=[OP], veclen=n) for n in ("1", "4")), kernel(veclen="4")
    )
    hint = found.failures[0].hint or ""
    assert "matrix" in hint and "kern" in hint and "give" not in hint


def test_two_names_of_one_type_in_two_matrices_are_named(proof: Prove) -> None:
    found = proof(kernel(OP, data_type="int8_t"), fragment("op", provides=[OP], data_type="signed char"))
    assert {failure.kind for failure in found.failures} == {Kind.REQUIREMENT, Kind.UNUSED}
    hint = found.failures[-1].hint or ""
    assert all(part in hint for part in ("data_type", "matrices", "int8_t", "signed char"))


def test_a_combination_of_values_that_a_third_group_lacks_is_a_failure(proof: Prove) -> None:
    both = "_Z4bothv"
    found = proof(
        kernel(OP, HELPER, both),
        *(fragment("op", provides=[OP], a=v) for v in "12"),
        *(fragment("helper", provides=[HELPER], b=v) for v in "12"),
        *(fragment("both", provides=[both], a=a, b=b) for a, b in ("11", "12", "21")),
        *(kernel(group=f"other{n}") for n in range(2)),
    )
    assert failures(found) == [("requirement", {"a": "2", "b": "2"})]


def test_one_hole_is_reported_once_whatever_else_is_chosen(proof: Prove) -> None:
    filtered = "_Z6filterv"
    found = proof(
        kernel(OP, HELPER, filtered),
        *(fragment("filter", provides=[filtered], a=v) for v in "123"),
        *(fragment("op", provides=[OP], metric=m) for m in ("l1", "l2")),
        fragment("helper", provides=[HELPER], metric="l1"),
    )
    assert failures(found)[0] == ("requirement", {"metric": "l2"})
    assert len(found.failures) == 1


def test_two_groups_that_provide_one_symbol_are_ambiguous(proof: Prove) -> None:
    found = proof(kernel(OP), *(fragment(g, provides=[OP], metric=m) for g in ("one", "two") for m in ("l1", "l2")))
    assert failures(found) == [("ambiguity", {"metric": "l1"}), ("ambiguity", {"metric": "l2"})]
    assert "f/one[metric=l1], f/two[metric=l1]" in found.failures[0].message
    assert not found.kernels


def test_layouts_that_differ_are_a_failure_only_where_the_two_meet(proof: Prove) -> None:
    small, large = function(OP, "(4)(4)"), function(OP, "(4)(8)")
    found = proof(
        kernel(small, data_type="float"),
        kernel(large, data_type="double"),
        fragment("op", provides=[small], data_type="float"),
        fragment("op", provides=[large], data_type="double"),
    )
    assert found.holds
    found = proof(kernel(small), fragment("op", provides=[large], data_type="float"))
    assert [failure.kind for failure in found.failures] == [Kind.INTERFACE]
    assert "layout (4)(8)" in found.failures[0].message


def test_two_definitions_in_one_kernel_are_a_failure(proof: Prove) -> None:
    found = proof(kernel(OP), fragment("kern2", provides=[HELPER]), fragment("op", provides=[OP]))
    assert [failure.kind for failure in found.failures] == [Kind.UNUSED]
    twice = fragment("kern", provides=[HELPER], requires=[OP], role=Role.ENTRYPOINT)
    found = proof(twice, fragment("op", provides=[OP, HELPER]))
    assert [failure.kind for failure in found.failures] == [Kind.CONFLICT]
    assert "help" in found.failures[0].message


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (fragment("x", provides=["_Z5otherf"]), "no fragment requires other(float)"),
        (fragment("x", provides=[]), "it defines nothing that another fragment could call"),
        (
            fragment("x", provides=[OP], data_type="half"),
            f"{KERN}, which requires its symbols, has data_type=float",
        ),
        (fragment("x", provides=[HELPER], requires=[HELPER]), "no fragment requires helper(int)"),
    ],
)
def test_a_fragment_that_no_kernel_contains_is_a_failure_with_its_reason(
    proof: Prove, extra: Fragment, reason: str
) -> None:
    found = proof(kernel(OP, data_type="float"), fragment("op", provides=[OP], data_type="float"), extra)
    assert [failure.kind for failure in found.failures] == [Kind.UNUSED]
    assert found.failures[0].message == f"no kernel contains {extra.key}: {reason}"
    assert found.failures[0].subject == str(extra.key)


def test_an_unused_fragment_that_only_another_unused_one_requires_says_so(proof: Prove) -> None:
    chain = fragment("a", provides=["_Z5otherf"], requires=[HELPER]), fragment("b", provides=[HELPER])
    found = proof(kernel(), *chain)
    assert [failure.subject for failure in found.failures] == ["f/a[]", "f/b[]"]
    assert "only f/a[] requires its symbols" in found.failures[1].message


def test_symbols_that_callers_supply_are_noted_and_other_missing_symbols_are_failures(proof: Prove) -> None:
    header = {"user.cuh": "__device__ float op(float); // not helper\n"}
    found = proof(
        kernel(OP, HELPER), fragment("x", provides=["_Z5otherf"]), headers=header, supplied={"user": "user.cuh"}
    )
    assert failures(found) == [("requirement", {})]
    assert "nothing provides helper(int)" in found.failures[0].message
    found = proof(kernel(OP), fragment("x", provides=["_Z5otherf"]), headers=header, supplied={"user": "user.cuh"})
    assert found.holds
    assert notes(found, Kind.SUPPLIED) == ["callers supply op(float) at run time, for 1 kernel"]
    # The callers' code may call it.
    assert len(notes(found, Kind.UNUSED)) == 1


def test_symbols_in_the_interface_of_a_different_group_are_not_left_to_callers(proof: Prove) -> None:
    header = {
        "user.cuh": '#include "op.cuh"\n__device__ float mine(float);\n',
        "op.cuh": "__device__ double op(double);\n",
    }
    fragments = (kernel(OP_DOUBLE, "_Z4minef"), kernel(OP, group="two"), fragment("op", provides=[OP]))
    found = proof(*fragments, headers=header, supplied={"user": "user.cuh"})
    assert [failure.kind for failure in found.failures] == [Kind.REQUIREMENT]
    assert "nothing provides op(double)" in found.failures[0].message


def test_families_without_parameters_and_without_kernels(proof: Prove) -> None:
    found = proof(kernel(OP), fragment("op", provides=[OP]))
    assert found.holds
    assert [dict(k.configuration) for k in found.kernels] == [{}]
    shared = proof(fragment("op", provides=[OP]))
    assert shared.holds
    assert [note.kind for note in shared.notes] == [Kind.EMPTY]
    assert [failure.kind for failure in proof().failures] == [Kind.EMPTY]


def calls_of_a_proof(path: Path, count: int) -> int:
    """Count the calls of functions during the proof of a family with so many providers of one symbol."""
    providers = [fragment("op", provides=[OP], op_name=f"op_{number:04}") for number in range(count)]
    entries = [kernel(OP, tile=str(number)) for number in range(2)]
    # None of these is in any kernel: of another type, required by nothing, or by an unused fragment only.
    unused = [fragment("odd", provides=[OP_DOUBLE], n=str(number)) for number in range(count)]
    family = load(path / f"{count}.fragdb", (*entries, *providers, *unused), {}, {})
    assert len(family.index.entrypoints) == 2  # read before
    calls = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        found = prove(family)
    finally:
        sys.setprofile(None)
    assert len(found.kernels) == 2 * count
    assert len(found.failures) == count
    return calls


@pytest.mark.slow
def test_a_proof_takes_steps_in_proportion_to_the_providers_of_a_symbol(tmp_path: Path) -> None:
    assert calls_of_a_proof(tmp_path, 200) < 2.2 * calls_of_a_proof(tmp_path, 100)


@pytest.mark.slow
def test_two_thousand_kernels_are_proved_in_seconds(proof: Prove) -> None:
    types, filters = ("a", "b", "c", "d"), 3
    fragments = [kernel(f"_Z2opP1{t}", "_Z6filterv", data_type=t, veclen=str(v)) for t in types for v in range(16)]
    fragments += [
        fragment("op", provides=[f"_Z2opP1{t}"], data_type=t, metric=f"m{m}") for t in types for m in range(10)
    ]
    fragments += [fragment("filter", provides=["_Z6filterv"], filter_name=str(n)) for n in range(filters)]
    found = proof(*fragments)
    assert found.holds
    assert len(found.kernels) == 4 * 16 * 10 * filters


def test_findings_that_differ_in_names_values_and_numbers_only_have_one_cause(proof: Prove) -> None:
    found = proof(
        *(kernel(op, data_type=t) for op, t in ((OP, "float"), (OP_DOUBLE, "double"))),
        *(fragment("x", provides=[f"_Z5otherP1{letter}"], n=letter) for letter in "abc"),
    )
    assert len(found.failures) == 5
    causes = group_findings(found.failures)
    # Those that know the symbols see that op(float) and op(double) are one function.
    (requirement,) = [cause for cause in causes if cause.kind == Kind.REQUIREMENT]
    assert requirement.count == 2
    first = found.failures[0]
    assert (requirement.message, requirement.at[0].configuration) == (first.message, dict(first.configuration))


@pytest.mark.slow
def test_links_that_fail_for_one_reason_have_one_cause(mini: KernelFamily) -> None:
    found = prove(mini)
    jobs = [LinkJob(mini, k, Architecture(n)) for n in (50, 70, 90) for k in found.kernels]
    outcomes = sorted(run_parallel(link, jobs, 2), key=lambda outcome: outcome[0])
    assert [position for position, _, _ in outcomes] == list(range(len(jobs)))
    failures = []
    for _, job, error in outcomes:
        assert error is None or isinstance(error, LinkError)
        if error:
            failures.append(link_failure(error, "mini/kern", job.kernel.configuration, job.arch.sm))
    causes = group_findings(failures)
    assert [(cause.archs, cause.count) for cause in causes] == [(("sm_50", "sm_70"), 8)]


def link(job: LinkJob) -> object:
    return job.plan().link(use_cache=False).warnings or None


def test_a_caller_that_stops_does_not_wait_for_the_rest(mini: KernelFamily) -> None:
    (first, *_) = prove(mini).kernels
    taken = []

    def call(job: LinkJob) -> None:
        taken.append(job)
        link(job)

    outcomes = run_parallel(call, [LinkJob(mini, first, Architecture(50))] * 10_000, 2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert len(taken) < 10_000


def image(kind: ImageKind, version: Version, isa: Version | None = None) -> Image:
    return Image(kind, Architecture(75), "0" * 64, 1, "nvrtc", version, isa)


def test_a_database_that_nvjitlink_cannot_read_is_refused_in_one_message(mini: KernelFamily) -> None:
    newer = Version(99, 0)
    ltoir, ptx = image(ImageKind.LTOIR, newer), image(ImageKind.PTX, newer, Version(7, 0))

    def made(*images: Image) -> list[Fragment]:
        return [Fragment(FragmentKey.make("f", "k", {}), Role.DEVICE, "", (), (), (), images)]

    require_readable(mini.database.fragments("mini"), "x.fragdb")
    with raises(VersionError, "link-version", "f/k[]", "LTO-IR", "99.0", where="x.fragdb", hint="nvJitLink"):
        require_readable(made(ltoir, ptx), "x.fragdb")
    older = image(ImageKind.LTOIR, Version(11, 8))
    with raises(VersionError, "link-version", "11.8", hint=f"CUDA {nvjitlink.version().major}"):
        require_readable(made(older), "x.fragdb")
    for images in ((ptx,), ()):
        with raises(VersionError, "link-version-no-image", "f/k[]"):
            require_readable(made(*images), "x.fragdb")


@st.composite
def families(draw: st.DrawFn) -> list[Fragment]:
    """Draw small families: groups with some of four parameters and random holes, which require each other."""
    groups = [f"g{n}" for n in range(draw(st.integers(2, 4)))]
    flat = draw(st.booleans())

    def rows(values: str, most: int) -> list[dict[str, str]]:
        names = sorted(draw(st.sets(st.sampled_from("abcd"), max_size=3)))
        drawn = st.lists(st.tuples(*(st.sampled_from(values) for _ in names)), unique=True, min_size=1, max_size=most)
        return [dict(zip(names, row, strict=True)) for row in draw(drawn)]

    def some(of: list[str], least: int, most: int) -> list[str]:
        return [f"_Z2{g}v" for g in sorted(draw(st.sets(st.sampled_from(of), min_size=least, max_size=most)))]

    fragments = [kernel(*some(groups, 1, len(groups)), **row) for row in rows("12", 3)]
    for number, group in enumerate(groups):
        later = groups[number + 1 :]
        fragments += [
            fragment(group, provides=[f"_Z2{group}v"], requires=some(later, 0, 1) if later and not flat else (), **row)
            for row in rows("123", 8)
        ]
    return fragments


def is_mixed(found: Kernel) -> bool:
    return not all(
        agrees(a.key, dict(b.key.parameters)) for a in found.resolution.fragments for b in found.resolution.fragments
    )


def by_trial(index: Index, fragments: list[Fragment]) -> set[tuple[Fragment, ...]]:
    """Return all kernels, by planning every configuration that gives every parameter."""
    values: dict[str, set[str]] = {}
    for one in fragments:
        for name, value in one.key.parameters:
            values.setdefault(name, set()).add(value)
    found = set()
    for row in product(*(sorted(values[name]) for name in sorted(values))):
        try:
            found.add(resolve(index, dict(zip(sorted(values), row, strict=True))).fragments)
        except PlanError:
            continue
    return found


def gets_stuck(index: Index, entry: Fragment) -> bool:
    """Return whether matching fragments can be chosen so that no matching fragment meets a requirement."""
    seen: set[frozenset[Fragment]] = set()

    def follow(chosen: frozenset[Fragment]) -> bool:
        if chosen in seen:
            return False
        seen.add(chosen)
        provided = {symbol.name for one in chosen for symbol in one.provides}
        for name in {symbol.name for one in chosen for symbol in one.requires} - provided:
            agreeing = [
                f for f in index.providers.get(name, ()) if all(agrees(f.key, dict(o.key.parameters)) for o in chosen)
            ]
            if not agreeing or any(follow(chosen | {one}) for one in agreeing):
                return True
        return False

    return follow(frozenset([entry]))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(families())
def test_every_kernel_that_some_configuration_plans_is_found_once(fragments: list[Fragment]) -> None:
    index = index_of(fragments)
    found = [k for k in enumerate_kernels(index) if isinstance(k, Kernel)]
    for one in found:
        assert resolve(index, dict(one.configuration)).fragments == one.resolution.fragments
    planned = [one.resolution.fragments for one in found]
    assert len(set(planned)) == len(planned)
    assume(not any(map(is_mixed, found)))
    assert set(planned) == by_trial(index, fragments)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(families())
def test_a_dead_end_is_found_where_fragments_that_agree_lead_nowhere(fragments: list[Fragment]) -> None:
    index = index_of(fragments)
    found = list(enumerate_kernels(index))
    assume(not any(isinstance(one, Kernel) and is_mixed(one) for one in found))
    dead = {one.entry for one in found if isinstance(one, DeadEnd)}
    stuck = {entry for entry in index.entrypoints if gets_stuck(index, entry)}
    assert dead <= stuck
    if not any(one.requires for one in fragments if one.role is Role.DEVICE):
        assert dead == stuck
