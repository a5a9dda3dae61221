"""Packages that are installed editable: their families are loaded from the source tree."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jitlto
from jitlto.base.errors import BuildError, DatabaseError, FamilyError, ProjectError, RegistryError
from jitlto.check.environment import installed_families
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from tests.support.commands import jitlto as command
from tests.support.distributions import install
from tests.support.errors import raises
from tests.support.families import MINI, write_family

SETTINGS = '[tool.jitlto]\nfamilies = ["kernels/mini"]\ndatabase = "my_package/fragments.fragdb"\n'
TWICE = {"data_type": "float", "op_name": "twice", "arch": "sm_90"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> Iterator[Path]:
    """A directory for installed packages, first on the path."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)  # type: ignore[no-untyped-call]
    session.default.reset()
    yield directory
    session.default.reset()


@pytest.fixture
def source(tmp_path: Path, site: Path) -> Path:
    """The source tree of a package that is installed editable."""
    tree = tmp_path / "my package"  # a path that a URL spells in another way
    write_family(tree / "kernels" / "mini", MINI)
    (tree / "my_package").mkdir()
    (tree / "my_package" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tree / "pyproject.toml").write_text(
        '[project]\nname = "my-package"\nversion = "1.0"\n'
        f'[project.entry-points."jitlto.fragments"]\nmini = "my_package.fragments"\n{SETTINGS}'
    )
    install(site, "my-package", families={"mini": "my_package.fragments"}, editable=tree)
    return tree


def anew() -> KernelFamily:
    """Return the family as a new process finds it."""
    session.default.reset()
    return jitlto.family("mini")


def test_it_is_compiled_as_far_as_it_is_used_and_nothing_is_written_beside_the_sources(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jitlto")
    before = sorted(source.rglob("*"))
    family = jitlto.family("mini")
    assert family.location == source / "kernels" / "mini" / "family.toml"
    assert jitlto.family("mini") is family
    plan = family.plan(**TWICE)
    assert len(plan.fragments) == 2
    assert "2 compiled" in caplog.text
    assert plan.link().cubin[:4] == b"\x7fELF"
    assert sorted(source.rglob("*")) == before
    assert "my_package" not in sys.modules

    caplog.clear()
    assert anew().plan(**TWICE).digest == plan.digest
    assert jitlto.load("mini").plan(**TWICE).digest == plan.digest
    assert jitlto.family("mini", distribution="my.Package").plan(**TWICE).digest == plan.digest
    assert caplog.text.count("none compiled") == 3


def test_an_edit_is_seen_by_who_has_found_the_family_before(source: Path) -> None:
    family = jitlto.family("mini")
    before = family.plan(**TWICE).digest
    template = source / "kernels" / "mini" / "op.cu.jinja"
    template.write_text(template.read_text() + "__device__ int unused_here() { return 3; }\n")
    after = family.plan(**TWICE).digest
    assert before != after
    assert anew().plan(**TWICE).digest == after


@pytest.mark.slow
def test_sources_that_do_not_build_are_reported_where_they_are_wrong(source: Path) -> None:
    header, toml = source / "kernels" / "mini" / "op.cuh", source / "kernels" / "mini" / "family.toml"
    whole = header.read_text()
    header.write_text("int f( {\n")
    with raises(BuildError, "build-interface-alone", where="op.cuh:1"):
        anew().plan(**TWICE)
    header.write_text(whole)
    toml.write_text("[family\n")
    with raises(FamilyError, "family-syntax", where=str(toml)):
        anew()
    pyproject = source / "pyproject.toml"
    pyproject.write_text(SETTINGS.replace("kernels/mini", "kernels/none"))
    with raises(ProjectError, "project-unknown-family", "kernels/none"):
        anew()
    pyproject.write_text("[tool.jitlto\n")
    with raises(ProjectError, "project-syntax", where=str(pyproject)):
        anew()


def test_a_family_of_another_name_than_the_entry_point_is_an_error(source: Path) -> None:
    toml = source / "kernels" / "mini" / "family.toml"
    toml.write_text(toml.read_text().replace('name = "mini"', 'name = "maxi"'))
    with raises(ProjectError, "project-unknown-family", "'mini'", where=str(source / "pyproject.toml"), hint="maxi"):
        anew()


@pytest.mark.slow
def test_commands_take_its_name_and_mean_its_sources(source: Path) -> None:
    for name in ("mini", "my-package:mini"):
        done = command("check", name)
        assert done.returncode == 0, done.stderr
        assert "mini: 6 fragments, 4 kernels: every kernel plans" in done.stdout
    assert "mini/op" in command("ls", "-l", "mini").stdout
    done = command("plan", "mini", "data_type=float", "op_name=twice", "--arch", "sm_90")
    assert "mini/op[data_type=float,op_name=twice]  ltoir compute_90" in done.stdout


def test_what_several_packages_provide_is_named_with_the_package(source: Path, site: Path, mini_path: Path) -> None:
    install(site, "other", families={"mini": "other.fragments"}, databases={"other.fragments": mini_path})
    with raises(RegistryError, "registry-ambiguous-package", "my-package", "other"):
        anew()
    assert jitlto.family("mini", distribution="other").location == site / "other" / "fragments.fragdb"
    assert jitlto.family("mini", distribution="my-package").location.is_relative_to(source)


def test_listing_compiles_nothing(source: Path, empty_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    (listed,) = [each for each in installed_families() if "of my-package" in each.value]
    assert listed.ok
    assert listed.value.startswith(f"mini of my-package 1.0: {source / 'kernels' / 'mini' / 'family.toml'}: ")
    assert not caplog.records
    assert not (empty_cache / "build").exists()


def test_listing_says_that_a_source_tree_is_gone(source: Path) -> None:
    source.rename(source.with_name("elsewhere"))
    (listed,) = [each for each in installed_families() if "of my-package" in each.value]
    assert str(source / "my_package" / "fragments.fragdb") in listed.value
    assert not listed.ok
    assert "pip uninstall my-package" in str(listed.remedy)


def test_the_database_of_a_source_tree_without_settings_is_used_unchanged(source: Path, mini_path: Path) -> None:
    (source / "pyproject.toml").write_text("[project]\n")
    where = str(source / "my_package" / "fragments.fragdb")
    with raises(DatabaseError, "database-not-found", "my-package 1.0", "'mini'", where=where, hint="[tool.jitlto]"):
        anew()
    for folder in ("my_package", "src/my_package"):
        path = source / folder / "fragments.fragdb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mini_path.read_bytes())
        assert anew().database.path == path


def test_a_missing_source_tree_is_an_error(source: Path, tmp_path: Path) -> None:
    source.rename(tmp_path / "elsewhere")
    with raises(DatabaseError, "database-not-found", "my-package 1.0", str(source), hint="pip uninstall"):
        anew()


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        '{"url": 3, "dir_info": {"editable": true}}',
        '{"url": "https://x/y", "dir_info": {"editable": true}}',
        '{"url": "file:///x", "dir_info": {"editable": "true"}}',
        '{"editable',
    ],
)
def test_a_direct_url_that_names_no_source_tree_is_an_ordinary_install(
    source: Path, site: Path, mini_path: Path, url: str
) -> None:
    (site / "my_package-1.0.dist-info" / "direct_url.json").write_text(url)
    (site / "my_package").mkdir()
    (site / "my_package" / "fragments.fragdb").write_bytes(mini_path.read_bytes())
    assert anew().database.path == site / "my_package" / "fragments.fragdb"
