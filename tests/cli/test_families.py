"""Commands take families of installed packages by name, and list them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jitlto.base.errors import JitltoError, RegistryError
from jitlto.cli import cli
from jitlto.database import FragmentDatabase
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
    assert KEY in run("ls", "mini").stdout
    (tmp_path / "mini").rmdir()
    rewritten(mini_path, tmp_path / "mini", name="other")
    assert KEY.replace("mini/", "other/") in run("ls", "mini").stdout


def test_unknown_families_and_packages_are_one_message(site: Path, mini_path: Path, tmp_path: Path) -> None:
    install_mini(site, mini_path)
    fails(jitlto("ls", "mimi"), 1, "[registry-unknown-family]", "'mimi'", "'mini'")
    fails(jitlto("verify", "other:mini"), 1, "[registry-unknown-family]", "'other'", "my-package")
    fails(jitlto("ls", tmp_path / "mini"), 1, "[database-not-found]")
    fails(jitlto("ls"), 2, "--installed")
    fails(jitlto("ls", "mini", "--installed"), 2, "--installed")
    fails(jitlto("plan", "a:mini", "--db", mini_path), 2, "--db and the package 'a' exclude")
    fails(jitlto("warm", "a.b:mini"), 1, "[registry-unknown-family]", "'a.b'")


def test_installed_families_are_listed_with_their_versions_and_what_they_are(site: Path, mini_path: Path) -> None:
    first = install_mini(site, mini_path, "First.Package", "1.0")
    second = install_mini(site, mini_path, "second", "2.1+cu13")
    rewritten(mini_path, second, options=("-DOTHER",))
    broken = install_mini(site, mini_path, "third", "3.0")
    broken.write_bytes(b"damaged")
    install(site, "liar", families={"lie": "second.data.fragments", "bad": "a-b"})
    listed = {
        f"{each['distribution']}:{each['family']}": each
        for each in json.loads(run("ls", "--installed", "--json").stdout)["families"]
    }
    with FragmentDatabase(first) as opened:
        assert listed["First.Package:mini"] == {
            "family": "mini",
            "distribution": "First.Package",
            "version": "1.0",
            "editable": None,
            "database": str(first),
            "digest": opened.digest,
            "architectures": ["75"],
            "compilers": sorted({f"{i.toolchain} {i.version}" for f in opened.fragments() for i in f.images}),
            "size": first.stat().st_size,
            "trouble": None,
            "remedy": None,
        }
    assert listed["second:mini"]["version"] == "2.1+cu13"
    assert listed["second:mini"]["digest"] != listed["First.Package:mini"]["digest"]
    assert "not a fragment database" in listed["third:mini"]["trouble"]
    assert "pip install --force-reinstall" in listed["third:mini"]["remedy"]
    assert listed["liar:lie"]["trouble"] == "database holds no family 'lie'"
    assert "invalid entry point" in listed["liar:bad"]["trouble"]
    text = run("ls", "--installed").stdout
    assert "mini  First.Package 1.0  for compute_75  nvrtc " in text
    assert f"\n  {first}\n  digest " in text
    assert text.index("First.Package") < text.index("second 2.1+cu13") < text.index("third")
    assert "is not a fragment database" in text
