"""What a command may not read or write is work that failed, and a path that no file can have is wrong usage."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import fails, jitlto
from tests.support.process import ROOT

# What lets root pass permissions by; without them it is a user as any other.
_BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
needs_setpriv = pytest.mark.skipif(
    os.getuid() == 0 and shutil.which("setpriv") is None, reason="setpriv is not installed"
)


def _said(status: int, *arguments: str | Path, **variables: str) -> str:
    """What a command says, on a line of its own each, as a user whom permissions bind."""
    command = [*(_BOUND if os.getuid() == 0 else []), sys.executable, "-m", "jitlto", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def locked(mini_path: Path, tmp_path: Path) -> Iterator[Path]:
    """A database that may not be read, in a directory that may not be written."""
    path = tmp_path / "closed" / "locked.fragdb"
    path.parent.mkdir()
    shutil.copy(mini_path, path)
    path.chmod(0)
    path.parent.chmod(0o500)
    yield path
    path.parent.chmod(0o700)


@needs_setpriv
@pytest.mark.slow
@pytest.mark.parametrize("command", [("ls",), ("check",), ("merge", "-o", "x.fragdb")], ids=" ".join)
def test_a_database_without_permission_is_reported_like_a_missing_one(locked: Path, command: tuple[str, ...]) -> None:
    assert f"error: {locked}: cannot be read: permission denied" in _said(1, *command, locked)
    missing = locked.with_name("missing.fragdb")
    assert f"error: {missing}: no such file" in _said(1, *command, missing)


KERNEL = ("mini", "data_type=float", "op_name=twice", "--arch", "sm_90")
#: Every place on the command line where a path is given, as PATH; DB is an existing database.
PLACES = (
    "new my-kernels -o PATH", "expand PATH", "render transform -o PATH", "build transform -o PATH",
    "build transform -o x.fragdb --timings PATH",
    "build --project PATH -o x.fragdb", "merge PATH -o x.fragdb",
    "merge DB -o PATH", "ls PATH", "show PATH mini/kern[]", "verify PATH", "verify --manifest PATH",
    "verify DB --manifest PATH --signers PATH", "check PATH", "report PATH -o x.html", "report DB -o PATH",
    "plan KERNEL --db PATH", "plan KERNEL --db DB --dump json -o PATH", "warm KERNEL --db PATH",
    "warm KERNEL --db DB -o PATH",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_no_file_can_have_is_wrong_usage(mini_path: Path, tmp_path: Path, place: str, name: str) -> None:
    words = {"PATH": [name], "DB": [str(mini_path)], "KERNEL": [*KERNEL]}
    arguments = [word for each in place.split() for word in words.get(each, [each])]
    fails(jitlto(*arguments, cwd=tmp_path), 2, "not a valid path")
    assert list(tmp_path.iterdir()) == []
