"""Planning by symbols, on fragments made by hand: nothing is compiled, read or linked."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import (
    AmbiguousConfigurationError,
    InterfaceMismatchError,
    MissingProviderError,
    PlanError,
    UnknownValueError,
)
from jitlto.plan.enumeration import DeadEnd, enumerate_kernels
from jitlto.plan.resolve import Resolution, is_compatible, resolve
from jitlto.plan.supplied import UserSymbols
from jitlto.record.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind
from tests.support.errors import raises
from tests.support.index import index_of

# `op(float)`, `op(double)` and `helper(int)` as the linker sees them.
OP, OP_DOUBLE, HELPER = "_Z2opf", "_Z2opd", "_Z6helperi"
LAYOUT = "(4)(4)"


def function(name: str, layout: str = LAYOUT, *, weak: bool = False) -> Symbol:
    return Symbol(name, SymbolKind.FUNCTION, layout, weak)


def symbols(names: Iterable[str | Symbol]) -> tuple[Symbol, ...]:
    return tuple(name if isinstance(name, Symbol) else function(name) for name in names)


def fragment(
    group: str,
    *,
    provides: Iterable[str | Symbol] = (),
    requires: Iterable[str | Symbol] = (),
    role: Role = Role.DEVICE,
    **parameters: str,
) -> Fragment:
    key = FragmentKey.make("f", group, parameters)
    entry = f"_Z4kernv_{key}" if role is Role.ENTRYPOINT else ""
    return Fragment(key, role, entry, (), symbols(provides), symbols(requires), ())


def kernel(*requires: str | Symbol, group: str = "kern", **parameters: str) -> Fragment:
    return fragment(group, requires=requires, role=Role.ENTRYPOINT, **parameters)


def keys(resolution: Resolution) -> list[str]:
    return [str(f.key) for f in resolution.fragments]


def supplied(*provides: str | Symbol, requires: Iterable[str] = ()) -> UserSymbols:
    return UserSymbols("user.cu", symbols(provides), symbols(requires))


FAMILY = [
    kernel(OP, data_type="float", veclen="1"),
    kernel(OP, data_type="float", veclen="4"),
    kernel(OP_DOUBLE, data_type="double", veclen="1"),
    fragment("op", provides=[OP], data_type="float", metric="l1"),
    fragment("op", provides=[OP], requires=[HELPER], data_type="float", metric="l2"),
    fragment("op", provides=[OP_DOUBLE], data_type="double", metric="l1"),
    fragment("helper", provides=[HELPER], mode="fast"),
    fragment("helper", provides=[HELPER], mode="exact"),
]


def test_a_configuration_leads_to_one_fragment_for_each_requirement() -> None:
    found = resolve(index_of(FAMILY), {"data_type": "float", "veclen": "4", "metric": "l1"})
    assert keys(found) == ["f/kern[data_type=float,veclen=4]", "f/op[data_type=float,metric=l1]"]
    assert dict(found.configuration) == {"data_type": "float", "veclen": "4", "metric": "l1"}


def test_a_device_fragment_may_require_another() -> None:
    found = resolve(index_of(FAMILY), {"data_type": "float", "veclen": "4", "metric": "l2", "mode": "fast"})
    assert keys(found) == [
        "f/kern[data_type=float,veclen=4]",
        "f/helper[mode=fast]",
        "f/op[data_type=float,metric=l2]",
    ]


def test_a_parameter_that_only_one_value_satisfies_need_not_be_given() -> None:
    # With double there is one kernel and one op.
    found = resolve(index_of(FAMILY), {"data_type": "double"})
    assert dict(found.configuration) == {"data_type": "double", "veclen": "1", "metric": "l1"}


def test_what_one_requirement_decides_may_decide_another() -> None:
    # `b` can only be y=2; that leaves one `a`, whose symbol sorts first and is undecided at first.
    fragments = [
        kernel("_Z1af", "_Z1bf"),
        fragment("a", provides=["_Z1af"], y="1"),
        fragment("a", provides=["_Z1af"], y="2"),
        fragment("b", provides=["_Z1bf"], y="2"),
    ]
    assert keys(resolve(index_of(fragments), {})) == ["f/kern[]", "f/a[y=2]", "f/b[y=2]"]


def test_fragments_may_require_each_other() -> None:
    fragments = [
        kernel("_Z1af"),
        fragment("a", provides=["_Z1af"], requires=["_Z1bf"]),
        fragment("b", provides=["_Z1bf"], requires=["_Z1af"]),
    ]
    assert keys(resolve(index_of(fragments), {})) == ["f/kern[]", "f/a[]", "f/b[]"]


def test_a_known_but_unused_parameter_is_accepted_and_left_out() -> None:
    plain = resolve(index_of(FAMILY), {"data_type": "double"})
    # `mode` belongs to a group on which this kernel does not depend.
    assert resolve(index_of(FAMILY), {"data_type": "double", "mode": "fast"}) == plain


def test_all_open_parameters_of_what_is_undecided_are_named_at_once() -> None:
    with raises(AmbiguousConfigurationError, None, "data_type (double, float)", "veclen (1, 4)"):
        resolve(index_of(FAMILY), {})
    with raises(AmbiguousConfigurationError, None, "metric (l1, l2)") as caught:
        resolve(index_of(FAMILY), {"data_type": "float", "veclen": "1"})
    assert "data_type" not in str(caught.value)


def test_the_entrypoints_to_choose_from_are_named() -> None:
    index = index_of(
        [*FAMILY, kernel(HELPER, group="other", n="1"), kernel(group="other", n="2"), kernel(group="third", t="x")]
    )
    with raises(AmbiguousConfigurationError, "plan-ambiguous-entrypoint", hint="give entry (kern, other)") as caught:
        resolve(index, {"data_type": "float", "veclen": "1", "metric": "l1", "t": "y"})
    assert "kern, other" in caught.value.what and "third" not in str(caught.value)


def test_providers_that_no_parameter_tells_apart_are_listed() -> None:
    fragments = [kernel(OP), fragment("one", provides=[OP]), fragment("two", provides=[OP])]
    with raises(AmbiguousConfigurationError, "plan-ambiguous-fragments", "f/one[]", "f/two[]", "planner.add(key)"):
        resolve(index_of(fragments), {})


def test_a_value_that_no_kernel_has_together_with_the_others_is_named_with_those_that_are() -> None:
    with raises(
        UnknownValueError, "plan-unknown-value-combination", "data_type=double", "veclen=4", "data_type (float)"
    ):
        resolve(index_of(FAMILY), {"data_type": "double", "veclen": "4"})


def test_a_value_that_no_provider_has_names_the_function_and_what_there_is() -> None:
    with raises(UnknownValueError, "plan-unknown-value-combination", "op(double)", "metric=l2", "l1"):
        resolve(index_of(FAMILY), {"data_type": "double", "metric": "l2"})


def test_a_symbol_that_nobody_provides_is_named_demangled_with_who_asks() -> None:
    with raises(MissingProviderError, None, "op(float)", "f/kern[]"):
        resolve(index_of([kernel(OP)]), {})


def test_dynamic_parallelism_is_named_as_what_it_is() -> None:
    runtime = kernel("__cudaCDP2LaunchDeviceV2")
    with raises(MissingProviderError, "plan-missing-provider-device-runtime", hint="libcudadevrt"):
        resolve(index_of([runtime]), {})
    (end,) = enumerate_kernels(index_of([runtime]))
    assert isinstance(end, DeadEnd)
    assert end.error.code == "plan-missing-provider-device-runtime"


def test_a_configuration_may_decide_between_entrypoint_groups() -> None:
    index = index_of([kernel(group="one", t="float"), kernel(group="two", t="double")])
    assert keys(resolve(index, {"t": "double"})) == ["f/two[t=double]"]


def test_a_pinned_fragment_is_taken_whatever_else_would_be_chosen() -> None:
    special = fragment("special", provides=[OP])
    found = resolve(index_of([*FAMILY, special]), {"data_type": "float", "veclen": "1"}, pinned=[special, special])
    assert keys(found) == ["f/kern[data_type=float,veclen=1]", "f/special[]"]
    # And it decides its parameters.
    found = resolve(index_of(FAMILY), {"data_type": "float", "veclen": "1"}, pinned=[FAMILY[3]])
    assert dict(found.configuration)["metric"] == "l1"


def test_a_pinned_entrypoint_is_the_kernel() -> None:
    found = resolve(index_of(FAMILY), {"metric": "l1"}, pinned=[FAMILY[1]])
    assert keys(found)[0] == "f/kern[data_type=float,veclen=4]"
    with raises(PlanError, "plan-two-entrypoints", str(FAMILY[0].key), str(FAMILY[1].key)):
        resolve(index_of(FAMILY), {"metric": "l1"}, pinned=[FAMILY[0], FAMILY[1]])


def test_two_pinned_providers_of_one_symbol_are_an_error_that_names_both() -> None:
    with raises(PlanError, "plan-duplicate-definition", "op(float)", "f/op[data_type=float,metric=l1]", "f/x[]"):
        resolve(
            index_of(FAMILY), {"veclen": "1", "data_type": "float"}, pinned=[FAMILY[3], fragment("x", provides=[OP])]
        )


def test_a_supplied_input_takes_the_place_of_a_group() -> None:
    found = resolve(index_of(FAMILY), {"data_type": "float", "veclen": "1"}, supplied=[supplied(OP)])
    assert keys(found) == ["f/kern[data_type=float,veclen=1]"]
    assert dict(found.configuration) == {"data_type": "float", "veclen": "1"}


def test_a_supplied_input_may_call_a_fragment() -> None:
    found = resolve(
        index_of(FAMILY),
        {"data_type": "float", "veclen": "1", "mode": "exact"},
        supplied=[supplied(OP, requires=[HELPER])],
    )
    assert keys(found) == ["f/kern[data_type=float,veclen=1]", "f/helper[mode=exact]"]


def test_a_supplied_input_that_provides_nothing_required_is_an_error_that_says_what_it_defines() -> None:
    with raises(PlanError, "plan-unused-input", "other(float)", where="user.cu", hint="op(double)"):
        resolve(index_of(FAMILY), {"data_type": "double"}, supplied=[supplied("_Z5otherf")])


def test_a_supplied_input_of_other_types_shows_both() -> None:
    with raises(InterfaceMismatchError, None, "op(int)", "op(float)", where="user.cu"):
        resolve(index_of([kernel(OP)]), {}, supplied=[supplied("_Z2opi")])


@pytest.mark.parametrize("configuration", [{}, {"metric": "l1"}])
def test_a_supplied_input_of_other_types_is_not_ignored_beside_a_function_that_is_right(
    configuration: dict[str, str],
) -> None:
    """The group's own function would silently take its place, or a parameter be asked for."""
    family = [kernel(OP, HELPER), *(fragment("op", provides=[OP], metric=metric) for metric in ("l1", "l2"))]
    with raises(InterfaceMismatchError, "plan-interface-mismatch", "op(int)", "op(float)", where="user.cu"):
        resolve(index_of(family), configuration, supplied=[supplied(HELPER, "_Z2opi")])


