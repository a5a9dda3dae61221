"""``jitlto tune``: problems from the command line, a table, a plot and wisdom; the device is simulated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jitlto.base.errors import NoDeviceError
from jitlto.cli import tune as command
from jitlto.cuda import device
from jitlto.runtime.family import KernelFamily
from jitlto.tuning import wisdom_file
from tests.support.commands import Result, fails, jitlto
from tests.support.simulated import Simulated
from tests.support.tuned import PlannedFamily, open_tuned, pretend_to_link

WORK = """
from jitlto.tuning.tune import Workload

def make(problem):
    return Workload(launch=lambda best, stream: 2.0 if "twice" in str(best.variant) else 1.0)

nothing = 3
"""


@pytest.fixture
def family(tuned_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedFamily:
    """The family that the command finds: on a pretended device."""
    opened = open_tuned(Path(shutil.copy(tuned_path, tmp_path / "tuned.fragdb")), monkeypatch)
    (tmp_path / "work.py").write_text(WORK)
    monkeypatch.setattr(command, "find_family", lambda name, path: opened)
    pretend_to_link(monkeypatch)
    original = KernelFamily.tune
    monkeypatch.setattr(
        PlannedFamily, "tune",
        lambda self, problem, load, *, cold, **how: original(self, problem, load, measures=Simulated(1), **how),
        raising=False,
    )  # fmt: skip
    return opened


def run(tmp_path: Path, *arguments: str | Path) -> Result:
    return jitlto("tune", "mini", "--workload", f"{tmp_path / 'work.py'}:make", *arguments)


def test_it_says_what_is_the_fastest_and_adds_it_to_wisdom(family: PlannedFamily, tmp_path: Path) -> None:
    done = run(tmp_path, "n=1000,5000", "data_type=float", "-o", tmp_path / "ship.wisdom", "--plot", tmp_path / "a.svg")
    assert done.returncode == 0, done.stderr
    for text in ("n=1000 data_type=float", "n=5000", "op_name=square", "2.00 times", "NVIDIA H200", "8 variants"):
        assert text in done.stdout
    assert len(wisdom_file.read(family.session.config.wisdom)) == 2
    assert wisdom_file.read(tmp_path / "ship.wisdom") == wisdom_file.read(family.session.config.wisdom)
    assert family.best(n=1000, data_type="float").origin == "measured"
    drawing = ElementTree.parse(tmp_path / "a.svg").getroot()  # noqa: S314 - written above
    assert len(drawing.findall("{http://www.w3.org/2000/svg}rect")) == 16


def test_the_same_for_programs(family: PlannedFamily, tmp_path: Path) -> None:
    done = run(tmp_path, "n=1000", "data_type=float", "--json")
    (found,) = json.loads(done.stdout)["problems"]
    assert found["problem"] == {"n": 1000, "data_type": "float"}
    assert found["speed_up"] == pytest.approx(2.0, rel=0.02)
    assert len(found["trials"]) == found["variants"] == 8
    assert found["complete"]


@pytest.mark.parametrize(
    ("workload", "status", "code"),
    [("work.py", 2, "FUNCTION"), ("work.py:other", 1, "tuning-workload"), ("work.py:nothing", 1, "tuning-workload"),
     ("none.py:make", 1, "tuning-workload"), ("no_such_module:make", 1, "tuning-workload")],
)  # fmt: skip
def test_a_workload_that_is_none(family: PlannedFamily, tmp_path: Path, workload: str, status: int, code: str) -> None:
    fails(jitlto("tune", "mini", "n=1", "--workload", f"{tmp_path}/{workload}"), status, code)


@pytest.mark.parametrize(
    "text", ["raise ValueError('no')", "import sys; sys.exit('no')", "def make(problem):\n    raise ValueError('no')"]
)
def test_a_workload_that_fails_is_an_error(
    family: PlannedFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(device, "current", lambda: None)
    (tmp_path / "work.py").write_text(text)
    fails(run(tmp_path, "n=1000", "data_type=float"), 1, "tuning-workload", "no")


def test_a_workload_that_needs_a_device_is_an_error_without_one(
    family: PlannedFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "current", refuse)
    (tmp_path / "work.py").write_text("def make(problem):\n    raise RuntimeError('cudaErrorInsufficientDriver')")
    fails(run(tmp_path, "n=1000", "data_type=float"), 1, "no-device")


def refuse() -> None:
    raise NoDeviceError("none")


def test_wrong_names_are_said_before_anything_is_made(family: PlannedFamily, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def make(problem):\n    raise SystemExit('made')")
    fails(run(tmp_path, "m=1000", "data_type=float"), 1, "plan-problem", "n")


def test_what_is_no_problem_is_an_error(family: PlannedFamily, tmp_path: Path) -> None:
    fails(run(tmp_path, "data_type=float"), 1, "plan-problem", "n")
