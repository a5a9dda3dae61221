"""Frozen values: immutable, compared by value, cheap to define."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.frozen import Frozen

values = st.none() | st.integers() | st.text()


class Pair(Frozen):
    """Two values, the second with a default."""

    left: object
    right: object = "right"


class Other(Frozen):
    """The same fields in another class."""

    left: object
    right: object = "right"


@pytest.mark.slow
@given(values, values)
def test_fields_are_given_by_place_or_by_name(left: object, right: object) -> None:
    made = Pair(left, right)
    assert (made.left, made.right) == (left, right)
    assert made == Pair(left, right=right) == Pair(right=right, left=left)
    assert made.as_dict() == {"left": left, "right": right}
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own


@pytest.mark.slow
@given(values, values, values, values)
def test_equal_means_equal_values_of_one_class(a: object, b: object, c: object, d: object) -> None:
    assert (Pair(a, b) == Pair(c, d)) is ((a, b) == (c, d))
    assert Pair(a, b) != Other(a, b)
    assert Pair(a, b) != (a, b)
    if (a, b) == (c, d):
        assert hash(Pair(a, b)) == hash(Pair(c, d))


def test_a_value_does_not_change() -> None:
    made = Pair(1)
    with pytest.raises(AttributeError, match="Pair is immutable"):
        made.left = 2  # type: ignore[misc]
    assert made == Pair(1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AttributeError, match="left"):
        Pair()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes the fields left, right"):
        Pair(1, 2, 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes the fields left, right"):
        Pair(1, middle=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes the fields left, right"):
        Pair(1, 2, left=3)  # type: ignore[call-arg]