@pytest.mark.parametrize("more", [[OP, "_Z2opi"], ["_ZN1n2opEi"], ["_Z3opsi"]])
def test_an_overload_beside_the_right_one_and_functions_of_other_names_are_the_callers_own(more: list[str]) -> None:
    index = index_of([kernel(OP, HELPER), fragment("op", provides=[OP])][: 1 if OP in more else 2])
    assert resolve(index, {}, supplied=[supplied(HELPER, *more)]).entry.key.group == "kern"


def test_a_supplied_input_for_another_kernel_of_the_family_is_an_error() -> None:
    # It provides what the float kernels call; this plan is for double.
    with raises(InterfaceMismatchError, None, "defines op(float)", "calls op(double)"):
        resolve(index_of(FAMILY), {"data_type": "double"}, supplied=[supplied(OP)])


@pytest.mark.parametrize(
    ("found", "wanted", "hint"),
    [("op", OP, 'extern "C" if'), ("_Z2opl", "_Z2opx", "long long")],
)
def test_a_mismatch_says_what_to_change(found: str, wanted: str, hint: str) -> None:
    with pytest.raises(InterfaceMismatchError) as caught:
        resolve(index_of([kernel(wanted)]), {}, supplied=[supplied(found)])
    assert hint in (caught.value.hint or "")


