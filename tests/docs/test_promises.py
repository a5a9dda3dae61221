"""What the documentation promises is held by tests, which it names; and every test that it names exists.

A page names a test as ``tests/FOLDER/test_FILE.py``, as ``tests/FOLDER/test_FILE.py::test_NAME``, or as ``test_NAME``
alone where the same section names its file.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_docs import PAGES
from tests.support.process import ROOT

SECURITY = ROOT / "docs" / "security.md"
PROMISES = ROOT / "tests" / "promises.md"

_REFERENCE = re.compile(
    r"`(?P<file>tests/[\w/.*-]+)(?:::(?P<name>\w+))?`|`(?P<alone>test_\w+)`|`(?P<short>test_\w+\.py)`"
)
_BLOCK = re.compile(r"^```.*?^```[ \t]*$", re.M | re.S)


@cache
def defined_in(file: Path) -> frozenset[str]:
    """The tests that a file defines, without importing it."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def sections_of(text: str) -> dict[str, str]:
    """The sections of a page, down to the second level, by their headings; without code blocks."""
    parts = re.split(r"^##? (.+)$", _BLOCK.sub("", text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def wrong_references(text: str) -> list[str]:
    """The tests that a page names and that do not exist."""
    wrong = []
    for content in sections_of(text).values():
        found = list(_REFERENCE.finditer(content))
        files = [ROOT / match["file"] for match in found if match["file"]]
        known = frozenset().union(*(defined_in(file) for file in files if file.suffix == ".py" and file.is_file()))
        for match in found:
            if match["file"]:
                file = ROOT / match["file"]
                exists = file.exists() and (not match["name"] or (file.is_file() and match["name"] in defined_in(file)))
            else:
                exists = match["alone"] in known  # a file without its folder is not enough
            if not exists:
                wrong.append(match[0].strip("`"))
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("page", [*PAGES, PROMISES], ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert wrong_references(page.read_text("utf-8")) == []


def test_a_wrong_name_is_found() -> None:
    here = "tests/docs/test_promises.py"
    text = f"""# Page
`{here}::test_a_wrong_name_is_found`, `{here}`, `tests/docs`, `test_a_wrong_name_is_found`
## Section
`{here}::test_none`, `tests/docs/test_none.py`, `test_none`, `test_promises.py`, `tests/none`
## Another section
`test_a_wrong_name_is_found`
"""
    assert wrong_references(text) == [
        f"{here}::test_none", "tests/docs/test_none.py", "test_none", "test_promises.py", "tests/none",
        "test_a_wrong_name_is_found",
    ]  # fmt: skip


@pytest.mark.parametrize("heading", sections_of(SECURITY.read_text("utf-8")))
def test_every_section_of_the_security_page_names_the_tests_of_its_promises(heading: str) -> None:
    """In the table of trust, each row names a test, or the section that does."""
    content = sections_of(SECURITY.read_text("utf-8"))[heading]
    rows = [row.split("|")[3].strip() for row in re.findall(r"^\| (?!---|input).*\|$", content, re.M)]
    units = rows if heading == "Trust boundaries" else [] if heading == "Security" else [content]
    without = [unit for unit in units if unit and not _REFERENCE.search(unit) and "](#" not in unit]
    assert without == [], "name the test that holds it, or do not promise it"


def test_every_promise_of_a_guide_names_its_test() -> None:
    rows = re.findall(r"^\| (?!promise|---)(.*) \| (.*) \|$", PROMISES.read_text("utf-8"), re.M)
    assert len(rows) > 50
    assert [promise for promise, tests in rows if not _REFERENCE.search(tests)] == []
