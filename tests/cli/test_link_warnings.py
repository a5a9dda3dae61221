"""What nvJitLink and ptxas warn of is said by every command that links, each time, and resources on request."""

import json
import re
from pathlib import Path

import pytest

from tests.support.commands import jitlto
from tests.support.families import MINI, built

TWICE = ("data_type=float", "op_name=twice")
SM_90 = ("--arch", "sm_90")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The family ``mini`` with a register limit that ptxas raises."""
    files = MINI | {"family.toml": MINI["family.toml"] + "\n[link]\nmax_registers = 3\n"}
    return built(tmp_path_factory.mktemp("limited"), files, "mini").location


def test_plan_warns_of_what_was_linked_and_of_what_is_found(limited: Path, empty_cache: Path) -> None:
    for found in (False, True):
        done = jitlto("plan", "mini", *TWICE, "--db", limited, *SM_90)
        assert done.returncode == 0
        assert ("in the user's cache" in done.stdout) == found
        assert "ptxas: " in done.stderr
        assert "mini/kern[data_type=float] for sm_90" in done.stderr


def test_check_warns_each_time_and_holds(limited: Path, empty_cache: Path) -> None:
    for _ in range(2):
        done = jitlto("check", limited, "--link", "sm_90")
        assert done.returncode == 0
        assert done.stderr.count("ptxas: ") == 1  # one text for all kernels
        assert "(and 1 more)" in done.stderr
    assert json.loads(jitlto("check", limited, "--link", "sm_90", "--json").stdout)["holds"] is True


def test_warm_warns_of_what_it_links_and_of_what_is_there(limited: Path, empty_cache: Path, tmp_path: Path) -> None:
    for where in ((), (), ("-o", tmp_path / "mini.pack")):
        done = jitlto("warm", "mini", "--db", limited, *SM_90, *where)
        assert done.returncode == 0
        assert "ptxas: " in done.stderr


def test_plan_shows_registers_and_spills_on_request(mini_path: Path) -> None:
    command = ("plan", "mini", *TWICE, "--db", mini_path, *SM_90)
    plain, asked = jitlto(*command), jitlto(*command, "--resources")
    assert re.search(r"Used \d+ registers", asked.stdout)
    assert re.search(r"\d+ bytes spill stores", asked.stdout)
    assert "registers" not in plain.stdout
    # The kernel that it shows is the one that is launched, without an option for the report.
    assert re.findall("digest .*", plain.stdout) == re.findall("digest .*", asked.stdout)
    for other in (("--dump", "json"), ("--link-mode", "sass")):
        assert jitlto(*command, "--resources", *other).returncode == 2
