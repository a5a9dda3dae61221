"""Rules on the shape of the source tree: sizes of modules and functions, purposes of folders, what lies where."""

import ast
import subprocess

import pytest

from tests.support.process import ROOT
from tests.support.source_code import PACKAGE, syntax_trees

MOST_LINES_OF_A_FUNCTION = 60
TOP_LEVEL = {
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml",
    "docs", "fragments", "jitlto", "matrices", "templates", "tests",
}  # fmt: skip
#: Folders of the tests that mirror nothing: what is shared, what measures, and what concerns several folders at once.
OTHER_TESTS = {"benchmarks", "compatibility", "docs", "families", "support"}


@pytest.mark.slow
def test_functions_are_short_apart_from_their_docstrings() -> None:
    long = {}
    for path, tree in syntax_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path}::{node.name}"] = lines
    assert long == {}


def test_every_folder_says_in_one_line_what_it_is_for() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        lines = (ast.get_docstring(ast.parse(path.read_bytes())) or "").splitlines()
        assert lines, path
        assert len(lines[0]) > 10, path
        assert len(lines) == 1 or not lines[1], path


def test_the_top_level_holds_what_the_design_lists() -> None:
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if git.returncode:
        pytest.skip("not a git checkout")
    names = {line.partition("/")[0] for line in git.stdout.splitlines()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_every_test_lies_where_what_it_tests_does() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    stray = [
        str(folder)
        for folder in folders
        if not (PACKAGE / folder).is_dir() and (not folder.parts or folder.parts[0] not in OTHER_TESTS)
    ]
    assert stray == []
