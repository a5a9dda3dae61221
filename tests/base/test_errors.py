"""Errors: three parts, one text, and nothing lost on the way from a worker process."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base import errors
from jitlto.base.errors import JitltoError, LoggedError


def tree(cls: type[JitltoError]) -> list[type[JitltoError]]:
    return [cls, *(inner for sub in cls.__subclasses__() for inner in tree(sub))]


ALL = [cls for cls in tree(JitltoError) if cls.__module__ == errors.__name__]


def test_every_exception_of_the_module_belongs_to_the_tree() -> None:
    raised = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, BaseException)]
    assert set(raised) == set(ALL)


# --- codes ---

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "jitlto").rglob("*.py"))
BY_NAME = {cls.__name__: cls for cls in ALL}
# Tables are read for families and for packages: a case of either is raised under the class's own code.
TABLES = {"declaration.py": ["family"], "pyproject.py": ["project"], "toml_reader.py": ["family", "project"]}


def literals(keyword: str) -> list[tuple[Path, str | None, str]]:
    """The texts that the package gives for a keyword: the file, the name that is called, the text."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", None)
            for given_keyword in node.keywords:
                if given_keyword.arg == keyword:
                    keys = [n.slice for n in ast.walk(given_keyword.value) if isinstance(n, ast.Subscript)]
                    values = [n for n in ast.walk(given_keyword.value) if isinstance(n, ast.Constant) and n not in keys]
                    found += [(path, called, v.value) for v in values if isinstance(v.value, str)]
    return found


def documented() -> set[str]:
    """The codes of the tables in the documentation."""
    pages = [ROOT / "docs" / "errors.md", *(ROOT / "docs").glob("codes/*.txt")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    return set(re.findall(r"^(?:\| )?`?([a-z][a-z0-9-]+)`? \|", text, re.M))


CODES = [(path, called, code) for path, called, code in literals("code") if re.fullmatch(r"[a-z0-9-]*[a-z0-9]", code)]


def test_every_class_has_a_code_of_its_own_that_begins_with_its_bases() -> None:
    own: list[type[JitltoError]] = [cls for cls in ALL if cls is not LoggedError]
    codes = [cls.code for cls in own]
    assert len(set(codes)) == len(codes)
    for cls in own:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code)
        for base in cls.__mro__[1:]:
            if base in own and base is not JitltoError:
                assert cls.code.startswith(f"{base.code}-")


def test_a_case_begins_with_the_code_of_its_class() -> None:
    assert len(CODES) > 50
    for path, called, code in CODES:
        classes = [BY_NAME[called]] if called in BY_NAME else ALL
        assert any(code == cls.code or code.startswith(f"{cls.code}-") for cls in classes), f"{path}: {called} {code}"


@pytest.mark.slow
def test_every_code_is_documented() -> None:
    codes = {code for _, _, code in CODES} | {cls.code for cls in ALL}
    codes |= {f"{owner}-{case}" for path, _, case in literals("case") for owner in TABLES.get(path.name, ())}
    assert codes - documented() == set()


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
        logged = {"log": log} if issubclass(cls, LoggedError) else {}
        error = cls(what, where=where, hint=hint, **logged)
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
