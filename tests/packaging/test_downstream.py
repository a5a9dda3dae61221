"""End to end: packages with kernels are created, built, and used with only their wheels installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from jitlto.packaging import scaffold
from tests.support.environments import Environment, need
from tests.support.process import ROOT

# Tests that make an environment, or build a wheel in one, take many seconds each; those of the hooks do not.
slow = pytest.mark.slow

# What callers do. Run where neither jitlto's checkout nor a package's source is.
PLAN = """
import json, sys
import jitlto
found = {}
for name in ("alpha_kernels", "beta_kernels"):
    try:
        family = jitlto.family(name)
    except jitlto.JitltoError as error:
        found[name] = [str(error), 0]
        continue
    kernels = [family.plan(arch="sm_90", **c).link().cubin[:4] == b"\\x7fELF" for c in family.configurations()]
    assert all(kernels)
    found[name] = [str(family.database.path), len(kernels)]
    assert name not in sys.modules
print(json.dumps([jitlto.__file__, found]))
"""


@dataclass(frozen=True)
class Author:
    """A developer's environment with the build backends and jitlto's wheel, and a folder for projects."""

    environment: Environment
    folder: Path

    def new(self, name: str) -> Path:
        """Create a project with ``jitlto new``."""
        self.environment.must("jitlto", "new", name, "--cuda", str(_cuda()), cwd=self.folder)
        return self.folder / name

    def build(self, project: Path, *options: str, **variables: str) -> Path:
        """The wheel of a project; without ``--wheel`` by way of its sdist."""
        shutil.rmtree(project / "dist", ignore_errors=True)
        self.environment.must("python", "-m", "build", "--no-isolation", *options, cwd=project, **variables)
        (wheel,) = (project / "dist").glob("*.whl")
        return wheel


def _cuda() -> int:
    from jitlto.cuda import toolkit

    return toolkit.nvrtc_version().major


@pytest.fixture(scope="module")
def author(jitlto_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Author:
    directory = tmp_path_factory.mktemp("author")
    environment = Environment.create(directory / "venv")
    environment.install(jitlto_wheel)
    return Author(environment, directory)


@pytest.fixture(scope="module")
def wheels(author: Author, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of two packages without their sources, and the tests of one."""
    kept = tmp_path_factory.mktemp("kept")
    found = {}
    for name in ("alpha-kernels", "beta-kernels"):
        project = author.new(name)
        found[name] = Path(shutil.copy(author.build(project, "--wheel"), kept))
        shutil.move(project / "tests", kept / name)
        shutil.rmtree(project)
    return found


