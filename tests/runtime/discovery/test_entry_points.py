"""Families of installed packages are found by metadata, by name and by distribution, without importing packages."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jitlto
from jitlto.base import files
from jitlto.base.errors import DatabaseError, RegistryError
from jitlto.runtime import session
from jitlto.runtime.discovery import entry_points
from jitlto.runtime.discovery.registry import Registry
from jitlto.runtime.family import KernelFamily
from tests.runtime.discovery.test_registry import rewritten
from tests.support.distributions import install
from tests.support.errors import raises
from tests.support.process import ROOT, Result, python

TWICE = {"data_type": "float", "op_name": "twice"}
SQUARE = {"data_type": "float", "op_name": "square"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for installed packages, first on the path."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)  # type: ignore[no-untyped-call]
    session.default.reset()
    yield directory
    session.default.reset()


def install_mini(site: Path, mini_path: Path, name: str = "my-package", version: str = "1.0") -> Path:
    """A package with the family ``mini``; returns its database."""
    module = name.replace("-", "_").replace(".", "_").lower()
    value = f"{module}.data.fragments"
    install(site, name, version, families={"mini": value}, databases={value: mini_path})
    return site / module / "data" / "fragments.fragdb"


def process(code: str, *site: Path, **variables: str) -> Result:
    """Run code in a fresh process that sees the packages in some directories."""
    path = os.pathsep.join(map(str, [ROOT, *site]))
    return python("-c", code, seconds=120, PYTHONPATH=path, **variables)


# Found by name


def test_a_family_is_found_in_an_installed_package_whose_code_does_not_run(site: Path, mini_path: Path) -> None:
    path = install_mini(site, mini_path)
    mini = jitlto.family("mini")
    assert isinstance(mini, KernelFamily)
    assert mini.database.path == path
    assert mini.plan(arch="sm_90", **TWICE).link().cubin[:4] == b"\x7fELF"
    assert jitlto.load("mini").database.path == path
    assert "my_package" not in sys.modules


@pytest.mark.slow
def test_finding_imports_no_metadata_machinery_and_no_package(site: Path, mini_path: Path) -> None:
    install_mini(site, mini_path)
    code = """
import json, sys
before = set(sys.modules)
import jitlto
jitlto.family("mini")
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    process(code, site)  # after which it is known what the database holds
    done = process(code, site)
    loaded = set(json.loads(done.stdout))
    slow = {"importlib.metadata", "zipfile", "sqlite3", "email", "configparser", "tomllib",
            "jitlto.source.family", "jitlto.families", "difflib"}  # fmt: skip
    assert not loaded & {*slow, "my_package", "jitlto.database"}


def test_a_process_gets_one_family_until_the_database_changes(site: Path, mini_path: Path) -> None:
    path = install_mini(site, mini_path)
    first = jitlto.family("mini")
    assert jitlto.family("mini") is first
    assert jitlto.family("mini", distribution="my-package").database.digest == first.database.digest
    rewritten(mini_path, path, options=("-DCHANGED",))
    second = jitlto.family("mini")
    assert second is not first
    assert second.database.digest != first.database.digest
    shutil.rmtree(site)
    with pytest.raises(RegistryError):
        jitlto.family("mini")


def test_a_database_on_the_search_path_comes_first_and_others_are_not_opened(site: Path, mini_path: Path) -> None:
    path = install_mini(site, mini_path)
    path.write_bytes(b"damaged")
    assert Registry((mini_path,)).find("mini").path == mini_path
    with raises(DatabaseError, "database-foreign"):
        Registry().find("mini")


def test_a_named_package_takes_precedence_over_the_search_path(site: Path, mini_path: Path) -> None:
    path = install_mini(site, mini_path)
    other = rewritten(mini_path, site / "other.fragdb", options=("-DOTHER",))
    assert Registry((other,)).find("mini", "my-package").path == path


# Several packages


