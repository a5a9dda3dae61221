"""What the extras cu12-run and cu13-run install is enough to plan, link and warm, without compiler or headers."""

import tomllib
from pathlib import Path

import pytest

from jitlto.cuda import nvjitlink
from tests.support.environments import Environment
from tests.support.process import ROOT

KERNEL = ("mini", "data_type=float", "op_name=twice")
CALLER = """
import sys
import jitlto
family = jitlto.load("mini", sys.argv[1])
plan = family.plan(arch="sm_90", data_type="float", op_name="twice")
assert plan.link().cubin[:4] == b"\\x7fELF"
loaded = open("/proc/self/maps").read()
assert "nvJitLink" in loaded
assert not [name for name in ("nvrtc", "nvfatbin") if name in loaded]
assert not {"jinja2", "cuda.bindings.nvrtc", "cuda.bindings.nvfatbin"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"][f"cu{nvjitlink.version().major}-run"]
    return Environment.holding(tmp_path_factory.mktemp("run") / "venv", [*project["dependencies"], *extra])


@pytest.mark.slow
def test_a_program_loads_plans_and_links(environment: Environment, mini_path: Path, tmp_path: Path) -> None:
    environment.must("python", "-c", CALLER, mini_path, cwd=tmp_path, PYTHONPATH=str(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plan", *KERNEL, "--db", "DB", "--arch", "sm_90"),
        ("check", "DB", "--link", "sm_90"),
        ("warm", "mini", "--db", "DB", "--arch", "sm_90"),
        ("show", "DB", "mini/op[data_type=float,op_name=twice]"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_the_commands_for_databases_work(
    environment: Environment, mini_path: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    arguments = [str(mini_path) if word == "DB" else word for word in command]
    environment.must("python", "-m", "jitlto", *arguments, cwd=tmp_path, PYTHONPATH=str(ROOT))


@pytest.mark.slow
def test_the_doctor_names_the_extra_of_this_cuda_major_alone(environment: Environment, tmp_path: Path) -> None:
    printed = environment.must("python", "-m", "jitlto", "doctor", cwd=tmp_path, PYTHONPATH=str(ROOT))
    major = nvjitlink.version().major
    assert f"jitlto[cu{major}]" in printed
    assert f"cu{25 - major}" not in printed