@pytest.fixture(scope="module")
def consumer(jitlto_wheel: Path, wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment with both packages."""
    environment = Environment.create(tmp_path_factory.mktemp("consumer") / "venv")
    environment.install(jitlto_wheel, *wheels.values())
    return environment


def planned(environment: Environment, cwd: Path) -> dict[str, tuple[str, int]]:
    """Return for each family its database and the number of kernels that link, or an error."""
    module, found = json.loads(environment.must("python", "-c", PLAN, cwd=cwd))
    assert Path(module).is_relative_to(environment.path)
    return {name: (text, kernels) for name, (text, kernels) in found.items()}


@slow
def test_a_package_passes_its_tests_with_only_its_wheel_installed(
    consumer: Environment, wheels: dict[str, Path], tmp_path: Path
) -> None:
    tests = wheels["alpha-kernels"].parent / "alpha-kernels"
    printed = consumer.must("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert "4 passed, 12 skipped" in printed or "16 passed" in printed


@slow
@pytest.mark.gpu
def test_a_package_launches_its_kernels_with_only_its_wheel_installed(
    consumer: Environment, wheels: dict[str, Path], tmp_path: Path
) -> None:
    tests = wheels["beta-kernels"].parent / "beta-kernels"
    printed = consumer.must("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert "16 passed" in printed


@slow
def test_two_packages_stand_side_by_side_and_one_stays_when_the_other_goes(
    consumer: Environment, wheels: dict[str, Path], tmp_path: Path
) -> None:
    both = {f"{name}_kernels": consumer.site / f"{name}_kernels" / "fragments.fragdb" for name in ("alpha", "beta")}
    assert planned(consumer, tmp_path) == {name: (str(path), 4) for name, path in both.items()}
    consumer.pip("uninstall", "--quiet", "--yes", "alpha-kernels")
    assert not (consumer.site / "alpha_kernels").exists()
    left = planned(consumer, tmp_path)
    assert left["beta_kernels"] == (str(both["beta_kernels"]), 4)
    assert "alpha_kernels" in left["alpha_kernels"][0]
    assert left["alpha_kernels"][1] == 0
    consumer.install(wheels["alpha-kernels"])


@slow
def test_a_wheel_is_the_same_from_an_sdist_elsewhere_and_without_a_cache(
    author: Author, wheels: dict[str, Path], tmp_path: Path
) -> None:
    first = wheels["alpha-kernels"]
    with zipfile.ZipFile(first) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    assert names == {"alpha_kernels/__init__.py", "alpha_kernels/fragments.fragdb"}
    scaffold.write_package("alpha-kernels", tmp_path / "elsewhere", _cuda())
    again = author.build(tmp_path / "elsewhere", JITLTO_CACHE_DIR=str(tmp_path / "cache"))
    assert again.read_bytes() == first.read_bytes()


@slow
def test_a_wheel_takes_the_database_of_ci_and_compiles_nothing(
    author: Author, wheels: dict[str, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheels["beta-kernels"]) as file:
        prebuilt = file.extract("beta_kernels/fragments.fragdb", tmp_path)
    project = tmp_path / "project"
    scaffold.write_package("beta-kernels", project, _cuda())
    cache = tmp_path / "cache"
    wheel = author.build(project, "--wheel", JITLTO_PREBUILT=prebuilt, JITLTO_CACHE_DIR=str(cache))
    assert wheel.read_bytes() == wheels["beta-kernels"].read_bytes()
    assert not cache.exists()


@slow
@pytest.mark.skipif("JITLTO_TEST_ISOLATED" not in os.environ, reason="fetches a toolchain: set JITLTO_TEST_ISOLATED=1")
@pytest.mark.parametrize("command", ["build --wheel", "pip wheel --no-deps --wheel-dir dist ."])
def test_an_isolated_build_takes_jitlto_and_the_toolchain_from_its_own_environment(
    author: Author, jitlto_wheel: Path, command: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    scaffold.write_package("alpha-kernels", project, _cuda())
    environment = {"PIP_FIND_LINKS": str(jitlto_wheel.parent), "JITLTO_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_") and "INDEX" in name}
    author.environment.must("python", "-m", *command.split(), cwd=project, seconds=1500, **environment)
    with zipfile.ZipFile(next(project.glob("dist/*.whl"))) as file:
        assert {name for name in file.namelist() if ".dist-info/" not in name} == {
            "alpha_kernels/__init__.py",
            "alpha_kernels/fragments.fragdb",
        }


@slow
def test_an_editable_package_is_compiled_when_it_is_used(author: Author, tmp_path: Path) -> None:
    need("hatchling", "editables")
    environment, project = author.environment, tmp_path / "project"
    scaffold.write_package("delta-kernels", project, _cuda())
    environment.pip("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--editable", project)
    assert not list(tmp_path.rglob("*.fragdb"))
    test = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", project / "tests")
    assert "4 passed" in environment.must(*test, cwd=project)
    assert not list(project.rglob("*.fragdb")), "nothing is written into the source tree"
    matrix = project / "matrices" / "delta_kernels" / "op.json"
    matrix.write_text(matrix.read_text().replace("x * x", "x * x * x"))
    where = "import delta_kernels; f = delta_kernels.family(); print(f.location, len(f.database.fragments()))"
    printed = environment.must("python", "-c", where, cwd=tmp_path)
    assert str(project / "fragments" / "delta_kernels" / "family.toml") in printed
    environment.pip("uninstall", "--quiet", "--yes", "delta-kernels")


# Other backends.


def _to_setuptools(project: Path) -> None:
    path = project / "pyproject.toml"
    text = path.read_text().replace("hatchling.build", "setuptools.build_meta").replace("hatchling>=1.27", "setuptools")
    path.write_text(text.partition("[tool.hatch")[0])


@pytest.fixture
def setuptools_project(author: Author, tmp_path: Path) -> Path:
    need("setuptools")
    project = tmp_path / "project"
    scaffold.write_package("alpha-kernels", project, _cuda())
    _to_setuptools(project)
    return project


@slow
def test_setuptools_makes_the_same_database_by_way_of_an_sdist_and_the_same_wheel_at_one_date(
    author: Author, wheels: dict[str, Path], setuptools_project: Path
) -> None:
    wheel = author.build(setuptools_project, SOURCE_DATE_EPOCH="1700000000")
    with zipfile.ZipFile(wheel) as file, zipfile.ZipFile(wheels["alpha-kernels"]) as other:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        assert names == {"alpha_kernels/__init__.py", "alpha_kernels/fragments.fragdb"}
        assert file.read("alpha_kernels/fragments.fragdb") == other.read("alpha_kernels/fragments.fragdb")
    first = wheel.read_bytes()
    assert author.build(setuptools_project, "--wheel", SOURCE_DATE_EPOCH="1700000000").read_bytes() == first


@slow
def test_an_editable_install_by_setuptools_compiles_nothing(
    author: Author, setuptools_project: Path, tmp_path: Path
) -> None:
    code = "import setuptools.build_meta as backend; backend.build_editable('.')"
    cache = tmp_path / "cache"
    author.environment.must("python", "-c", code, cwd=setuptools_project, JITLTO_CACHE_DIR=str(cache))
    assert list(setuptools_project.glob("*.whl"))
    assert not list(setuptools_project.rglob("*.fragdb"))
    assert not cache.exists()


@pytest.mark.slow
def test_setuptools_projects_without_kernels_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = pytest.importorskip("jitlto.packaging.hooks.setuptools", reason="setuptools is not installed")
    monkeypatch.chdir(tmp_path)
    for text in ("", "[tool.other]"):
        (tmp_path / "pyproject.toml").write_text(text)
        distribution = hooks.Distribution()
        hooks.add_to_build(distribution)
        assert "build_py" not in distribution.cmdclass


def _two_lines(language: str) -> str:
    """The lines for a build system that the guide shows, for the package ``alpha-kernels``."""
    guide = (ROOT / "docs" / "packaging.md").read_text("utf-8")
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", guide, re.M | re.S)
    assert block.count("\n") == 2
    return str(block).replace("my_kernels", "alpha_kernels")


def _project(directory: Path, backend: str, requirement: str, build: str, text: str) -> Path:
    scaffold.write_package("alpha-kernels", directory, _cuda())
    path = directory / "pyproject.toml"
    kept = path.read_text().replace("hatchling.build", backend).replace("hatchling>=1.27", requirement)
    path.write_text(kept.partition("[tool.hatch")[0])
    (directory / build).write_text(text)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=directory, check=True, timeout=60)  # noqa: S607
    return directory


@slow
@pytest.mark.parametrize("backend", ["scikit_build_core.build", "mesonpy"])
def test_two_lines_are_enough_for_other_build_systems(
    author: Author, wheels: dict[str, Path], tmp_path: Path, backend: str
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed, from which meson makes an sdist")
    if backend == "mesonpy":
        need("meson-python", "ninja")
        head = "project('alpha-kernels', version: '0.1.0')\npy = import('python').find_installation(pure: true)\n"
        head += "py.install_sources('src/alpha_kernels/__init__.py', subdir: 'alpha_kernels')\n"
        project = _project(tmp_path / "p", backend, "meson-python", "meson.build", head + _two_lines("meson"))
    else:
        need("scikit-build-core", "ninja")
        if shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])) is None:
            pytest.skip("CMake is not installed")
        head = "cmake_minimum_required(VERSION 3.20)\nproject(alpha LANGUAGES NONE)\n"
        project = _project(tmp_path / "p", backend, "scikit-build-core", "CMakeLists.txt", head + _two_lines("cmake"))
    wheel = author.build(project, "--skip-dependency-check")
    with zipfile.ZipFile(wheel) as file, zipfile.ZipFile(wheels["alpha-kernels"]) as other:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        assert names == {"alpha_kernels/__init__.py", "alpha_kernels/fragments.fragdb"}
        assert file.read("alpha_kernels/fragments.fragdb") == other.read("alpha_kernels/fragments.fragdb")