def test_other_layouts_of_one_symbol_are_an_error_that_shows_both() -> None:
    with raises(InterfaceMismatchError, "plan-interface-mismatch-layout", "(8)(4,4)", "(4)(4)", "user.cu"):
        resolve(index_of([kernel(function("op", "(4)(4)"))]), {}, supplied=[supplied(function("op", "(8)(4,4)"))])


def test_strong_helpers_of_one_name_are_an_error() -> None:
    fragments = [
        fragment("kern", provides=["_Z4helpf"], requires=[OP], role=Role.ENTRYPOINT),
        fragment("op", provides=[OP, "_Z4helpf"]),
    ]
    with raises(PlanError, "plan-duplicate-definition", "help(float)", "by f/kern[]", "by f/op[]"):
        resolve(index_of(fragments), {})


def test_variables_are_required_like_functions() -> None:
    table = Symbol("table", SymbolKind.VARIABLE, "const 16@4")
    open_size = Symbol("table", SymbolKind.VARIABLE, "const ?@4")
    with raises(MissingProviderError, None, "table"):
        resolve(index_of([kernel(open_size)]), {})
    found = resolve(index_of([kernel(open_size), fragment("tables", provides=[table])]), {})
    assert keys(found) == ["f/kern[]", "f/tables[]"]


