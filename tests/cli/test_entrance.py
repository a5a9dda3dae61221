"""From an empty directory to a linked kernel of one's own, by commands alone and without a GPU."""

import shlex
from pathlib import Path

import pytest

from tests.support.commands import succeeds
from tests.support.families import write_family

KERNEL = "__global__ void scale(float* x, {{n}} n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"
HEADER = "namespace own { template <typename T> __global__ void scale(float* x, T n) { x[threadIdx.x] *= n; } }\n"
#: Families of two files.
FAMILIES = {
    "a template": {
        "family.toml": '[entrypoint.scale]\nmatrix = {n = ["unsigned", "size_t"]}\n',
        "scale.cu.jinja": KERNEL,
    },
    "a header": {
        "family.toml": '[entrypoint.scale]\nmatrix = {n = ["unsigned", "size_t"]}\ninstantiate = "own::scale<{{n}}>"\n',
        "scale.cuh": HEADER,
    },
    "a header with other kernels": {
        "family.toml": '[entrypoint.scale]\nmatrix = {n = ["int", "size_t"]}\ninstantiate = "::own::scale<{{n}}>"\n',
        "scale.cuh": f"{HEADER}__global__ void other(int* x) {{ *x = 1; }}\n",
    },
    "a matrix": {
        "family.toml": '[entrypoint.scale]\nmatrix = "family.json"\nkey = ["n"]\ninstantiate = "own::scale<{{n}}>"\n',
        "family.json": '{"n": ["unsigned", "size_t"]}',
        "scale.cuh": HEADER,
    },
}


@pytest.mark.parametrize("files", FAMILIES.values(), ids=FAMILIES)
def test_a_family_of_a_few_lines_builds_plans_and_links(tmp_path: Path, files: dict[str, str]) -> None:
    write_family(tmp_path / "own", files)
    assert sum(text.count("\n") for text in files.values()) <= 15
    assert "2 fragments" in succeeds("build", "own", "-o", "own.fragdb", cwd=tmp_path)
    succeeds(
        "plan", "own", "n=size_t", "--db", "own.fragdb", "--arch", "sm_90", "--dump", "cubin", "-o", "x", cwd=tmp_path
    )
    assert (tmp_path / "x").read_bytes()[:4] == b"\x7fELF"
    assert "2 kernels" in succeeds("check", "own.fragdb", "--link", "sm_90", cwd=tmp_path)


def test_the_minimal_family_builds_by_the_command_that_is_printed(tmp_path: Path) -> None:
    said = succeeds("new", "--minimal", "My-Kernel", cwd=tmp_path)
    program, *command = shlex.split(said.partition("build it: ")[2])
    assert program == "jitlto"
    assert "2 fragments → 2 kernels in My-Kernel.fragdb" in succeeds(*command, cwd=tmp_path)
    assert "no call" in succeeds(
        "plan", "My-Kernel", "type=double", "--db", "My-Kernel.fragdb", "--arch", "sm_90", cwd=tmp_path
    )
