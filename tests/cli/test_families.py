"""Commands take families of installed packages by name, and list them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jitlto.base.errors import JitltoError, RegistryError
from jitlto.cli import cli
from jitlto.runtime import session
from tests.runtime.discovery.test_entry_points import install_mini, site
from tests.runtime.discovery.test_registry import rewritten
from tests.support.commands import fails, jitlto
from tests.support.distributions import install
from tests.support.errors import raises

__all__ = ["site"]  # a fixture
KEY = "mini/op[data_type=float,op_name=twice]"
TWICE = ("data_type=float", "op_name=twice")


def run(*arguments: str | Path, status: int = 0) -> Result:
    """Run a command in this process."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if isinstance(done.exception, JitltoError):
        raise done.exception
    assert done.exit_code == status, done.output
    return done


COMMANDS: list[tuple[str | Path, ...]] = [
    ("ls", "FAMILY"),
    ("show", "FAMILY", KEY),
    ("verify", "FAMILY"),
    ("check", "FAMILY"),
    ("plan", "FAMILY", *TWICE, "--arch", "sm_90"),
    ("warm", "FAMILY", *TWICE, "--arch", "sm_90"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(str, command[:2])))
def test_a_command_takes_an_installed_family_by_name_or_by_package_and_name(
    site: Path, mini_path: Path, command: tuple[str, ...]
) -> None:
    by_path = [mini_path if part == "FAMILY" else part for part in command]
    if command[0] in ("plan", "warm"):
        by_path = ["mini" if part == "FAMILY" else part for part in command] + ["--db", mini_path]
    run(*by_path)  # so that warm finds what it has linked, each time
    expected = run(*by_path).stdout.splitlines()
    first = install_mini(site, mini_path, "my-package")
    for name in ("mini", "my-package:mini", "My_Package:mini"):
        told = run(*(name if part == "FAMILY" else part for part in command)).stdout.splitlines()
        # Times and places differ.
        assert [line.split()[0] for line in told if line.split()[0] != str(first) + ":"] == [
            line.split()[0] for line in expected if line.split()[0] != f"{mini_path}:"
        ]
    # With another package that brings it, the plain name is an error, and this one is still meant by its name.
    second = install_mini(site, mini_path, "another")
    rewritten(mini_path, second, options=("-DOTHER",))

    session.default.reset()
    by_name = ["mini" if part == "FAMILY" else part for part in command]
    if command[0] == "verify":  # which goes on to the next one
        assert "[registry-ambiguous-package]" in run(*by_name, status=1).output
    else:
        with raises(RegistryError, "registry-ambiguous-package", "'mini'", "my-package", "another"):
            run(*by_name)
    run(*("my-package:mini" if part == "FAMILY" else part for part in command))
    session.default.reset()


def test_a_file_wins_over_a_family_of_its_name(
    site: Path, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mini(site, mini_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()  # a directory is none
    assert "mini: 6 fragments" in run("ls", "mini").stdout
    (tmp_path / "mini").rmdir()
    rewritten(mini_path, tmp_path / "mini", name="other")
    assert KEY.replace("mini/", "other/") in run("ls", "--long", "mini").stdout


def test_unknown_families_and_packages_are_one_message(site: Path, mini_path: Path, tmp_path: Path) -> None:
    install_mini(site, mini_path)
    fails(jitlto("ls", "mimi"), 1, "[registry-unknown-family]", "'mimi'", "'mini'")
    fails(jitlto("verify", "other:mini"), 1, "[registry-unknown-family]", "'other'", "my-package")
    fails(jitlto("ls", tmp_path / "mini"), 1, "[database-not-found]")
    fails(jitlto("plan", "a:mini", "--db", mini_path), 2, "--db and the package 'a' exclude")
    fails(jitlto("warm", "a.b:mini"), 1, "[registry-unknown-family]", "'a.b'")


def test_doctor_lists_installed_families_with_their_versions_and_what_they_are(site: Path, mini_path: Path) -> None:
    first = install_mini(site, mini_path, "First.Package", "1.0")
    install_mini(site, mini_path, "third", "3.0").write_bytes(b"damaged")
    install(site, "liar", families={"lie": "First_Package.data.fragments", "bad": "a-b"})
    findings = json.loads(run("doctor", "--json").stdout)["findings"]
    listed = {each["value"].partition(": ")[0]: each for each in findings if each["name"] == "installed family"}
    assert listed["mini of First.Package 1.0"]["value"].endswith(f": {first}: mini; 6 fragments")
    assert listed["mini of First.Package 1.0"]["ok"]
    assert "not a fragment database" in listed["mini of third 3.0"]["value"]
    assert "pip install --force-reinstall" in listed["mini of third 3.0"]["remedy"]
    assert any("invalid entry point" in each["value"] for each in listed.values())
