"""Progress is shown where a person looks."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from jitlto.cli import output
from tests.support.process import ROOT


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
    for _ in range(3):
        observer.step()
    observer.add(9)
    observer.step()
print("done")
"""


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What a terminal gets on standard output and error of a Python program."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"} | variables
    words = [sys.executable, *arguments]
    try:
        subprocess.run(words, stdout=terminal, stderr=terminal, env=environment, check=False, timeout=60)
    finally:
        os.close(terminal)
    shown = b""
    with suppress(OSError), os.fdopen(controller, "rb", buffering=0) as reader:  # Linux ends it with EIO
        while chunk := reader.read(4096):
            shown += chunk
    return shown.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_bar() -> None:
    shown = on_a_terminal("-c", _SCRIPT)
    assert "compiling" in shown
    assert "6/9" in shown
    assert re.search(r"#-+\]  10/18", shown), "a second step of the work is no more at its end than it is"
    assert shown.rstrip().endswith("done")


@pytest.mark.slow
def test_a_dumb_terminal_and_one_that_wants_quiet_get_no_bar() -> None:
    assert on_a_terminal("-c", _SCRIPT, TERM="dumb") == on_a_terminal("-c", _SCRIPT, "quiet") == "done\r\n"


@pytest.mark.slow
def test_colours_are_for_a_terminal_that_wants_them(mini_path: Path) -> None:
    for command in (("ls", str(mini_path)), ("ls", "no-such.fragdb")):
        coloured = on_a_terminal("-m", "jitlto", *command)
        plain = on_a_terminal("-m", "jitlto", *command, NO_COLOR="1")
        assert "\x1b[" in coloured and "\x1b" not in plain
        assert re.sub(r"\x1b\[\d*m", "", coloured) == plain
