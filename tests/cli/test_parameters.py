"""Parameters that commands share mean the same in every command."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jitlto.cli import cli
from tests.support.commands import fails, jitlto
from tests.support.families import MINI, write_family

TWICE = ("data_type=float", "op_name=twice")
#: The commands that take an architecture, each with the option for it last.
WITH_TARGET = {
    "plan": ("plan", "mini", *TWICE, "--db", "mini.fragdb", "--arch"),
    "warm": ("warm", "mini", "--db", "mini.fragdb", "-o", "mini.pack", "--arch"),
    "check": ("check", "mini.fragdb", "--link"),
}


def _commands(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name}{each} ")
        else:
            yield f"{name}{each}", command


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


@pytest.mark.parametrize("command", [("build", "./mini"), ("merge", "mini.fragdb")])
def test_an_unexpected_suffix_of_an_output_is_a_warning(
    command: tuple[str, ...], mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_family(tmp_path / "mini", MINI)
    shutil.copy(mini_path, "mini.fragdb")
    for name, warns in (("out.txt", True), ("out.fragdb", False)):
        done = CliRunner().invoke(cli, [*command, "-o", name])
        assert done.exit_code == 0, done.output
        assert (".fragdb" in done.stderr and "warning" in done.stderr) is warns


@pytest.mark.parametrize("command", [("ls",), ("verify",), ("plan", "search", "--db")])
def test_an_address_in_the_place_of_a_path_is_wrong_usage_and_shown_as_given(command: tuple[str, ...]) -> None:
    address = f"s3://bucket/ci#sha256={'0' * 64}"
    fails(jitlto(*command, address), 2, address, "jitlto pull")
