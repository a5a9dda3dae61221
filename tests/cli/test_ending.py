"""How commands end that are asked to by a signal: in order, and with the status that says so."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.families import MINI, write_family
from tests.support.process import ROOT


def _hears() -> None:
    """Tests may run under nohup, which is inherited."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def _started(directory: Path, *command: str | Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A command with a directory of its own for temporary files."""
    (directory / "tmp").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(directory / "tmp")} | variables
    words = [*map(str, command)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=_hears) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait(until: Callable[[], object]) -> None:
    for _ in range(1200):
        if until():
            return
        time.sleep(0.05)
    raise TimeoutError


def _working(directory: Path) -> list[str]:
    """The processes that were given a directory of ours to work with."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if str(directory / "tmp" / "jitlto-workers-").encode() in words:
            found.append(process.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_build_that_is_asked_to_end_leaves_no_directory_and_no_worker(tmp_path: Path, number: signal.Signals) -> None:
    family = write_family(tmp_path / "family", MINI)
    command = (sys.executable, "-m", "jitlto", "build", family, "-o", tmp_path / "x.fragdb", "--no-cache", "-j", "2")
    with _started(tmp_path, *command) as process:
        _wait(lambda: _working(tmp_path))
        process.send_signal(number)
        if number != signal.SIGINT:
            process.send_signal(number)  # as timeout(1) does
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert said.split("\n")[-2:-1] == [f"ended by {number.name}"]
    _wait(lambda: not list((tmp_path / "tmp").iterdir()))
    _wait(lambda: not _working(tmp_path))
    assert not (tmp_path / "x.fragdb").exists()


# The signal comes in the import of a module: of one that all commands need, of the command's own, of what that needs.
IMPORTING = """
import signal, sys
_, module, number = sys.argv
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            signal.raise_signal(int(number))
            print("raised", file=sys.stderr)
sys.meta_path.insert(0, Finder())
from jitlto.__main__ import main
sys.argv[1:] = ["ls", "--help"]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("name", ["jitlto.cli", "click", "jitlto.base.errors", "jitlto.cli.database", "msgspec"])
def test_a_signal_while_a_command_is_imported_ends_it_at_once(name: str, number: signal.Signals) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", IMPORTING, name, str(int(number))]
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment, timeout=60, check=False, preexec_fn=_hears
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", f"ended by {number.name}\n")


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_ignored_while_a_command_is_imported() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-c", IMPORTING, "click", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "raised\n")
