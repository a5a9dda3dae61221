"""``jitlto new``: valid names, files of a working package, and nothing overwritten."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto import cli
from jitlto.base.errors import JitltoError, ProjectError
from jitlto.check.operators import check_operators
from jitlto.families import declaration
from jitlto.families.templates import render_family
from jitlto.packaging import project, scaffold
from jitlto.source.load import load
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import ROOT


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.cli, ["new", *arguments])
    error = result.exception
    return result.exit_code, result.output + (str(error) if isinstance(error, JitltoError) else "")


@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", "1a", "_a", "a b", "a/b", "../a", "ä", "class", "json", "jitlto", "NumPy", "a" * 101, "a\n"],
)
def test_other_names_are_wrong_usage(name: str, tmp_path: Path) -> None:
    status, text = run("-o", str(tmp_path / "new"), "--", name)
    assert status == 2
    assert "Invalid value" in text
    assert not (tmp_path / "new").exists()


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for there in ("mine", "file"):
        with raises(ProjectError, "project-exists", "not an empty directory", where=there, hint="-o"):
            scaffold.write_package("my-kernels", tmp_path / there, 12)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["README.md", "file", "mine"]
    (tmp_path / "empty").mkdir()
    assert scaffold.write_package("my-kernels", tmp_path / "empty", 12)


def test_a_package_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with raises(ProjectError, "project-unwritable", "No space left", where="new"):
        scaffold.write_package("my-kernels", tmp_path / "new", 12)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("new") / "My-Kernels"
    scaffold.write_package("My-Kernels", directory, 13)
    return directory


def test_every_template_is_used_and_nothing_is_left_to_be_filled_in(package: Path) -> None:
    templates = [path for path in scaffold._TEMPLATES.rglob("*") if path.is_file()]
    assert {path.suffix for path in templates} == {".jinja"}
    written = [path for path in package.rglob("*") if path.is_file()]
    assert len(templates) - len(written) == 1  # that of --torch
    for path in package.rglob("*"):
        assert not re.search(r"\[\[|\[%|PACKAGE", str(path) + (path.read_text() if path.is_file() else "")), path
        assert path.stat().st_mode & 0o044, "readable by others, as other new files"


def test_its_declaration_holds_and_names_the_cuda_major(package: Path) -> None:
    document = tomllib.loads((package / "pyproject.toml").read_text())
    assert any(requirement.startswith("jitlto[cu13]") for requirement in document["build-system"]["requires"])
    # What a newer CUDA has made an older nvJitLink does not read.
    assert {*document["project"]["optional-dependencies"]} == {"cu13", "test"}
    found = project.load_package(package)
    assert [family.name for family in found.families] == ["my_kernels"]
    assert project.list_sources(found)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["fragments/mini", "mini", "search"])
def test_an_existing_family_takes_the_place_of_the_sample(tmp_path: Path, place: str) -> None:
    """With matrices and templates beside its declaration, or in the folders of the project that it comes from."""
    family = ROOT / "fragments" / place if place == "search" else write_family(tmp_path / place, MINI).parent
    status, text = run("my-kernels", "-o", str(tmp_path / "new"), "--family", str(family), "--cuda", "12")
    assert status == 0, text
    found = project.load_package(tmp_path / "new")
    assert [each.name for each in found.families] == [Path(place).name]
    assert found.config.entry_points == {Path(place).name: "my_kernels.fragments"}
    first, second = map(declaration.load_family, (family / "family.toml", found.families[0].path))
    assert [each.source for each in render_family(first)] == [each.source for each in render_family(second)]
    copied = {path.name for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert not copied & {"op.cu.jinja", "map_kernel.json"} - {path.name for path in family.iterdir()}
    assert not [path for path in project.list_sources(found) if not path.is_relative_to(tmp_path / "new")]


def test_headers_of_jitlto_itself_are_not_copied(tmp_path: Path) -> None:
    toml = write_family(tmp_path / "mini", MINI)
    toml.write_text(toml.read_text().replace('name = "mini"', 'name = "mini"\nstd_headers = true'))
    written = scaffold.write_package("my-kernels", tmp_path / "new", 12, toml)
    assert {path.name for path in written if "fragments" in path.parts} == {*MINI}


def test_a_family_with_headers_elsewhere_is_refused(tmp_path: Path) -> None:
    toml = write_family(tmp_path / "mini", MINI)
    (tmp_path / "include").mkdir()
    toml.write_text(toml.read_text().replace('name = "mini"', 'name = "mini"\ninclude = [".", "../include"]'))
    with raises(ProjectError, "project-outside-file", "include", where=str(toml)):
        scaffold.write_package("my-kernels", tmp_path / "new", 12, toml)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_its_family_builds_without_advice_and_every_kernel_links(package: Path, tmp_path: Path) -> None:
    report = project.build_package(package, tmp_path / "fragments.fragdb", jobs=1)
    assert report.advice == ()
    kernels = load("my_kernels", report.path)
    configurations = list(kernels.configurations())
    assert len(configurations) == 4
    for configuration in configurations:
        plan = kernels.plan(arch="sm_90", **configuration)
        assert plan.link().cubin
        assert plan.calls_left() == []


@pytest.mark.slow
def test_its_python_files_are_clean(package: Path) -> None:
    pytest.importorskip("ruff", reason="ruff is not installed; the extra test brings it")
    for arguments in (("check", "--isolated"), ("format", "--isolated", "--check")):
        command = [sys.executable, "-m", "ruff", *arguments, "--line-length=120", "--no-cache", "."]
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout


def test_operators_of_pytorch_are_added_to_the_sample(tmp_path: Path, package: Path) -> None:
    there = tmp_path / "my-kernels"
    assert run("My-Kernels", "-o", str(there), "--cuda", "13", "--torch")[0] == 0
    files, plain = ({p.relative_to(root) for p in root.rglob("*") if p.is_file()} for root in (there, package))
    path = Path("src/my_kernels/torch_operators.py")
    assert files == plain | {path}
    compile((there / path).read_text(), str(path), "exec")
    assert "[[" not in (there / path).read_text()
    assert "my_kernels.torch_operators" in (there / "README.md").read_text()
    assert "torch" not in (package / "README.md").read_text()


STRUCTURES = {
    "family.toml": """
