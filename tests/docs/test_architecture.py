"""The architecture page is true: its layers, the places it names, and its drawings."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support import ways
from tests.support.process import ROOT

PAGE = ROOT / "docs" / "architecture.md"
DRAWINGS = ROOT / "docs" / "architecture"


def _place(name: str) -> Path:
    """A file that the page names, from the package or from the checkout."""
    return next((base / name for base in (ROOT / "jitlto", ROOT) if (base / name).exists()), ROOT / name)


def _names(path: Path) -> set[str]:
    """What a module defines, functions and members of classes too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _purpose(path: Path) -> str:
    """The first sentence of a module's docstring."""
    return " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n\n")[0].split())


@pytest.mark.slow
def test_every_module_says_in_one_line_what_it_is_for() -> None:
    for path in sorted((ROOT / "jitlto").rglob("*.py")):
        assert 10 < len(_purpose(path)) < 160, path


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    declared = [name for layer in layers for name in re.findall(r"jitlto\.(\w+)", layer)]
    section = PAGE.read_text("utf-8").partition("## Layers")[2].partition("\n## ")[0]
    shown = [name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert shown == declared


@pytest.mark.slow
def test_every_file_and_name_on_the_page_is_there() -> None:
    text = PAGE.read_text("utf-8")
    files = re.findall(r"`([\w./]+\.(?:py|md|toml))`", text)
    assert len(files) > 20
    own = {"family.toml"}
    assert [name for name in files if name not in own and not _place(name).is_file() and "NAME" not in name] == []
    for name, file in re.findall(r"`(\w+)`,? (?:in|of) `([\w/]+\.py)`", text):
        assert name in _names(_place(file)), f"{file} has no {name}"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ways.Step]]:
    return ways.collect(tmp_path_factory.mktemp("traces"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ways.TITLES)
def test_the_drawings_show_the_modules_that_are_entered(way: str, traces: dict[str, list[ways.Step]]) -> None:
    drawing = (DRAWINGS / f"{way}.svg").read_text("utf-8")
    shown = re.findall(r'text-anchor="end">([\w.]+)<', drawing)
    assert shown == ways.modules(traces[way]), "run `python -m tests.support.ways --output docs/architecture`"
