"""`jitlto import cmake`: a foreign library comes over by one command."""

import shlex
import shutil
from pathlib import Path

import pytest

from jitlto.base.errors import CompileError
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support.commands import fails, jitlto, succeeds
from tests.support.errors import raises
from tests.support.foreign import MOVING, TREE

CALL = "generate_jit_lto_kernels(f NAME_FORMAT k MATRIX_JSON_STRING {} KERNEL_INPUT_FILE k.cu.in)\n"


@pytest.mark.slow
def test_declarations_that_exist_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "k.cu.in").write_text("__global__ void k() {}\n")
    (tmp_path / "CMakeLists.txt").write_text(CALL)
    command = ("import", "cmake", tmp_path / "CMakeLists.txt", "-o", tmp_path / "out")
    assert jitlto(*command).returncode == 0
    (made,) = (tmp_path / "out").glob("*/family.toml")
    made.write_text("mine")
    fails(jitlto(*command), 1, str(made.parent), "[import-exists]", "-o")
    assert made.read_text() == "mine"


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("project(p)\n")
    fails(jitlto("import", "cmake", tmp_path / "CMakeLists.txt", "-o", tmp_path / "out"), 1, "[import-no-call]")
    fails(jitlto("import", "cmake", tmp_path / "CMakeLists.txt", "-o", tmp_path, "-D", "X"), 2, "NAME=VALUE")
    fails(jitlto("import", "cmake", "-o", tmp_path), 2, "CMAKELISTS")


def built(directory: Path, *names: str) -> FragmentDatabase:
    output = directory / "kernels.fragdb"
    done = jitlto("build", *(directory / name / "family.toml" for name in names), "-o", output)
    assert done.returncode == 0, done.stderr
    return FragmentDatabase(output)


@pytest.mark.slow
def test_it_builds_with_nvrtc_and_every_kernel_plans(tmp_path: Path) -> None:
    done = jitlto("import", "cmake", TREE / "CMakeLists.txt", "-o", tmp_path, "--toolchain", "nvrtc")
    assert done.returncode == 0
    assert "CMakeLists.txt:21: option --expt-extended-lambda: left out" in done.stderr
    with built(tmp_path, "brute_force", "cluster", "ivf") as database:
        assert len(database.fragments()) == 119
        kernels = {name: len(list(KernelFamily(name, database).configurations())) for name in database.families}
        assert kernels == {"brute_force": 128, "cluster": 240, "common": 0, "ivf": 288}
        plan = KernelFamily("cluster", database).plan(
            entry="assign", arch="sm_90", data_type="float", idx_type="int64_t", tile=16, filter_name="bitset",
            reduce_name="max",
        )  # fmt: skip
        assert "left out: max_registers = 64" in (tmp_path / "cluster" / "family.toml").read_text()
        assert [parameter.size for parameter in plan.resolution.entry.signature] == [8, 8, 24]
        done = jitlto("check", database.path, "--no-compare")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("toolchain", ["nvcc", "nvrtc"])
def test_three_commands_without_flags_move_a_tree_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: str
) -> None:
    if toolchain == "nvrtc":
        monkeypatch.setattr(toolkit, "find_binary", lambda _: None)
    elif toolkit.find_binary("nvcc") is None:
        pytest.skip("nvcc is not installed")
    tree = shutil.copytree(MOVING, tmp_path / "tree")
    declared = tree / "apply" / "family.toml"
    declared.write_text(declared.read_text().replace('"nvrtc"', f'"{toolchain}"'))
    monkeypatch.setenv("CMAKE_PREFIX_PATH", str(tree / "installed"))
    done = jitlto("import", "cmake", "tree/cpp/CMakeLists.txt", "-o", "fragments", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("option --extended-lambda: left out" in done.stderr) == (toolchain == "nvrtc")
    _, _, command = done.stdout.partition("build them: jitlto ")
    succeeds(*shlex.split(command), "tree/apply", cwd=tmp_path)
    succeeds("check", "kernels.fragdb", cwd=tmp_path)
    with FragmentDatabase(tmp_path / "kernels.fragdb") as database:
        families = {name: KernelFamily(name, database) for name in database.families}
        kernels = {name: len(list(family.configurations())) for name, family in families.items()}
        made = {image.toolchain for fragment in database.fragments() for image in fragment.images}
        assert made == {toolchain, "binary"}
        udf = 'extern "C" __device__ int udf(int a) { return a; }'
        with raises(CompileError, None, "udf.cuh:2"):
            families["apply"].planner(data_type="int", unroll=4).add_source(udf.replace("int", "float")).plan()
        plan = families["apply"].planner(data_type="int", unroll=4).add_source(udf).plan(arch="sm_90")
        assert {fragment.key.group for fragment in plan.fragments} == {"apply", "clamp"}
    assert kernels == {"apply": 4, "common": 0, "count": 4, "fill": 4, "rescale": 2}