[family]
name = "structures"

[entrypoint.step]
matrix = "step.json"
template = "step.cu.jinja"
key = ["step", "data_type"]

[entrypoint.other]
matrix = "other.json"
template = "other.cu.jinja"
key = ["import"]
""",
    "step.json": """[
      {"step": "first", "name": "first", "data_type": ["float", "__half"],
       "rest": "const Point p, const float* const* from"},
      {"step": "second", "name": "second", "data_type": "float", "rest": "bool import, unsigned char in"}
    ]""",
    "step.cu.jinja": """#include <cuda_fp16.h>
struct Point { float x; int y; };
template <typename T> __global__ void {{name}}(T* x, {{rest}}) { x[0] = T(1); }
template __global__ void {{name}}<{{data_type}}>({{data_type}}*, {{rest}});
""",
    "other.json": '{"import": ["a", "b"]}',
    "other.cu.jinja": "__global__ void other_{{import}}(void* to, float scale) { *(float*)to = scale; }\n",
}


def write_operators(family: Path, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a package with operators for a family, as if it was installed; return its directory."""
    root, package = directory / "new", name.replace("-", "_")
    scaffold.write_package(name, root, 13, family, torch=True)
    database = project.build_package(root, root / "src" / package / "fragments.fragdb").path
    monkeypatch.syspath_prepend(str(root / "src"))
    monkeypatch.setattr("jitlto.family", lambda name, distribution: load(name, database))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "names"), [(STRUCTURES, ["other", "step"]), (MINI, ["kern"]), ("search", ["search_kernel"])]
)
def test_an_operator_is_written_for_each_entrypoint_of_another_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: dict[str, str] | str, names: list[str]
) -> None:
    """With structures, pointers to pointers, and names that Python reserves."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    name = f"torch_{names[0]}"
    own = write_family(tmp_path / "family", family) if isinstance(family, dict) else None
    root = write_operators(own or ROOT / "fragments" / str(family) / "family.toml", name, tmp_path, monkeypatch)
    checked = check_operators(f"{name}.torch_operators")
    assert all(each.holds for each in checked), checked
    assert names == [each.operator.partition("::")[2] for each in checked]
    test_its_python_files_are_clean(root)


@pytest.mark.slow
def test_a_family_without_a_kernel_for_an_operator_is_refused(tmp_path: Path) -> None:
    family = ROOT / "fragments" / "transform" / "family.toml"
    with raises(ProjectError, "project-operators", where="transform"):
        scaffold.write_package("my-kernels", tmp_path / "new", 13, family, torch=True)
    assert not (tmp_path / "new").exists()


def test_a_minimal_family_is_declaration_and_header_and_the_next_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, text = run("My-Saxpy", "--minimal", "-o", "a b")
    assert (status, {path.name for path in (tmp_path / "a b").iterdir()}) == (0, {"family.toml", "my_saxpy.cuh"})
    assert "jitlto build 'a b'" in text
    assert run("My-Saxpy", "--minimal", "--torch")[0] == 2
