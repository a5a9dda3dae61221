"""Packages that are installed editable: their databases are built from the sources when needed."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jitlto
from jitlto.base import config
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.check.environment import installed_families
from jitlto.cuda import libraries
from jitlto.runtime import session
from jitlto.runtime.discovery import editable
from jitlto.runtime.family import KernelFamily
from tests.support.distributions import install
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import ROOT

SETTINGS = '[tool.jitlto]\nfamilies = ["kernels/mini"]\ndatabase = "my_package/fragments.fragdb"\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> Iterator[Path]:
    """A directory for installed packages, first on the path."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)  # type: ignore[no-untyped-call]
    # What is compiled once is found by all tests here: it is the first launches that are not to share.
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


def files(tree: Path) -> list[Path]:
    return sorted(tree.rglob("*"))


def state(source: Path) -> str | None:
    return editable._state(source, config.Config.read(os.environ))


@pytest.mark.slow
def test_a_database_is_built_on_first_use_and_when_its_sources_have_changed(
    source: Path, empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = files(source)
    first = anew()
    path = first.database.path
    assert path.is_relative_to(empty_cache / "editable")
    assert path.name == "fragments.fragdb"
    assert first.plan(arch="sm_90", data_type="float", op_name="twice").link().cubin[:4] == b"\x7fELF"
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said[0] == f"my-package 1.0 is installed editable from {source}: building its fragments"
    assert said[1].startswith("built the fragments of my-package 1.0 in ")
    assert files(source) == before
    assert "my_package" not in sys.modules

    # Nothing has changed: nothing is built, and nothing said.
    caplog.clear()
    assert anew().database.digest == first.database.digest
    (source / "my_package" / "code.py").write_text("x = 1\n")
    assert anew().database.digest == first.database.digest
    assert not caplog.records

    template = source / "kernels" / "mini" / "op.cu.jinja"
    template.write_text(template.read_text() + "// changed\n__device__ int unused_here() { return 3; }\n")
    second = anew()
    assert second.database.path == path
    assert second.database.digest != first.database.digest
    assert "building its fragments" in caplog.text

    # A build that was stopped between the file and what is noted of it; and a note that is no note.
    caplog.clear()
    good, note = path.read_bytes(), path.with_suffix(".json")
    for damaged in (good[:4096], b"garbage"):
        path.write_bytes(damaged)
        assert anew().database.digest == second.database.digest
    note.write_text("[")
    assert anew().database.digest == second.database.digest
    assert caplog.text.count("building its fragments") == 3


@pytest.mark.slow
def test_a_build_that_fails_is_reported_in_its_own_words(source: Path) -> None:
    header = source / "kernels" / "mini" / "op.cuh"
    whole = header.read_text()
    header.write_text("int f( {\n")
    with raises(DatabaseError, "database-build-failed", "my-package 1.0", "op.cuh:1", where=str(source)) as caught:
        anew()
    assert "Traceback" not in str(caught.value)
    assert f"jitlto build --project {source} -o DB" in str(caught.value.hint)
    header.write_text(whole)
    (source / "kernels" / "mini" / "family.toml").write_text("[family\n")
    with raises(DatabaseError, "database-build-failed", "family.toml", "family-syntax"):
        anew()


@pytest.mark.slow
def test_several_processes_that_need_a_database_build_it_once(source: Path, site: Path) -> None:
    code = """
import jitlto
from jitlto.base import config
print(jitlto.family("mini").database.digest)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(3)
    ]
    done = [process.communicate(timeout=120) for process in processes]
    assert len({out for out, _ in done}) == 1
    assert all(out.strip() for out, _ in done), done
    assert "".join(err for _, err in done).count("building its fragments") == 1
    assert "Traceback" not in "".join(err for _, err in done)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["kernels/mini/op.cuh", "kernels/mini/op.json", "kernels/mini/family.toml", "pyproject.toml"]
)
def test_every_source_counts(source: Path, name: str) -> None:
    before = state(source)
    assert before is not None
    assert state(source) == before
    path = source / name
    path.write_text(path.read_text() + "\n")
    assert state(source) not in (before, None)


def test_everything_that_decides_which_header_is_included_counts(source: Path) -> None:
    folder = source / "kernels" / "mini"
    states = [state(source)]
    (folder / "op.cuh").write_text((folder / "op.cuh").read_text() + '#include "../common.cuh"\n')
    states.append(state(source))
    for text in ("int a;\n", "int b;\n"):  # of a file beside the family's own directory
        (source / "kernels" / "common.cuh").write_text(text)
        states.append(state(source))
    (folder / "inner").mkdir()
    (folder / "inner" / "new.cuh").write_text("")
    states.append(state(source))
    (source / "vendor").mkdir()
    toml = (folder / "family.toml").read_text().replace("[family]", '[family]\ntemplates = ["../../vendor"]')
    (folder / "family.toml").write_text(toml)
    for text in ("", "// another\n"):  # of a template that others include from there
        (source / "vendor" / "part.jinja").write_text(text)
        states.append(state(source))
    assert None not in states
    assert len(set(states)) == len(states)
    # What tools and editors leave is none of it.
    for name in (".op.cuh.swp", "op.cuh~", ".#op.cuh", "__pycache__/x.pyc", ".git/HEAD", ".mypy_cache/x.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    assert state(source) == states[-1]


@pytest.mark.parametrize("link", ["file", "folder"])
def test_sources_behind_symbolic_links_count(source: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    header = outside / "linked.cuh"
    header.write_text("int a;\n")
    (source / "kernels" / "mini" / "linked").symlink_to(header if link == "file" else outside)
    before = state(source)
    header.write_text("int b;\n")
    assert None not in (before, state(source))
    assert state(source) != before


def test_a_different_compiler_counts(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(source)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert state(source) != before


def test_a_toolkit_that_is_no_package_counts_and_the_working_directory_does_not(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "find_packaged", lambda *_: None)
    toolkit, elsewhere = tmp_path / "toolkit", tmp_path / "elsewhere"
    for directory in (toolkit, elsewhere):
        directory.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{toolkit}{os.pathsep}{tmp_path / 'gone'}{os.pathsep}")
    before = state(source)
    monkeypatch.chdir(elsewhere)
    assert before is not None
    assert state(source) == before
    (toolkit / "libnvrtc.so.13").touch()
    os.utime(toolkit, (1, 1))
    assert state(source) != before


@pytest.mark.slow
def test_sources_known_only_to_the_build_are_built_every_time(source: Path) -> None:
    (source / "pyproject.toml").write_text(SETTINGS.replace("kernels/mini", "kernels/none"))
    assert state(source) is None
    with raises(DatabaseError, "database-build-failed", "kernels/none"):
        anew()
    (source / "pyproject.toml").write_text("[tool.jitlto\n")
    with raises(DatabaseError, "database-build-failed"):
        anew()


def test_listing_builds_nothing(source: Path, empty_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    (listed,) = [each for each in installed_families(config.current()) if "of my-package" in each.value]
    assert listed.ok
    assert listed.value == f"mini of my-package 1.0: {source}: not built yet; first use builds it"
    assert not caplog.records
    assert not (empty_cache / "editable").exists()


def test_listing_says_that_a_source_tree_is_gone(source: Path) -> None:
    source.rename(source.with_name("elsewhere"))
    (listed,) = [each for each in installed_families(config.current()) if "of my-package" in each.value]
    assert listed.value.endswith(f"its source tree is gone: {source}")
    assert not listed.ok
    assert "pip uninstall my-package" in str(listed.remedy)


def test_a_source_tree_without_settings_is_used_unchanged(source: Path, mini_path: Path) -> None:
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


def test_a_cache_directory_that_others_may_write_is_refused(source: Path, empty_cache: Path) -> None:
    (empty_cache / "editable").mkdir(parents=True)
    (empty_cache / "editable").chmod(0o777)
    where = str(empty_cache / "editable")
    with raises(JitltoError, "jitlto-unusable-cache", where=where, hint="JITLTO_CACHE_DIR"):
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
