"""Parameters that commands share mean the same in every command."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto.cli import cli
from tests.support.commands import fails, jitlto

TWICE = ("data_type=float", "op_name=twice")
#: The commands that take an architecture, each with the option for it last.
WITH_TARGET = {
    "plan": ("plan", "mini", *TWICE, "--db", "mini.fragdb", "--arch"),
    "warm": ("warm", "mini", "--db", "mini.fragdb", "-o", "mini.pack", "--arch"),
    "check": ("check", "mini.fragdb", "--link"),
}


@pytest.mark.parametrize("command", WITH_TARGET)
@pytest.mark.parametrize("arch", ["ninety", "sm_20", ""])
def test_a_wrong_architecture_is_a_usage_error_in_every_command(
    command: str, arch: str, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(mini_path, "mini.fragdb")
    done = CliRunner().invoke(cli, [*WITH_TARGET[command], arch])
    assert done.exit_code == 2
    assert WITH_TARGET[command][-1] in done.stderr
    assert arch in done.stderr


@pytest.mark.parametrize("command", [("ls",), ("verify",), ("plan", "search", "--db")])
def test_an_address_in_the_place_of_a_path_is_wrong_usage_and_shown_as_given(command: tuple[str, ...]) -> None:
    address = f"s3://bucket/ci#sha256={'0' * 64}"
    fails(jitlto(*command, address), 2, address, "jitlto pull")
