"""Errors: three parts, one text, and nothing lost on the way from a worker process."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto import errors
from jitlto.errors import ArgumentError, CompileError, JitltoError, LoggedError


def tree(cls: type[JitltoError]) -> list[type[JitltoError]]:
    return [cls, *(inner for sub in cls.__subclasses__() for inner in tree(sub))]


ALL = [cls for cls in tree(JitltoError) if cls.__module__ == errors.__name__]


def test_every_exception_of_the_module_belongs_to_the_tree() -> None:
    raised = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, BaseException)]
    assert set(raised) == set(ALL)


@given(what=st.text(), where=st.none() | st.text(), hint=st.none() | st.text(), log=st.text())
def test_pickling_keeps_class_and_fields(what: str, where: str | None, hint: str | None, log: str) -> None:
    for cls in ALL:
        logged = {"log": log} if issubclass(cls, LoggedError) else {}
        error = cls(what, where=where, hint=hint, **logged)
        error.extra = "set later"  # type: ignore[attr-defined]
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(copy) is cls
        assert vars(copy) == vars(error)
        assert (str(copy), copy.args) == (str(error), error.args)


def fail() -> None:
    raise CompileError("what", where="where", hint="hint", log="log")


def test_an_error_crosses_processes_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(CompileError) as caught:
        pool.submit(fail).result()
    error = caught.value
    assert (error.what, error.where, error.hint, error.log) == ("what", "where", "hint", "log")


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


def test_a_wrong_launch_argument_is_a_type_error_too() -> None:
    assert issubclass(ArgumentError, TypeError)
