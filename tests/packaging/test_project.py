"""A package's database, compiled or taken from CI, and the sources in its sdist."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto import cli
from jitlto.base import config
from jitlto.base.errors import BuildError, DatabaseError, JitltoError, ProjectError
from jitlto.build import pipeline
from jitlto.families import declaration
from jitlto.packaging import pack, project
from jitlto.source.load import load
from tests.support.commands import jitlto
from tests.support.compiled import compiled
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.kernels import packed_digests

PYPROJECT = """
[project]
name = "package"
[project.entry-points."jitlto.fragments"]
mini = "package.fragments"
[tool.jitlto]
database = "package/fragments.fragdb"
"""
MINI_FOLDER = "fragments/mini"


def make(directory: Path, more: str = "", files: dict[str, str] = MINI) -> Path:
    """A package with the family ``mini``; returns its pyproject.toml."""
    write_family(directory / MINI_FOLDER, files)
    path = directory / "pyproject.toml"
    path.write_text(PYPROJECT + more, "utf-8")
    return path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Sets ``JITLTO_PREBUILT``; the settings are read anew."""
    config.current.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    config.current.cache_clear()


def set_prebuilt(environment: pytest.MonkeyPatch, path: Path) -> None:
    environment.setenv("JITLTO_PREBUILT", str(path))
    config.current.cache_clear()


def test_entry_points_are_checked_before_anything_is_compiled(tmp_path: Path) -> None:
    path = make(tmp_path)
    path.write_text(PYPROJECT.replace("package.fragments", "package.others"))
    with raises(ProjectError, "project-entry-points", "mini"):
        project.build_package(path, tmp_path / "out.fragdb")
    assert not (tmp_path / "out.fragdb").exists()


# What an sdist must hold.


@pytest.mark.slow
def test_an_sdist_holds_all_that_a_build_reads(tmp_path: Path) -> None:
    """A copy of exactly the listed files builds the same database."""
    path = make(tmp_path / "a", 'families = ["fragments/mini"]')
    folder = tmp_path / "a" / MINI_FOLDER
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.cuh").write_text("#pragma once\n")
    includes = '#include "inner/deep.cuh"\n#include ".parts/used.cuh"\n'
    (folder / "op.cuh").write_text(includes + MINI["op.cuh"])
    (folder.parent / "beside.cuh").write_text('#include "far/farther.cuh"\n')
    (folder.parent / "far").mkdir()
    (folder.parent / "far" / "farther.cuh").write_text("#pragma once\n")
    (folder / "kern.cu.jinja").write_text('#include "../{{ "be" + "side" }}.cuh"\n' + MINI["kern.cu.jinja"])
    (folder / "op.cu.jinja").write_text("{% include 'inner/common.jinja' %}\n" + MINI["op.cu.jinja"])
    (folder / "family.toml").write_text(MINI["family.toml"].replace('"mini"', '"mini"\ntemplates = ["../vendor"]'))
    (folder.parent / "vendor").mkdir()
    (folder.parent / "vendor" / "vendored.jinja").write_text("// vendored\n")
    (folder / "inner" / "common.jinja").write_text("{% include 'vendored.jinja' %}\n")
    (folder / ".hidden").write_text("")
    (folder / ".parts").mkdir()
    (folder / ".parts" / "used.cuh").write_text('#pragma once\n#include "linked/used.cuh"\n')
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "used.cuh").write_text("#pragma once\n")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "fifo")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("")
    files = project.list_sources(project.load_package(path))
    names = [str(file.relative_to(tmp_path / "a")) for file in files]
    assert names == sorted(names)
    assert {f"{MINI_FOLDER}/{name}" for name in ("inner/deep.cuh", ".parts/used.cuh", "linked/used.cuh")} <= {*names}
    assert not [name for name in names if "hidden" in name or "pycache" in name or "fifo" in name]
    for name in (*names, "pyproject.toml"):
        (tmp_path / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "a" / name, tmp_path / "b" / name)
    one = project.build_package(path, tmp_path / "a.fragdb", jobs=1)
    two = project.build_package(tmp_path / "b", tmp_path / "b.fragdb", jobs=1)
    assert one.digest == two.digest


