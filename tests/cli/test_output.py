"""Output that is written in parts is that which is written at once."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.cli import output

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(), values, max_size=2), st.lists(values, max_size=5))
@pytest.mark.slow
def test_a_list_in_parts_is_the_list_as_a_whole(
    capsys: pytest.CaptureFixture[str], head: dict[str, object], items: list[object]
) -> None:
    head.pop("items", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "_PART", 2)
        output.print_json_list(head, "items", items)
    assert capsys.readouterr().out == json.dumps({**head, "items": items}, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_separators_are_where_they_belong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(output, "_PART", 2)
    items = [{"a": [n, "\u2028\n"]} for n in range(count)]
    output.print_json_list({"x": "["}, "items", items)
    assert json.loads(capsys.readouterr().out) == {"x": "[", "items": items}
