"""Every part of a document has its place, in JSON and in TOML."""

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.diagnostic import Location
from jitlto.base.places import find_places, join
from jitlto.base.toml_reader import find_place

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=12,
)
TOML = """# [not.a.head]
[family]
name = "x" # no = comment
when = 1979-05-27 07:32:00
options = [
  "-a", # one
  '-b=[1]',
]
matrix.type = "a"
text = \"\"\"
x = ["1"]
\"\"\"

[device.op]
matrix = {type = ["float", "double"], "q/r~" = {}}
['quoted.name']
[inner.'x']
n = 1.5
"""


def pointers(value: object, pointer: str = "") -> set[str]:
    """The pointers of all that is in a document."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(join(pointer, name), each) for name, each in value.items()]
    if isinstance(value, list):
        items = [(f"{pointer}/{number}", each) for number, each in enumerate(value)]
    return {place for place, _ in items}.union(*(pointers(each, place) for place, each in items))


@given(VALUES, st.sampled_from([None, 0, 2]))
def test_every_part_of_any_json_has_its_place(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    places = find_places(text)
    assert places.keys() == pointers(json.loads(text))
    assert len({*places.values()}) == len(places)


def test_every_part_of_a_toml_document_has_its_place() -> None:
    places = find_places(TOML, is_toml=True)
    assert places.keys() == pointers(tomllib.loads(TOML))
    lines = TOML.split("\n")
    for pointer, text in {
        "/family": "family]",
        "/family/options/1": "'-b=[1]'",
        "/family/matrix/type": "type",
        "/device/op": "op]",
        "/device/op/matrix/type/1": '"double"',
        "/device/op/matrix/q~1r~0": '"q/r~"',
        "/inner/x/n": "n = 1.5",
    }.items():
        line, column = places[pointer]
        assert lines[line - 1][column - 1 :].startswith(text), pointer


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": 1,\n"a": 2}'])
def test_of_two_members_of_one_name_it_is_the_last(text: str) -> None:
    before = text[: text.rindex('"a"')]
    assert find_places(text) == {"/a": (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)}


@given(st.text("[]{}=:,.\"'\n#ab\\ \0é"), st.booleans())
def test_a_malformed_document_has_places_or_is_an_error(text: str, is_toml: bool) -> None:
    with suppress(ValueError, IndexError):
        lines = len(text.split("\n"))
        assert all(1 <= line <= lines for line, _ in find_places(text, is_toml=is_toml).values())


def test_where_a_file_is_gone_or_malformed_by_now_it_is_the_place(tmp_path: Path) -> None:
    path = tmp_path / "family.toml"
    for text in (None, "[[[", "a = ]", 'a = "'):
        if text is not None:
            path.write_text(text)
        assert find_place(path, ("family",), "name", 0) == Location(str(path), about="in [family]")
