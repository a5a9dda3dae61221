"""What names a database or a family on the command line means the same in every command."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import fails, jitlto, succeeds
from tests.support.families import MINI, SHARED, write_family

TWICE = ("data_type=float", "op_name=twice", "--arch", "sm_90")
COMMANDS = {
    "ls": (), "show": ("op[data_type=float,op_name=twice]",), "verify": (), "check": (), "report": ("-o", "x.html"),
    "plan": (*TWICE, "--dump", "json"), "warm": (*TWICE, "-o", "x.pack", "--json"),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, mini_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the declaration of a family, and with what `jitlto build` makes of it."""
    monkeypatch.chdir(tmp_path)
    write_family(tmp_path / "sources" / "mini", MINI)
    shutil.copy(mini_path, "mini.fragdb")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_a_directory_and_a_name_mean_one_database_in_every_command(here: Path, command: str) -> None:
    def said(target: str, **variables: str) -> list[str]:
        printed = re.sub(r"[\w./-]*\.fragdb", "DB", succeeds(command, target, *COMMANDS[command], **variables))
        return [line for line in printed.splitlines() if "seconds" not in line]

    said("mini.fragdb")  # after which nothing has to be linked or proved
    expected = said("mini.fragdb")
    assert said("mini", JITLTO_DATABASE_PATH="mini.fragdb") == expected
    assert said("mini") == expected
    for target in ("sources/mini", "./sources/mini/", "sources/mini/family.toml"):
        assert command == "plan" or said(target) == expected


def test_a_plan_of_a_directory_is_of_its_sources(here: Path) -> None:
    def linked(target: str) -> str:
        return succeeds("plan", target, *TWICE, "--dump", "ptx")

    old, sources = linked("mini"), Path("sources/mini/op.json")
    sources.write_text(sources.read_text().replace("a + a", "a + 42"))
    for target in ("sources/mini", "sources/mini/family.toml"):
        assert "42280000" in linked(target)  # 42.0f
    assert linked("mini") == old
    assert "42280000" not in old


def test_a_directory_is_never_a_database_of_its_name(here: Path) -> None:
    """Neither one of earlier sources, nor one of another family of the name."""
    old, sources = json.loads(succeeds("ls", "mini", "--json"))["digest"], Path("sources/mini/op.json")
    assert json.loads(succeeds("ls", "sources/mini", "--json"))["digest"] == old
    sources.write_text(sources.read_text().replace("a + a", "a + 42"))
    assert json.loads(succeeds("ls", "sources/mini", "--json"))["digest"] != old
    Path("sources/mini").rename("mini")
    assert json.loads(succeeds("ls", "mini", "--json"))["digest"] != old
    assert json.loads(succeeds("ls", "mini.fragdb", "--json"))["digest"] == old


@pytest.mark.parametrize("command", ["plan", "warm"])
def test_a_family_may_be_named_beside_its_database(here: Path, command: str) -> None:
    shutil.move("mini.fragdb", "other.fragdb")
    arguments = (*TWICE, "--dump", "json") if command == "plan" else (*TWICE, "-o", "x.pack")
    succeeds(command, "mini", *arguments, "--db", "other.fragdb")
    fails(jitlto(command, "mini", *arguments), 1, "[registry-unknown-family]", "jitlto build")


def test_what_is_registered_goes_before_what_was_built_here(here: Path, tuned_path: Path) -> None:
    digest = json.loads(succeeds("ls", tuned_path, "--json"))["digest"]
    family = next(iter(json.loads(succeeds("ls", tuned_path, "--json"))["kernels"]))
    shutil.move("mini.fragdb", f"{family}.fragdb")
    assert json.loads(succeeds("ls", family, "--json", JITLTO_DATABASE_PATH=str(tuned_path)))["digest"] == digest


def test_a_directory_without_a_family_is_an_error(here: Path) -> None:
    fails(jitlto("plan", "sources"), 1, "sources")
    fails(jitlto("ls", "./sources/none"), 1, "sources/none")


def test_of_a_database_with_several_families_that_with_kernels_is_meant(tmp_path: Path, here: Path) -> None:
    write_family(tmp_path, SHARED)
    succeeds("build", "cluster", "-o", "both.fragdb")
    family = json.loads(succeeds("ls", "both.fragdb", "--json"))["kernels"]
    assert [name for name, count in family.items() if count] == ["cluster"]
    assert "cluster/" in succeeds("warm", "both.fragdb", "--arch", "sm_90", "-o", "x.pack", "--json")
    succeeds("merge", "both.fragdb", "mini.fragdb", "-o", "all.fragdb")
    fails(jitlto("plan", "all.fragdb"), 2, "cluster", "mini", "--db all.fragdb")
