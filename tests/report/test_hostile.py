"""A page about a forged database, whose checksums are right, is made in seconds or refused, and runs nothing."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.errors import JitltoError
from jitlto.database import FragmentDatabase
from jitlto.report import page
from jitlto.report.content import describe
from tests.support.fuzz_targets import changed, rows, with_rows

SCRIPT = "<script>alert(1)</script>"


def _page(path: Path, content: list[list[Any]]) -> str:
    """The page about a copy of a database with other rows."""
    other = path.with_name("forged.fragdb")
    shutil.copy(path, other)
    with_rows(other, content)
    with FragmentDatabase(other) as database:
        return page.to_html(describe(database))


@pytest.fixture
def path(mini_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))


@pytest.mark.slow
def test_a_page_about_changed_records_is_made_or_refused(path: Path) -> None:
    content, chance = rows(path), random.Random(14)  # noqa: S311
    made = 0
    for _ in range(100):
        try:
            made += len(_page(path, changed(content, chance))) > 1000
        except JitltoError:
            continue
    assert made > 10


def test_what_a_database_says_is_text_in_the_page(path: Path) -> None:
    def forge(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: SCRIPT if name in ("toolchain", "type") else forge(other) for name, other in value.items()}
        return [forge(other) for other in value] if isinstance(value, list) else value

    text = _page(path, forge(rows(path)))
    assert SCRIPT not in text
    assert "&lt;script&gt;alert(1)" in text