def test_files_outside_the_project_cannot_be_in_an_sdist(tmp_path: Path) -> None:
    path = make(tmp_path / "a", 'families = ["../mini"]')
    write_family(tmp_path / "mini", MINI)
    with raises(ProjectError, "project-outside-file", str(tmp_path / "mini"), hint="--wheel"):
        project.list_sources(project.load_package(path))


def test_headers_of_jitlto_itself_are_in_no_sdist(tmp_path: Path) -> None:
    """Those of ``std_headers``: whoever builds the sdist has them."""
    toml = MINI["family.toml"].replace('"mini"\n', '"mini"\nstd_headers = true\n', 1)
    path = make(tmp_path, files=MINI | {"family.toml": toml, "op.cuh": "#include <cstdint>\n" + MINI["op.cuh"]})
    names = {
        file.relative_to(tmp_path / MINI_FOLDER).as_posix() for file in project.list_sources(project.load_package(path))
    }
    assert names == {*MINI}


# What CI has built.


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A database of the family ``mini`` with fewer fragments."""
    files = MINI | {
        "op.json": MINI["op.json"].replace('"double"', '"float"').replace('["float", "float"]', '["float"]')
    }
    path = write_family(tmp_path / "other", files | {"kern.json": '{"data_type": "float"}'})
    return pipeline.build([declaration.load_family(path)], tmp_path / "other.fragdb", jobs=1).path


@pytest.mark.slow
def test_a_database_from_ci_is_taken_and_nothing_is_compiled(
    tmp_path: Path, mini_path: Path, environment: pytest.MonkeyPatch
) -> None:
    set_prebuilt(environment, mini_path)
    environment.setattr(pipeline, "build", None)
    report = project.build_package(make(tmp_path), tmp_path / "out.fragdb")
    assert len(report.fragments) == 6
    assert report.path.read_bytes() == mini_path.read_bytes()


def refused(
    tmp_path: Path,
    database: Path,
    environment: pytest.MonkeyPatch,
    *names: str,
    code: str = "differs",
    family: str = "",
) -> None:
    """Build with a database from CI that must be rejected: one error, and no file."""
    set_prebuilt(environment, database)
    with raises(ProjectError, f"project-prebuilt-{code}", *names, where=str(database)):
        files = MINI | {"family.toml": MINI["family.toml"].replace("[family]", f"[family]\n{family}", 1)}
        project.build_package(make(tmp_path, files=files), tmp_path / "out.fragdb")
    assert not (tmp_path / "out.fragdb").exists()


def test_a_database_from_ci_was_built_with_the_declared_options_by_the_declared_compiler(
    tmp_path: Path, mini_path: Path, sass_path: Path, environment: pytest.MonkeyPatch
) -> None:
    refused(tmp_path, mini_path, environment, "mini", "options", family='options = ["-DX=1"]')
    refused(tmp_path, mini_path, environment, "mini", "architectures", family='archs = ["80"]')
    refused(tmp_path, mini_path, environment, "toolchain", family='toolchain = "nvcc"')
    refused(tmp_path, mini_path, environment, "images", family='images = ["ltoir"]')
    refused(tmp_path, sass_path, environment, "sass", family='sass = ["90"]')
    refused(tmp_path, sass_path, environment, "groups", family='sass = ["80", "90"]\nsass_registers = 64')


@pytest.mark.slow
def test_a_database_from_ci_holds_every_fragment(tmp_path: Path, other: Path, environment: pytest.MonkeyPatch) -> None:
    refused(tmp_path, other, environment, "fragments")


def test_a_database_from_ci_holds_the_declared_families_and_no_other(
    tmp_path: Path, mini_path: Path, environment: pytest.MonkeyPatch
) -> None:
    files = MINI | {"family.toml": MINI["family.toml"].replace('"mini"', '"maxi"')}
    write_family(tmp_path / "fragments" / "maxi", files)
    text = PYPROJECT.replace('"package.fragments"', '"package.fragments"\nmaxi = "package.fragments"')
    set_prebuilt(environment, mini_path)
    (tmp_path / "pyproject.toml").write_text(text)
    write_family(tmp_path / MINI_FOLDER, MINI)
    with raises(ProjectError, "project-prebuilt-differs", "maxi"):
        project.build_package(tmp_path, tmp_path / "out.fragdb")


def test_a_family_of_interfaces_alone_is_taken_from_ci_too(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    toml = '[family]\nname = "mini"\n[device.op]\nsupplied = true\ninterface = "op.cuh"\n'
    path = make(tmp_path, files={"family.toml": toml, "op.cuh": MINI["op.cuh"]})
    built = project.build_package(path, tmp_path / "ci.fragdb", jobs=1)
    set_prebuilt(environment, built.path)
    assert project.build_package(path, tmp_path / "out.fragdb").digest == built.digest


def test_a_family_with_a_compiled_file_is_packed_and_taken_from_ci(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    toml = '[family]\nname = "mini"\n[device.op]\nbinary = "op.ptx"\ninterface = "op.cuh"\n'
    ptx = compiled("template <class T> __device__ T op(T a) { return a; }\ntemplate __device__ int op(int);").ptx
    path = make(
        tmp_path, files={"family.toml": toml, "op.cuh": "template <class T> __device__ T op(T a);", "op.ptx": ptx}
    )
    assert "op.ptx" in {Path(file).name for file in project.list_sources(project.load_package(path))}
    built = project.build_package(path, tmp_path / "ci.fragdb", jobs=1)
    set_prebuilt(environment, built.path)
    assert project.build_package(path, tmp_path / "out.fragdb").digest == built.digest


def test_a_database_from_ci_with_a_different_interface_is_rejected(
    tmp_path: Path, mini_path: Path, environment: pytest.MonkeyPatch
) -> None:
    set_prebuilt(environment, mini_path)
    path = make(tmp_path, files=MINI | {"op.cuh": "// changed\n" + MINI["op.cuh"]})
    with raises(ProjectError, "project-prebuilt-differs", "headers"):
        project.build_package(path, tmp_path / "out.fragdb")


def test_a_missing_or_damaged_database_from_ci_is_rejected(
    tmp_path: Path, mini_path: Path, environment: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged.fragdb"
    damaged.write_bytes(mini_path.read_bytes()[:-5000])
    set_prebuilt(environment, damaged)
    with raises(DatabaseError, "database-damaged", where=str(damaged)):
        project.build_package(make(tmp_path), tmp_path / "out.fragdb")
    refused(tmp_path, tmp_path / "nothing", environment, code="missing")


# The command line.


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.cli, ["build", *arguments])
    error = result.exception
    return result.exit_code, result.output + (str(error) if isinstance(error, JitltoError) else "")


def test_a_project_declares_which_families_are_built(tmp_path: Path) -> None:
    make(tmp_path)
    status, text = run("mini", "--project", str(tmp_path), "-o", str(tmp_path / "out.fragdb"))
    assert status == 2
    assert "--project" in text
    assert "FAMILY" in text
    status, text = run("--project", str(tmp_path / "fragments"), "-o", str(tmp_path / "out.fragdb"))
    assert status == 1
    assert "pyproject.toml" in text


@pytest.mark.slow
def test_the_hook_adds_the_database_to_a_wheel_sources_to_an_sdist_and_nothing_to_an_editable_install(
    tmp_path: Path, mini_path: Path, empty_cache: Path
) -> None:
    hatch = pytest.importorskip("jitlto.packaging.hooks.hatch", reason="hatchling is not installed")
    path = make(tmp_path)

    def added(target: str, version: str) -> dict[str, str]:
        data: dict[str, dict[str, str]] = {"force_include": {}}
        hook = hatch.JitltoBuildHook(str(tmp_path), {}, None, None, str(tmp_path / "dist"), target)
        hook.initialize(version, data)
        for source, to in data["force_include"].items():
            assert Path(source).is_file()
            if to.endswith(".fragdb"):
                assert Path(source).read_bytes() == mini_path.read_bytes()
        return data["force_include"]

    assert added("wheel", "editable") == {}
    sources = [str(file) for file in project.list_sources(project.load_package(path))]
    assert added("sdist", "standard") == {file: str(Path(file).relative_to(tmp_path)) for file in sources}
    assert not empty_cache.exists(), "nothing was compiled"
    assert list(added("wheel", "standard").values()) == ["package/fragments.fragdb"]


#: The kernel over double has no ``op``.
INCOMPLETE = MINI | {"op.json": MINI["op.json"].replace(', "double"', "")}


@pytest.mark.slow
def test_a_wheel_without_all_that_kernels_need_is_not_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch
) -> None:
    hatch = pytest.importorskip("jitlto.packaging.hooks.hatch", reason="hatchling is not installed")
    commands = pytest.importorskip("jitlto.packaging.hooks.build_fragments", reason="setuptools is not installed")
    setuptools = pytest.importorskip("setuptools")
    path, output = make(tmp_path, files=INCOMPLETE), tmp_path / "out.fragdb"
    environment.chdir(tmp_path)

    def refuse() -> None:
        with raises(BuildError, "build-unplanned-kernels", "mini/kern[data_type=double]"):
            project.build_package(path, output)
        assert not output.exists()
        hook = hatch.JitltoBuildHook(str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")
        with pytest.raises(SystemExit):
            hook.initialize("standard", {"force_include": {}})
        assert "build-unplanned-kernels" in "".join(capsys.readouterr())
        command = commands.BuildFragments(setuptools.Distribution())
        command.build_lib = str(tmp_path / "lib")
        command.ensure_finalized()
        with pytest.raises(setuptools.errors.SetupError, match="build-unplanned-kernels"):
            command.run()

    refuse()
    ci = ["build", "--project", str(path), "-o", str(tmp_path / "ci.fragdb"), "-q", "--allow-incomplete"]
    assert jitlto(*ci).stderr.count("mini/kern[data_type=double]") == 1
    set_prebuilt(environment, tmp_path / "ci.fragdb")
    refuse()
    taken = project.copy_prebuilt(project.load_package(path), output, allow_incomplete=True)
    assert taken and any("mini/kern[data_type=double]" in advice.message for advice in taken.advice)


def test_a_wheel_holds_the_kernels_that_pack_names(tmp_path: Path) -> None:
    hatch = pytest.importorskip("jitlto.packaging.hooks.hatch", reason="hatchling is not installed")
    path = make(tmp_path, 'pack = "mini"\npack_archs = ["sm_90"]')
    data: dict[str, dict[str, str]] = {"force_include": {}}
    hook = hatch.JitltoBuildHook(str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")
    hook.initialize("standard", data)
    added = {to: Path(source) for source, to in data["force_include"].items()}
    assert added.keys() == {"package/fragments.fragdb", "package/fragments.pack"}
    found = load("mini", added["package/fragments.fragdb"])
    digests = {found.plan(arch="sm_90", **each).digest for each in found.configurations()}
    assert set(packed_digests(added["package/fragments.pack"])) == digests
    config = project.load_package(path).config
    with raises(ProjectError, "project-pack", "nosuch", where=str(path)):
        pack.build_pack(replace(config, pack="nosuch"), added["package/fragments.fragdb"])
    for name in ("mini", "nosuch.jsonl"):
        with raises(ProjectError, "project-pack", name, where=str(path), hint="pack_archs"):
            pack.build_pack(replace(config, pack=name, pack_architectures=()), added["package/fragments.fragdb"])
