"""Errors: three parts, one text, and nothing lost on the way from a worker process."""

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base import errors
from jitlto.base.errors import JitltoError


def tree(cls: type[JitltoError]) -> list[type[JitltoError]]:
    return [cls, *(inner for sub in cls.__subclasses__() for inner in tree(sub))]


ALL = [cls for cls in tree(JitltoError) if cls.__module__ == errors.__name__]


def test_every_exception_of_the_module_belongs_to_the_tree() -> None:
    raised = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, BaseException)]
    assert set(raised) == set(ALL)


# --- codes ---


def test_every_class_has_a_code_of_its_own_that_begins_with_its_bases() -> None:
    codes = [cls.code for cls in ALL]
    assert len(set(codes)) == len(codes)
    for cls in ALL:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code)
        for base in cls.__mro__[1:]:
            if base in ALL and base is not JitltoError:
                assert cls.code.startswith(f"{base.code}-")


def test_a_case_has_the_code_that_it_was_given() -> None:
    assert errors.PlanError("x").code == "plan"
    error = errors.PlanError("x", code="plan-odd")
    assert (error.code, errors.PlanError.code) == ("plan-odd", "plan")
    assert str(error) == "x [plan-odd]"
    assert pickle.loads(pickle.dumps(error)).code == "plan-odd"  # noqa: S301 - our own bytes


# --- parts ---


@pytest.mark.slow
@given(what=st.text(), where=st.none() | st.text(), hint=st.none() | st.text(), log=st.text())
def test_pickling_keeps_class_and_fields(what: str, where: str | None, hint: str | None, log: str) -> None:
    for cls in ALL:
        error = cls(what, where=where, hint=hint, log=log)
        error.extra = "set later"  # type: ignore[attr-defined]
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(copy) is cls
        assert vars(copy) == vars(error)
        assert (str(copy), copy.args) == (str(error), error.args)


@pytest.mark.parametrize(
    ("where", "hint", "text"),
    [
        (None, None, "it broke [jitlto]"),
        ("file:3", None, "file:3: it broke [jitlto]"),
        (None, "mend it", "it broke [jitlto]\n  hint: mend it"),
        ("file:3", "mend it", "file:3: it broke [jitlto]\n  hint: mend it"),
    ],
)
def test_the_text_says_where_what_and_what_to_do(where: str | None, hint: str | None, text: str) -> None:
    assert str(JitltoError("it broke", where=where, hint=hint)) == text