def test_two_packages_with_one_family_are_reached_by_distribution_and_the_plain_name_says_so(
    site: Path, mini_path: Path
) -> None:
    first = install_mini(site, mini_path, "First.Package", "1.0")
    second = install_mini(site, mini_path, "second", "2.1")
    rewritten(mini_path, second, options=("-DOTHER",))
    with pytest.raises(RegistryError) as caught:
        jitlto.family("mini")
    assert "several installed packages provide the family 'mini': First.Package 1.0, second 2.1" in str(caught.value)
    assert "jitlto.family('mini', distribution='First.Package')" in str(caught.value)
    assert "First.Package:mini" in str(caught.value)
    for spelled in ("First.Package", "first-package", "FIRST__PACKAGE", "first.-_package"):
        assert jitlto.family("mini", distribution=spelled).database.path == first
    assert jitlto.family("mini", distribution="second").database.path == second
    # Uninstalling one leaves the other.
    shutil.rmtree(site / "First_Package-1.0.dist-info")
    shutil.rmtree(first.parents[1])
    assert jitlto.family("mini").database.path == second


def test_a_broken_package_is_named_and_the_other_can_be_used(site: Path, mini_path: Path) -> None:
    good = install_mini(site, mini_path, "good")
    install_mini(site, mini_path, "broken").unlink()
    with raises(DatabaseError, "database-not-found", "broken 1.0"):
        jitlto.family("mini")
    assert jitlto.family("mini", distribution="good").database.path == good


def test_the_first_of_two_distributions_with_the_same_name_counts(
    site: Path, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = install_mini(site, mini_path, "my.package", "1.0")
    earlier = tmp_path / "earlier"
    path = install_mini(earlier, mini_path, "My_Package", "0.9")
    monkeypatch.syspath_prepend(earlier)  # type: ignore[no-untyped-call]
    (found,) = entry_points.families("mini")
    assert (found.title, found.location) == ("My_Package 0.9", path)
    # Even where the first one brings nothing: it is what Python would import.
    (earlier / "My_Package-0.9.dist-info" / "entry_points.txt").unlink()
    assert entry_points.families("mini") == []
    shutil.rmtree(earlier)
    assert jitlto.family("mini").database.path == later


@pytest.mark.parametrize("leftover", [(), ("RECORD", "INSTALLER"), ("METADATA",)])
@pytest.mark.parametrize("name", ["my_package-0.9.dist-info", "my_package-2.0.dist-info"])
def test_what_an_interrupted_upgrade_has_left_hides_nothing(
    site: Path, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, leftover: tuple[str, ...]
) -> None:
    path = install_mini(site, mini_path)
    for place in (site, tmp_path / "earlier"):
        (place / name).mkdir(parents=True)
        for file in leftover:
            (place / name / file).touch()
    monkeypatch.syspath_prepend(tmp_path / "earlier")  # type: ignore[no-untyped-call]
    assert jitlto.family("mini").database.path == path


# What is wrong is said, and disturbs nobody else


def test_an_unknown_family_names_the_nearest_and_the_packages_with_families(site: Path, mini_path: Path) -> None:
    install_mini(site, mini_path)
    with raises(RegistryError, "registry-unknown-family", "'mimi'", "mini (my-package)", hint="did you mean 'mini'?"):
        jitlto.family("mimi")
    with raises(RegistryError, "registry-unknown-family", "'my_package'", "'mimi'", hint="did you mean 'mini'?"):
        jitlto.family("mimi", distribution="my_package")
    with raises(RegistryError, "registry-unknown-family", "'my-pakage'", hint="did you mean 'my-package'?"):
        jitlto.family("mini", distribution="my-pakage")
    with raises(RegistryError, "registry-unknown-family", str(mini_path), "names a database", hint="--db DB"):
        jitlto.family(str(mini_path))


def test_a_missing_database_names_the_package_and_the_remedy(site: Path, mini_path: Path) -> None:
    path = install_mini(site, mini_path)
    path.unlink()
    remedy = "pip install --force-reinstall --no-deps my-package"
    with raises(DatabaseError, "database-not-found", "my-package 1.0", where=str(path), hint=remedy):
        jitlto.family("mini")


@pytest.mark.parametrize("how", ["empty", "cut", "no database"])
def test_a_damaged_database_of_a_package_is_repaired_by_reinstalling(site: Path, mini_path: Path, how: str) -> None:
    path = install_mini(site, mini_path)
    path.write_bytes({"empty": b"", "cut": path.read_bytes()[:8192], "no database": b"text" * 5000}[how])
    with pytest.raises(DatabaseError) as refused:
        jitlto.family("mini")
    assert refused.value.where == str(path)
    assert "pip install --force-reinstall --no-deps my-package" in str(refused.value.hint)


def test_a_database_without_the_family_is_an_error(site: Path, mini_path: Path) -> None:
    install(site, "liar", families={"other": "liar.fragments"}, databases={"liar.fragments": mini_path})
    with raises(RegistryError, "registry-unknown-family", "'other'", hint="it holds mini"):
        jitlto.family("other")


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    ["", "my-package.x", "../../etc/passwd", "/etc/passwd", "..", "a..b", "a:b", "a.b [gpu]", "a\\b", "a b", "1"],
)
def test_a_malformed_entry_point_is_an_error_only_when_it_is_used(site: Path, mini_path: Path, value: str) -> None:
    install(site, "aaa", families={"bad": value, "good": "aaa.fragments"})
    path = install_mini(site, mini_path)
    assert jitlto.family("mini").database.path == path
    with raises(RegistryError, "registry-invalid-entry-point", "aaa 1.0", where="entry_points.txt"):
        jitlto.family("bad")


