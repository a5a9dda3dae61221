"""What commands print: a list in parts is the list as a whole, and progress is shown where a person looks."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.cli import output
from tests.support.process import ROOT

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(), values, min_size=1, max_size=2), st.lists(values, max_size=5))
@pytest.mark.slow
def test_a_list_in_parts_is_the_list_as_a_whole(
    capsys: pytest.CaptureFixture[str], head: dict[str, object], items: list[object]
) -> None:
    head.pop("items", None)
    head["x"] = "["
    output.print_json_list(head, "items", items)
    assert json.loads(capsys.readouterr().out) == {**head, "items": items}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_separators_are_where_they_belong(capsys: pytest.CaptureFixture[str], count: int) -> None:
    items = [{"a": [n, "\u2028\n"]} for n in range(count)]
    output.print_json_list({"x": "["}, "items", items)
    assert json.loads(capsys.readouterr().out) == {"x": "[", "items": items}


def test_a_log_gets_no_progress_whatever_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with output.progress("linking") as shown:
        shown.add(2)
        shown.step()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


_SCRIPT = """
import sys, time
from jitlto.build.execution.events import Span
from jitlto.cli.output import progress
from jitlto.record.fragment import FragmentKey
keys = [FragmentKey.make("f", "g", {"n": str(n)}) for n in range(9)]
with progress("compiling", quiet=len(sys.argv) > 1) as observer:
    observer.started(keys)
    observer.cached(keys[0])
    for key in keys[1:6]:
        observer.compiled(Span(key, "1", 0.0, 0.05))
    time.sleep(0.3)
print("done")
"""


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a terminal gets on standard output and error."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"} | variables
    words = [sys.executable, "-c", _SCRIPT, *arguments]
    try:
        subprocess.run(words, stdout=terminal, stderr=terminal, env=environment, check=True, timeout=60)
    finally:
        os.close(terminal)
    shown = b""
    with suppress(OSError), os.fdopen(controller, "rb", buffering=0) as reader:  # Linux ends it with EIO
        while chunk := reader.read(4096):
            shown += chunk
    return shown.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_bar_that_vanishes() -> None:
    shown = on_a_terminal()
    assert "━" in shown
    assert "6/9" in shown
    assert "\x1b[2K" in shown[shown.rindex("6/9") :]  # the line is wiped
    assert shown.rstrip().endswith("done")


@pytest.mark.slow
def test_a_dumb_terminal_and_one_that_wants_quiet_get_no_bar() -> None:
    assert on_a_terminal(TERM="dumb") == on_a_terminal("quiet") == "done\r\n"