def test_no_entrypoint_at_all_is_a_plan_error() -> None:
    with raises(PlanError, "plan-unknown-entrypoint"):
        resolve(index_of([fragment("op", provides=[OP])]), {})


def test_a_parameter_in_which_required_fragments_differ_decides_nothing() -> None:
    floats, doubles = (
        fragment("aaa", provides=["aaa"], data_type="float"),
        fragment("bbb", provides=["bbb"], data_type="double"),
    )
    both = [fragment("which", provides=["which"], data_type=name) for name in ("float", "double")]
    with raises(AmbiguousConfigurationError, "plan-ambiguous", "data_type", "float", "double"):
        resolve(index_of([kernel("aaa", "bbb", "which"), floats, doubles, *both]), {})


def test_a_parameter_that_is_contradicted_only_later_decides_nothing_either() -> None:
    fragments = [
        kernel("aaa", "which"),
        fragment("aaa", provides=["aaa"], data_type="float"),
        fragment("which", provides=["which"], requires=["late"], data_type="float", own="1"),
        fragment("which", provides=["which"], data_type="double", own="2"),
        fragment("late", provides=["late"], data_type="double"),
    ]
    with raises(AmbiguousConfigurationError, "plan-ambiguous", "data_type"):
        resolve(index_of(fragments), {})


@pytest.mark.parametrize("configuration", [{"w": "b"}, {"w": "b", "v": "1"}])
def test_a_fragment_does_not_silently_take_the_place_of_a_group(configuration: dict[str, str]) -> None:
    both = fragment("h", provides=["g", "h"], w="b")
    fragments = [kernel("g", "h"), fragment("g", provides=["g"], v="1"), fragment("h", provides=["h"], w="a"), both]
    with raises(AmbiguousConfigurationError, "plan-ambiguous-fragments", "f/g[v=1]", "f/h[w=b]"):
        resolve(index_of(fragments), configuration)
    assert keys(resolve(index_of(fragments), configuration, pinned=[both])) == ["f/kern[]", "f/h[w=b]"]


def test_a_kernel_that_defines_what_a_group_provides_does_not_silently_take_its_place() -> None:
    own = fragment("kern", provides=[function(HELPER, weak=True)], requires=[OP], role=Role.ENTRYPOINT)
    fragments = [own, *FAMILY[3:5], *FAMILY[6:]]
    for configuration in ({"metric": "l2"}, {"metric": "l2", "mode": "fast"}):
        with raises(
            PlanError, "plan-duplicate-definition", "f/kern[]", "helper(int)", "group helper", hint="interface"
        ):
            resolve(index_of(fragments), configuration)


