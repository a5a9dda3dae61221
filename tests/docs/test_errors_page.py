"""The error reference lists the codes that the package has, all of them and no others."""

import ast
import re

import pytest

from jitlto.base import errors
from tests.build.mistakes import table
from tests.support.process import ROOT
from tests.support.source_code import syntax_trees

PAGE = ROOT / "docs" / "errors.md"
CLASSES = {
    value.code: name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.JitltoError) and "code" in vars(value)
}
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: What is spelled like a code in the package and is none.
OTHER_TEXTS = {"jitlto-link", "jitlto-store", "jitlto-warm"}


def codes_in(tree: ast.Module) -> set[str]:
    """The texts in a module that are spelled like a code: the code of a class, or one that begins with it."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    codes = {text for text in texts if isinstance(text, str) and CODE.fullmatch(text) and "-" in text}
    return {code for code in codes if belongs_to(code) is not None} - OTHER_TEXTS


def cases_in(tree: ast.Module) -> set[str]:
    """What a module puts after the code of a class that is known only when it runs: an argument ``case``."""
    values: list[ast.expr] = []
    helpers = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    places = {
        helper.name: [argument.arg for argument in helper.args.args if argument.arg != "self"].index("case")
        for helper in helpers
        if "case" in [argument.arg for argument in helper.args.args]
    }
    for helper in helpers:
        keywords = zip(helper.args.kwonlyargs, helper.args.kw_defaults, strict=True)
        values += [default for argument, default in keywords if argument.arg == "case" and default]
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            values += [word.value for word in call.keywords if word.arg == "case"]
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in places:
                values += call.args[places[name] :][:1]
    return {value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def belongs_to(code: str) -> str | None:
    """The class of a code: the one whose code it begins with, the longest if several do."""
    owners = [each for each in CLASSES if code == each or code.startswith(each + "-")]
    return CLASSES[max(owners, key=len)] if owners else None


def rows_of(name: str) -> dict[str, str]:
    """The table in the section of an error class: code → cause."""
    match = re.search(rf"^### `{name}`$(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.M | re.S)
    assert match, f"{PAGE.name} has no section on {name}"
    return dict(re.findall(r"^\| `([a-z0-9-]+)` \|(.*)\|$", match[1], re.M))


@pytest.mark.slow
def test_the_page_lists_the_codes_of_the_package_and_no_others() -> None:
    given = set(CLASSES).union(*map(codes_in, syntax_trees().values()))
    listed = {code for name in CLASSES.values() for code in rows_of(name)}
    cases = set().union(*map(cases_in, syntax_trees().values()))
    composed = {code for code in listed for owner in CLASSES if code.removeprefix(f"{owner}-") in cases}
    nodes = [node for tree in syntax_trees().values() for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    parts = [node.values[0] for node in nodes if isinstance(node, ast.JoinedStr) and node.values]
    begins = {part.value for part in parts if isinstance(part, ast.Constant) and str(part.value).endswith("-")}
    composed |= {code for code in listed for begin in begins if code.startswith(begin) and code[len(begin) :] in texts}
    assert given - listed - cases == set(), "not in docs/errors.md"
    assert listed - given - composed == set(), "in docs/errors.md, but nothing raises them"
    assert {case for case in cases if not any(code.endswith(f"-{case}") for code in listed)} == set()


def test_the_table_of_mistakes_is_that_of_the_tests() -> None:
    assert table() in PAGE.read_text("utf-8"), "it is what `python -m tests.build.mistakes` prints"


@pytest.mark.parametrize("name", CLASSES.values())
def test_each_code_stands_with_its_class_and_has_a_cause(name: str) -> None:
    for code, cause in rows_of(name).items():
        assert belongs_to(code) == name, code
        assert cause.strip(), code


@pytest.mark.slow
def test_every_code_that_is_given_begins_with_that_of_a_class() -> None:
    for path, tree in syntax_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                code = node.value.value
                if isinstance(code, str):
                    assert CODE.fullmatch(code), f"{path}:{node.value.lineno}"
                    assert belongs_to(code) is not None, f"{path}:{node.value.lineno}: {code}"
