"""Configurations: a caller's words, spelled as the family's fragments spell them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from jitlto.base.errors import AmbiguousConfigurationError, PlanError, UnknownParameterError, UnknownValueError
from jitlto.plan.configuration import normalize_configuration
from jitlto.record.fragment import sorted_values
from tests.support.errors import raises

KNOWN: Mapping[str, Sequence[str]] = {
    "data_type": ("float", "double", "__half", "__nv_bfloat16"),
    "idx_type": ("uint32_t", "int64_t"),
    "veclen": ("1", "4", "8", "16"),
    "optimized": ("false", "true"),
    "metric": ("euclidean", "inner_product"),
}


def spelled(**configuration: object) -> dict[str, str]:
    return normalize_configuration(configuration, KNOWN, "family")


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ("float", "float"),
        (np.dtype("float32"), "float"),
        ("float64", "double"),
        (np.float16, "__half"),
        ("half", "__half"),
        ("bfloat16", "__nv_bfloat16"),
    ],
)
def test_data_types_may_be_c_names_aliases_or_numpy_dtypes(given_value: object, expected: str) -> None:
    assert spelled(data_type=given_value) == {"data_type": expected}


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (np.int64, "int64_t"),
        ("int64", "int64_t"),
        ("long long", "int64_t"),
        ("std::int64_t", "int64_t"),
        ("unsigned", "uint32_t"),
    ],
)
def test_index_types_are_the_same_whatever_their_spelling(given_value: object, expected: str) -> None:
    assert spelled(idx_type=given_value) == {"idx_type": expected}


def test_numbers_and_booleans_stand_for_their_text() -> None:
    assert spelled(veclen=16, optimized=True) == {"veclen": "16", "optimized": "true"}
    assert spelled(veclen="16", optimized="true") == spelled(veclen=16, optimized=True)
    assert spelled(veclen=np.int64(8), optimized=np.bool_(True)) == {"veclen": "8", "optimized": "true"}


def test_the_familys_own_spelling_wins_over_an_alias() -> None:
    known = {"t": ("long long", "int64_t")}
    assert normalize_configuration({"t": "int64_t"}, known, "f") == {"t": "int64_t"}
    assert normalize_configuration({"t": "long long"}, known, "f") == {"t": "long long"}


@pytest.mark.parametrize(
    ("values", "value"),
    [
        (("float2", "cuda::std::complex<float>"), np.complex64),
        (("long", "long long"), np.dtype("int64")),
        (("int", "int32_t"), np.int32),
    ],
)
def test_a_type_for_which_the_family_has_several_names_is_ambiguous(values: tuple[str, ...], value: object) -> None:
    with raises(AmbiguousConfigurationError, "plan-ambiguous-value", "t", *values, where="f"):
        normalize_configuration({"t": value}, {"t": values}, "f")
    for name in values:
        assert normalize_configuration({"t": name}, {"t": values}, "f") == {"t": name}


def test_an_unknown_parameter_names_the_nearest_and_all_others() -> None:
    with raises(UnknownParameterError, None, "family", "'data_typ'", "idx_type", hint="did you mean 'data_type'?"):
        spelled(data_typ="float")


def test_an_unknown_value_names_the_nearest_and_all_others() -> None:
    with raises(UnknownValueError, None, "metric=euclidian", "inner_product", hint="did you mean 'euclidean'?"):
        spelled(metric="euclidian")


@pytest.mark.parametrize("other", ["int16", np.int16, "short", np.float64])
def test_another_type_is_no_slip_for_one_that_is_there(other: object) -> None:
    with raises(UnknownValueError, None, "idx_type", *KNOWN["idx_type"]) as caught:
        spelled(idx_type=other)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("odd", [None, b"float", ["float"], {"a": 1}, object(), 1j, {1}, lambda: None, int])
def test_values_of_other_kinds_are_plan_errors_that_name_the_parameter(odd: object) -> None:
    with raises(PlanError, "plan-invalid-value", "'data_type'", where="family"):
        spelled(data_type=odd)


def test_parameter_values_are_sorted_with_numbers_in_their_own_order() -> None:
    values = sorted_values([("veclen", ("16", "4")), ("t", ("float", "__half", "b")), ("veclen", ("1", "8"))])
    assert values == {"t": ("__half", "b", "float"), "veclen": ("1", "4", "8", "16")}
    assert list(values) == ["t", "veclen"]


def test_a_family_without_parameters_has_no_values_and_takes_none() -> None:
    assert sorted_values([]) == {}
    assert normalize_configuration({}, {}, "f") == {}
    with raises(UnknownParameterError, None, "'a'", hint="none"):
        normalize_configuration({"a": "b"}, {}, "f")
