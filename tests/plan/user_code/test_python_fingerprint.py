"""Fingerprints of Python functions are equal for the same code, and differ if anything else differs."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from jitlto.plan.user_code.python_fingerprint import fingerprint

TABLE = numpy.arange(4, dtype="f4")
OBJECT = object()


def fingerprint_of(text: str, **names: object) -> str | None:
    """Return the fingerprint of the function ``f`` in a source, with these globals."""
    scope: dict[str, Any] = dict(names)
    exec(text, scope)  # noqa: S102 - our own words
    found = fingerprint(scope["f"])
    return None if found is None else json.dumps(found, sort_keys=True)


def closure(factor: object) -> Callable[[float], object]:
    def f(x: float) -> object:
        return x * factor  # type: ignore[operator]

    return f


def test_the_same_text_has_the_same_fingerprint_at_any_place() -> None:
    text = "def f(x, y=1, *, z=2.5):\n    return x * y + z\n"
    assert fingerprint_of(text) == fingerprint_of("\n\n# elsewhere\n" + text) is not None


@pytest.mark.parametrize(
    "other",
    [
        "def f(x): return x * 3.0",
        "def f(x): return x * 2",
        "def f(x): return x + 2.0",
        "def f(y): return y * 2.0",
        "def f(x, y=1): return x * 2.0",
        "def f(x): return x * -2.0",
        "def f(x): return (x * 2.0, x)",
    ],
)
def test_different_code_has_a_different_fingerprint(other: str) -> None:
    assert fingerprint_of(other) != fingerprint_of("def f(x): return x * 2.0")


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ((1, 2), (1, (2,))), (b"a", "a"), (1j, 1 + 0j)],
)
def test_a_different_global_closure_or_default_has_a_different_fingerprint(one: object, other: object) -> None:
    assert fingerprint_of("def f(x): return G", G=one) != fingerprint_of("def f(x): return G", G=other)
    assert fingerprint_of("def f(x, y=G): return y", G=one) != fingerprint_of("def f(x, y=G): return y", G=other)
    assert fingerprint(closure(one)) != fingerprint(closure(other))  # type: ignore[arg-type]


def test_nan_equals_nan_in_fingerprints() -> None:
    assert (
        fingerprint_of("def f(x): return G", G=math.nan)
        == fingerprint_of("def f(x): return G", G=float("nan"))
        is not None
    )


def test_a_global_that_is_not_used_does_not_count() -> None:
    assert fingerprint_of("def f(x): return x", G=1) == fingerprint_of("def f(x): return x", G=object())


def test_arrays_count_by_content_and_type() -> None:
    values = [TABLE, TABLE + 1, TABLE.astype("f8"), TABLE.reshape(2, 2), numpy.float32(1), numpy.float64(1)]
    fingerprints = [fingerprint_of("def f(x): return G", G=value) for value in values]
    assert None not in fingerprints
    assert len(set(fingerprints)) == len(values)
    assert fingerprint_of("def f(x): return G", G=TABLE.copy()) == fingerprints[0]


@pytest.mark.parametrize("known", [math, math.sqrt, numpy, numpy.float32, numpy.sqrt, abs, float], ids=repr)
def test_objects_of_known_libraries_count_by_name(known: object) -> None:
    assert fingerprint_of("def f(x): return G", G=known) is not None


class Named:
    """An object that claims a false name."""


Named.__module__, Named.__name__ = "math", "sqrt"
SECRET = types.ModuleType("secret")


@pytest.mark.parametrize(
    "unknown",
    [OBJECT, [1], {}, SECRET, json, json.dumps, Named, closure(1), numpy.array([None]), numpy.zeros(1, "f4,i4")],
    ids=[
        "object", "list", "dict", "module", "another library", "its function", "a false name", "a function",
        "objects in an array", "a structured array",
    ],
)  # fmt: skip
def test_a_function_with_unknown_objects_has_no_fingerprint(unknown: object) -> None:
    assert fingerprint_of("def f(x): return G", G=unknown) is None
    assert fingerprint(closure(unknown)) is None  # type: ignore[arg-type]


def test_a_function_with_an_unbound_name_or_an_inner_function_has_no_fingerprint() -> None:
    assert fingerprint_of("def f(x): return missing") is None
    assert fingerprint_of("def f(x):\n    def g(y): return y\n    return g(x)") is None


def test_numbas_types_count_by_name() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    assert fingerprint_of("def f(x): return G(x)", G=numba.float32) is not None
    assert fingerprint_of("def f(x): return G(x)", G=numba.float32) != fingerprint_of(
        "def f(x): return G(x)", G=numba.int32
    )
    assert fingerprint_of("def f(x): return G(x)", G=numba.float32[:]) is None
