"""jitlto's own wheel has the compiled core where there is a compiler, and is pure without it or where it is off."""

import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.packaging.hooks.extension import SOURCE, ExtensionError, ExtensionHook, compile_extension
from tests.support import launch_core
from tests.support.environments import need
from tests.support.process import ROOT


class AbortError(Exception):
    pass


def run_hook(directory: Path, version: str = "standard") -> tuple[dict[str, Any], list[str]]:
    """What the hook adds to the data of a build, and its warnings."""
    need("hatchling")
    warnings: list[str] = []

    def abort(message: str) -> None:
        raise AbortError(message)

    app: Any = SimpleNamespace(abort=abort, display_warning=warnings.append)
    build_config: Any = None
    hook = ExtensionHook(str(ROOT), {}, build_config, build_config, str(directory), "wheel", app)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True, "infer_tag": False}
    hook.initialize(version, data)
    return data, warnings


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.delenv("JITLTO_EXTENSION", raising=False)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_wheel_is_pure_and_says_so(tmp_path: Path) -> None:
    data, warnings = run_hook(tmp_path)
    assert data == {"force_include": {}, "pure_python": True, "infer_tag": False}
    assert len(warnings) == 1
    assert "no-such-compiler" in warnings[0]


@pytest.mark.usefixtures("no_compiler")
def test_where_it_is_required_a_missing_compiler_ends_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JITLTO_EXTENSION", "required")
    with pytest.raises(AbortError, match="no-such-compiler"):
        run_hook(tmp_path)


@pytest.mark.usefixtures("no_compiler")
def test_where_it_is_off_no_compiler_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITLTO_EXTENSION", "off")
    data, warnings = run_hook(tmp_path)
    assert (data["pure_python"], warnings) == (True, [])


def test_what_cannot_be_compiled_is_shown_and_leaves_no_file(tmp_path: Path) -> None:
    launch_core.core()  # skips without a compiler
    source = tmp_path / "wrong.c"
    source.write_text("#error here\n")
    with pytest.raises(ExtensionError, match="#error here"):
        compile_extension(source, tmp_path)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["required", "off"])
def test_the_wheel_is_of_this_interpreter_or_pure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    need("build", "hatchling")
    launch_core.core()
    monkeypatch.setenv("JITLTO_EXTENSION", setting)
    options = ("--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", str(tmp_path))
    command = [sys.executable, "-m", "build", *options, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        objects = [name for name in file.namelist() if name.endswith(".so")]
    if setting == "off":
        assert wheel.name.endswith("-py3-none-any.whl")
        assert objects == []
    else:
        assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name
        assert objects == [str(SOURCE.parent / (SOURCE.stem + sysconfig.get_config_var("EXT_SUFFIX")))]


def test_wheels_are_for_every_interpreter_and_machine_and_have_the_core() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert found["build"] == [f"cp3{minor}-*" for minor in (11, 12, 13, 14)]
    assert found["skip"] == ["*-musllinux_*"]
    assert found["environment"] == {"JITLTO_EXTENSION": "required"}
    assert found["linux"]["archs"] == ["x86_64", "aarch64"]
    assert {found["linux"][f"manylinux-{arch}-image"] for arch in found["linux"]["archs"]} == {"manylinux_2_28"}
    assert SOURCE.with_suffix("").as_posix().replace("/", ".") in found["test-command"]