SYMBOLS = "abcd"


@st.composite
def families(draw: st.DrawFn) -> tuple[list[Fragment], dict[str, str]]:
    """Fragments with few symbols, parameters and values, so that they often agree and often do not; a configuration."""
    symbol = st.sampled_from(SYMBOLS)
    values = st.sampled_from([{"p": "x"}, {"p": "y"}, {"p": "x"}, {"p": "y"}, {"q": "x"}, {"p": "x", "q": "y"}, {}])
    fragments = [kernel(*draw(st.sets(symbol, min_size=2)), **draw(values))]
    for name in SYMBOLS:
        offered = draw(st.lists(values, min_size=1, max_size=2, unique_by=lambda one: tuple(one.items())))
        required = st.sets(symbol, max_size=1)
        fragments += [fragment(f"g{name}", provides=[name], requires=draw(required), **one) for one in offered]
    return fragments, draw(st.sampled_from([{}, {}, {"p": "x"}, {"q": "y"}]))


def renamed(fragments: Iterable[Fragment], new: dict[str, str]) -> list[Fragment]:
    """The same fragments with other names of symbols, groups, parameters and values."""

    def rename(symbols: tuple[Symbol, ...]) -> list[str]:
        return sorted(new[symbol.name] for symbol in symbols)

    return [
        fragment(
            new[f.key.group],
            provides=rename(f.provides),
            requires=rename(f.requires),
            role=f.role,
            **{new[name]: new[value] for name, value in f.key.parameters},
        )
        for f in fragments
    ]


@pytest.mark.slow
@settings(max_examples=60)
@given(families(), st.data())
def test_no_renaming_and_no_order_leads_to_another_kernel(
    family: tuple[list[Fragment], dict[str, str]], data: st.DataObject
) -> None:
    fragments, configuration = family
    olds = [*SYMBOLS, "kern", *(f"g{name}" for name in SYMBOLS), *"pqxy"]
    new = dict(zip(olds, (f"n{number}" for number in data.draw(st.permutations(range(len(olds))))), strict=True))
    shuffled = data.draw(st.permutations(renamed(fragments, new)))
    changed = {new[name]: new[value] for name, value in configuration.items()}
    try:
        found = resolve(index_of(fragments), configuration)
    except PlanError:
        with pytest.raises(PlanError):
            resolve(index_of(shuffled), changed)
        return
    other = resolve(index_of(shuffled), changed)
    assert sorted(keys(other)) == sorted(str(f.key) for f in renamed(found.fragments, new))
    assert dict(other.configuration) == {new[name]: new[value] for name, value in found.configuration}


def test_two_symbols_of_one_kernel_may_want_two_values_of_one_parameter() -> None:
    """A kernel of mixed types calls the same group twice; neither choice was the caller's to make."""
    mixed = kernel("op_float", "op_half")
    floats = fragment("op", provides=["op_float"], type="float")
    halves = fragment("op", provides=["op_half"], type="half")
    assert resolve(index_of([mixed, floats, halves]), {}).device == (floats, halves)


# --- layouts ---


def variable(layout: str) -> Symbol:
    return Symbol("x", SymbolKind.VARIABLE, layout)


@pytest.mark.parametrize(
    ("required", "provided", "fits"),
    [
        ("global ?@4", "global 400@4", True),
        ("global ?@4", "global 400@16", True),
        ("global 16@4", "global 16@16", True),
        ("global 16@16", "global 16@4", False),
        ("global 16@4", "global 20@4", False),
        ("global 16@4", "const 16@4", False),
        ("const 16@4", "(4)(4)", False),
        ("const ?@8", "const 8@4", False),
    ],
)
def test_a_declaration_may_ask_for_less(required: str, provided: str, fits: bool) -> None:
    assert is_compatible(variable(required), variable(provided)) is fits
