"""The kernels of a family: all are found, each once, by the configuration that plans it."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import PlanError
from jitlto.database.index import Index
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels
from jitlto.plan.resolve import resolve
from jitlto.record.fragment import Fragment, Role, agrees
from jitlto.runtime.family import KernelFamily
from tests.plan.test_resolve import OP, fragment, kernel
from tests.support.index import index_of, open_written


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


def test_every_configuration_plans_to_a_different_kernel(search: KernelFamily, mini: KernelFamily) -> None:
    for family, count in ((search, 96), (mini, 4)):
        configurations = list(family.configurations())
        plans = {family.plan(arch="sm_90", **c).resolution.fragments for c in configurations}  # type: ignore[arg-type]
        assert len(configurations) == len(plans) == count
        assert all(set(c) == set(family.parameters) for c in configurations)


def test_a_configuration_names_the_entrypoint_if_a_family_has_several() -> None:
    fragments = (kernel(group="one"), kernel(OP, group="two"), fragment("op", provides=[OP], metric="l1"))
    family = KernelFamily("f", open_written(fragments))
    assert list(family.configurations()) == [{"entry": "one"}, {"entry": "two", "metric": "l1"}]
    for configuration in family.configurations():
        assert family.plan(**configuration).entry.key.group == configuration["entry"]  # type: ignore[arg-type]


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
        agrees(a.key.parameters, dict(b.key.parameters))
        for a in found.resolution.fragments
        for b in found.resolution.fragments
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


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
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