def test_other_files_than_metadata_are_ignored(site: Path, mini_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = install_mini(site, mini_path)
    (site / "file.egg-info").write_text("Name: file\n")
    (site / "directory-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    (site / "bytes-1.0.dist-info").mkdir()
    (site / "bytes-1.0.dist-info" / "entry_points.txt").write_bytes(b"[jitlto.fragments]\n\xff\xfe = \xff\n\0\n")
    (site / "~y_package-0.9.dist-info").mkdir()
    (site / "nothing.zip").write_bytes(b"PK\x03\x04 no archive")
    places = [str(site / "nothing.zip"), str(site / "absent"), site, None, 3, str(site), str(site)]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    assert jitlto.family("mini").database.path == path
    assert [found.family for found in entry_points.families() if found.distribution == "my-package"] == ["mini"]


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), lines=st.lists(st.from_regex(r"[\w.\[\]#=: /-]{0,20}")))
def test_no_entry_points_take_a_database_from_elsewhere(site: Path, text: str, lines: list[str]) -> None:
    shutil.rmtree(site)
    written = f"{text}\n[jitlto.fragments]\n" + "\n".join(lines)
    install(site, "odd", entry_points=written.encode("utf-8", "replace").decode())
    for found in entry_points.families():
        try:
            location = found.location
        except RegistryError:
            continue
        assert location.resolve().is_relative_to(Path(found.root).resolve())
        assert location.suffix == ".fragdb"


def test_importlib_metadata_finds_the_same_distributions(
    site: Path, mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mini(site, mini_path, "Plain.Package", "1!2.0+cu13")
    install(site, "several", families={"one": "several.a", "two": "several.b"})
    install(site, "without", entry_points="[console_scripts]\na = b:c\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    seen = {(f.family, f.value, f.distribution, f.version) for f in entry_points.families()}
    points = importlib.metadata.entry_points(group=files.GROUP)
    assert seen == {(p.name, p.value, p.dist.name, p.dist.version) for p in points if p.dist}
    assert {family for family, *_ in seen} >= {"mini", "one", "two"}


# Read-only and shared installations

USE = """
import json, os, sys
import jitlto
site, written = sys.argv[1], []
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(site):
        if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(arguments[0])
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.chmod"):
        written.extend(path for path in map(str, arguments) if path.startswith(site))
sys.addaudithook(hook)
mini = jitlto.family("mini")
digests = [mini.plan(arch="sm_90", **configuration).link().architecture.sm for configuration in mini.configurations()]
from jitlto.check.environment import diagnose
print(json.dumps([digests, [each.ok for each in diagnose() if each.name == "installed family"], written]))
"""


@pytest.mark.slow
def test_nothing_is_written_beside_a_package_and_a_read_only_one_works(
    site: Path, mini_path: Path, tmp_path: Path
) -> None:
    path = install_mini(site, mini_path)
    for directory, _, names in os.walk(site, topdown=False):
        for name in names:
            Path(directory, name).chmod(0o444)
        Path(directory).chmod(0o555)  # which binds all but root, whom the hook watches
    try:
        before = {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [site, *site.rglob("*")]}
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]),
            "JITLTO_CACHE_DIR": str(tmp_path / "cache"),
        }
        command = [sys.executable, "-c", USE, str(site)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert json.loads(done.stdout) == [["sm_90"] * 4, [True], []], done.stderr
        assert {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in [site, *site.rglob("*")]} == before
    finally:
        for directory, _, _ in os.walk(site):
            Path(directory).chmod(0o755)
    assert path.is_file()
