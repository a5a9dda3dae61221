"""Progress: a bar on a terminal, rare lines in a log, silence for short builds; and a time left that comes true."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import CompileError
from jitlto.build.execution.events import Span
from jitlto.build.execution.trace import Trace
from jitlto.cli.progress import progress
from jitlto.cli.tally import Tally, duration
from jitlto.record.fragment import FragmentKey
from tests.support.process import ROOT


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


KEYS = [FragmentKey.make("f", "g", {"n": str(n)}) for n in range(341)]


def span(key: FragmentKey) -> Span:
    return Span(key, "1", 0.0, 1.0)


def log_of(*, hits: int, seconds_a_compile: float, stop: int = len(KEYS), quiet: bool = False) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    with progress("compiling", quiet=quiet, stream=stream, clock=clock) as observer:
        observer.started(KEYS)
        for key in KEYS[:hits]:
            observer.cached(key)
        for key in KEYS[hits:stop]:
            clock.now += seconds_a_compile
            observer.compiled(span(key))
    return stream.getvalue().splitlines()


def test_a_log_gets_a_line_every_few_seconds() -> None:
    lines = log_of(hits=80, seconds_a_compile=0.125)
    assert lines[0] == "compiling: 120 of 341, 80 from the cache, 8.0/s, 28 s left"
    assert len(lines) == 6  # in 33 s
    assert not any("\x1b" in line or "\r" in line for line in lines)


def test_a_short_build_says_nothing() -> None:
    assert log_of(hits=0, seconds_a_compile=0.01) == []


def test_all_from_the_cache_says_nothing() -> None:
    assert log_of(hits=len(KEYS), seconds_a_compile=0) == []


def test_the_last_fragment_gets_no_line() -> None:
    assert log_of(hits=len(KEYS) - 1, seconds_a_compile=60) == []


def test_quiet_says_nothing() -> None:
    assert log_of(hits=0, seconds_a_compile=10, quiet=True) == []


def test_slow_compiles_are_counted_by_the_minute() -> None:
    assert log_of(hits=0, seconds_a_compile=20, stop=1) == ["compiling: 1 of 341, 3.0/min, 1 h 53 min left"]


def test_failures_are_counted() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress("compiling", stream=stream, clock=clock) as observer:
        observer.started(KEYS[:4])
        clock.now += 10
        observer.failed(KEYS[0], CompileError("no"))
    assert stream.getvalue() == "compiling: 1 of 4, 1 failed, 6.0/min, 30 s left\n"


def test_a_text_stands_beside_the_progress_of_a_log() -> None:
    stream = io.StringIO()
    with progress("compiling", stream=stream) as observer:
        observer.say("error: [one] *two*")
    assert stream.getvalue() == "error: [one] *two*\n"


def test_colours_forced_on_a_log_do_not_make_it_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert log_of(hits=0, seconds_a_compile=1, stop=5) == ["compiling: 5 of 341, 1.0/s, 5 min 36 s left"]


_SCRIPT = """
import time
from jitlto.build.execution.events import Span
from jitlto.cli.progress import progress
from jitlto.record.fragment import FragmentKey
keys = [FragmentKey.make("f", "g", {"n": str(n)}) for n in range(9)]
with progress("compiling") as observer:
    observer.started(keys)
    observer.cached(keys[0])
    for key in keys[1:6]:
        time.sleep(0.05)
        observer.compiled(Span(key, "1", 0.0, 0.05))
    observer.say("error: [bold]x[/bold] :smile: " + 120 * "-")
    time.sleep(0.3)
print("done")
"""


def on_a_terminal(**variables: str) -> str:
    """What a terminal gets on standard output and error."""
    controller, terminal = pty.openpty()
    root = str(ROOT)
    environment = os.environ | {"PYTHONPATH": root, "TERM": "xterm", "COLUMNS": "100"} | variables
    try:
        subprocess.run(
            [sys.executable, "-c", _SCRIPT], stdout=terminal, stderr=terminal, env=environment, check=True, timeout=60
        )
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
    assert "1 from the cache" in shown
    assert "/s" in shown
    assert " left" in shown
    assert f"error: [bold]x[/bold] :smile: {120 * '-'}" in shown.replace("\r\n", "")
    assert "\x1b[2K" in shown[shown.rindex("6/9") :]  # the line is wiped
    assert shown.rstrip().endswith("done")


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_bar() -> None:
    text, done = on_a_terminal(TERM="dumb").splitlines()
    assert text.startswith("error: ") and done == "done"


@pytest.mark.slow
@given(count=st.integers(2, 20), seconds=st.floats(0.1, 10), hits=st.integers(0, 5), done=st.integers(1, 19))
def test_the_time_left_follows_the_rate(count: int, seconds: float, hits: int, done: int) -> None:
    """Where every compile takes equally long, the time left is exact from the first on."""
    keys = KEYS[:count]
    clock = Clock()
    tally = Tally(clock)
    tally.started(keys)
    hits = min(hits, len(keys) - 2)
    done = min(hits + done, len(keys) - 1)
    for key in keys[:hits]:
        clock.now += 3  # looking up does not count
        tally.cached(key)
    assert tally.seconds_left is None
    for key in keys[hits:done]:
        clock.now += seconds
        tally.compiled(span(key))
    assert tally.seconds_left == pytest.approx((count - done) * seconds)
    foreseen = tally.seconds_left
    clock.now += 0.01
    assert tally.seconds_left == pytest.approx(max(0, foreseen - 0.01), abs=1e-6)
    for key in keys[done:]:
        tally.compiled(span(key))
    assert tally.seconds_left is None
    assert (tally.total, tally.done, tally.hits) == (len(keys), len(keys), hits)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (4320, "1 h 12 min"),
    ],
)
def test_durations_are_written_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_recorder_passes_on_all_that_it_hears() -> None:
    tally = Tally()
    inner = Trace(tally)
    outer = Trace(inner)
    outer.phase("compile")
    outer.started(KEYS[:3])
    outer.cached(KEYS[0])
    outer.compiled(span(KEYS[1]))
    outer.failed(KEYS[2], CompileError("no"))
    assert (tally.total, tally.hits, tally.compiles, tally.failures) == (3, 1, 1, 1)
    assert all(str(KEYS[1]) in trace.to_json() for trace in (inner, outer))
