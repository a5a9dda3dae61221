"""The first line of what a build says of an author's mistake leads to the file and the line that are to be changed."""

from pathlib import Path

import pytest

from jitlto.base.errors import JitltoError
from jitlto.build.pipeline import build
from jitlto.families.declaration import load_family
from tests.build.mistakes import MISTAKES
from tests.support.families import compiler


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_where_it_is(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    path = mistake.write(tmp_path)
    try:
        found = build([load_family(path)], tmp_path / "x.fragdb", executor=compiler()).advice
    except JitltoError as error:
        found = error.diagnostics
    assert found, "it is not seen"
    first = str(found[0])
    text = (tmp_path / mistake.at).read_text("utf-8")
    line = text.count("\n", 0, text.index(mistake.line)) + 1
    assert first.startswith(f"{tmp_path / mistake.at}:{line}:"), first
    assert found[0].code == mistake.code, first
    assert not [word for word in mistake.names if word not in first], first
