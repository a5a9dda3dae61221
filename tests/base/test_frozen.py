"""Frozen values: immutable, compared by value, cheap to define."""

import pickle

import pytest

from jitlto.base.frozen import Frozen


class Pair(Frozen):
    """Two values, the second with a default."""

    left: object
    right: object = "right"


class Other(Frozen):
    """The same fields in another class."""

    left: object
    right: object = "right"


def test_fields_are_given_by_place_or_by_name_and_compared() -> None:
    made = Pair(1, 2)
    assert made == Pair(1, right=2) == Pair(right=2, left=1) == pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert hash(made) == hash(Pair(1, 2))
    assert made.as_dict() == {"left": 1, "right": 2}
    assert Pair(1) == Pair(1, "right")
    for other in (Pair(2, 1), Pair(1), Other(1, 2), (1, 2)):
        assert made != other


def test_a_value_does_not_change() -> None:
    made = Pair(1)
    with pytest.raises(AttributeError, match="Pair is immutable"):
        made.left = 2  # type: ignore[misc]
    assert made == Pair(1)


def test_what_does_not_fit_is_refused() -> None:
    for places, names in (((), {}), ((), {"right": 2}), ((1, 2, 3), {}), ((1,), {"middle": 2}), ((1, 2), {"left": 3})):
        with pytest.raises(TypeError, match="takes the fields left, right"):
            Pair(*places, **names)  # type: ignore[arg-type]
