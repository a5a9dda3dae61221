"""What a command may not read or write is work that failed, as what is missing is: exit status 1."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process import ROOT

# What lets root pass permissions by; without them it is a user as any other.
_BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
pytestmark = pytest.mark.skipif(os.getuid() == 0 and shutil.which("setpriv") is None, reason="setpriv is not there")


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


@pytest.mark.slow
@pytest.mark.parametrize("command", [("ls",), ("check",), ("doctor",), ("merge", "-o", "x.fragdb")], ids=" ".join)
def test_a_database_without_permission_is_reported_like_a_missing_one(locked: Path, command: tuple[str, ...]) -> None:
    assert f"error: {locked}: cannot be read: permission denied" in _said(1, *command, locked)
    missing = locked.with_name("missing.fragdb")
    assert f"error: {missing}: no such file" in _said(1, *command, missing)


@pytest.mark.slow
def test_a_dump_that_may_not_be_written_is_one_error(locked: Path, mini_path: Path) -> None:
    output = locked.with_name("x.ptx")
    kernel = ("mini", "data_type=float", "op_name=twice", "--db", mini_path, "--arch", "sm_90")
    assert f"error: {output}: cannot be written: Permission denied" in _said(
        1, "plan", *kernel, "--dump", "ptx", "-o", output
    )


@pytest.mark.slow
def test_doctor_goes_on_where_the_cache_may_not_be_looked_at(locked: Path) -> None:
    locked.parent.chmod(0)
    said = _said(0, "doctor", JITLTO_CACHE_DIR=str(locked.parent / ".cache" / "jitlto"))
    assert f"{locked.parent} cannot be written" in said
    assert "building and linking work" in said
