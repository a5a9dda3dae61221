"""jitlto's own wheel holds the shipped families, and nothing superfluous."""

import configparser
import sysconfig
import zipfile
from pathlib import Path

import pytest

from jitlto.packaging.hooks.extension import SOURCE
from tests.support.environments import Environment
from tests.support.process import ROOT

pytestmark = pytest.mark.slow

EXTENSION = str(SOURCE.parent / (SOURCE.stem + sysconfig.get_config_var("EXT_SUFFIX")))


@pytest.fixture(scope="module")
def names(jitlto_wheel: Path) -> list[str]:
    with zipfile.ZipFile(jitlto_wheel) as file:
        return file.namelist()


def files(folder: str, below: str) -> set[str]:
    paths = (ROOT / folder).rglob("*")
    made = {".fragdb", ".so"}
    kept = [path for path in paths if path.is_file() and "__pycache__" not in path.parts and path.suffix not in made]
    return {str(below / path.relative_to(ROOT / folder)) for path in kept}


def test_it_holds_the_package_and_the_shipped_families_and_nothing_else(names: list[str]) -> None:
    package = files("jitlto", Path("jitlto"))
    shipped = {
        name
        for folder in ("fragments", "matrices", "templates")
        for name in files(folder, Path("jitlto/share") / folder)
    }
    found = {name for name in names if ".dist-info/" not in name and name != EXTENSION}
    assert found == package | shipped
    families = {Path(name).parent.name for name in found if name.startswith("jitlto/share/") and "family.toml" in name}
    assert families == {path.parent.name for path in (ROOT / "fragments").glob("*/family.toml")}


def test_it_holds_sources_and_texts_only(names: list[str]) -> None:
    allowed = {".py", ".c", ".in", ".typed", ".jinja", ".cuh", ".json", ".toml", ".css", ".js", ".cmake"}
    named = (".dist-info/", "jitlto/families/std/")  # headers with the names of C++'s have no suffix
    others = [
        name
        for name in names
        if not any(each in name for each in named) and Path(name).suffix not in allowed and name != EXTENSION
    ]
    assert [name for name in others if not name.endswith("/CMakeLists.txt")] in ([], [EXTENSION])
    own = [name for name in names if "/new_package" not in name]
    assert not [name for name in own if "test_" in name or "/tests/" in name or ".cache" in name]


def test_the_wheel_has_the_headers_of_the_standard_library(names: list[str]) -> None:
    assert {"jitlto/families/std/cstdint", "jitlto/families/std/using_std.h"} <= {*names}


def test_the_wheel_has_entry_points_and_a_licence(jitlto_wheel: Path, names: list[str]) -> None:
    (name,) = [name for name in names if name.endswith("entry_points.txt")]
    points = configparser.ConfigParser()
    with zipfile.ZipFile(jitlto_wheel) as file:
        points.read_string(file.read(name).decode())
    assert set(points.sections()) == {"console_scripts", "hatch", "setuptools.finalize_distribution_options"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_shipped_families_are_found_and_built_from_it(jitlto_wheel: Path, tmp_path: Path) -> None:
    environment = Environment.create(tmp_path / "venv")
    environment.install(jitlto_wheel)
    printed = environment.must("jitlto", "build", "transform", "-o", "transform.fragdb", "-j", "1", cwd=tmp_path)
    assert printed.startswith("2 fragments → 2 kernels in transform.fragdb")
    checked = environment.must("jitlto", "render", "search", "-o", "rendered", cwd=tmp_path)
    assert checked.startswith("32 sources")
