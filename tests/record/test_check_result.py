"""The result of a check: what was written is read back, and anything else is one clear error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.record.check_result import read_check_result
from tests.support.errors import raises

_CAUSE = {
    "kind": "link",
    "archs": ["sm_90"],
    "message": "m",
    "hint": None,
    "log": "",
    "at": [{"subject": "f", "configuration": {"a": "b"}, "arch": None}],
}
RESULT = {
    "digest": "d",
    "holds": False,
    "families": [
        {
            "family": "f",
            "holds": True,
            "kernels": 2,
            "completed_by_callers": 0,
            "failures": [],
            "notes": [{"kind": "gap", "message": "m", "subject": "f", "configuration": {}}],
        }
    ],
    "link": {
        "archs": ["sm_90"],
        "mode": "lto",
        "nvjitlink": "13.0",
        "families": [
            {"family": "f", "holds": False, "linked": 1, "kernels": 2, "cover": 1, "tuples": 3, "failures": [_CAUSE]}
        ],
    },
}


def _places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every part of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, part in inner for place in _places(part, (*at, name)))]


_JUNK = st.sampled_from([None, True, -1, 1.5, "", "\ud800", [], [None], {}, {"a": []}])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(_places(RESULT)[1:]), _JUNK)
def test_a_malformed_result_is_one_error(place: tuple[str | int, ...], junk: object) -> None:
    document = json.loads(json.dumps(RESULT))
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = junk
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "check.json"
        file.write_text(json.dumps(RESULT))
        whole = read_check_result(file)
        file.write_text(json.dumps(document))
        try:
            assert read_check_result(file) != whole or document == RESULT or place[-1] in ("holds", "arch")
        except JitltoError as error:
            assert error.where == str(file)
            assert "jitlto check" in (error.hint or "")


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    file.write_text(json.dumps(RESULT))
    result = read_check_result(file)
    file.write_bytes(msgspec.json.encode(result))
    assert read_check_result(file) == result
    links = result.links_of("f")
    assert links is not None
    assert (links.linked, links.tuple_name) == (1, "values")
    assert result.links_of("g") is None
    assert result.only("g").families == ()


def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    with raises(JitltoError, "jitlto-unreadable-file", where="none.json", hint="jitlto check"):
        read_check_result(tmp_path / "none.json")
