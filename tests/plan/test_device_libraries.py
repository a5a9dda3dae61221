"""Libraries of device code that a family or a caller links: dynamic parallelism with the toolkit's device runtime."""

import json
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError, FamilyError, ToolchainError
from jitlto.base.versions import Architecture
from jitlto.check.check import check
from jitlto.cuda import nvjitlink
from jitlto.cuda.elf import read_sections
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.runtime.family import KernelFamily
from tests.support.commands import succeeds
from tests.support.errors import raises
from tests.support.families import built, write_family

LINK = '\n[link]\nlibraries = ["cudadevrt"]\n'
FILES = {
    "family.toml": """
[family]
name = "nested"

[entrypoint.parent]
matrix = "one.json"
template = "parent.cu.jinja"
entry = "parent"
""",
    "one.json": "{}",
    "parent.cu.jinja": """
__global__ void child(float* x, float v) { x[threadIdx.x] = v + threadIdx.x; }
__global__ void parent(float* x, int n) { child<<<1, n>>>(x, 3.0f); }
""",
}


def _with(files: dict[str, str], text: str) -> dict[str, str]:
    return files | {"family.toml": files["family.toml"] + text}


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    """A family whose kernel launches another."""
    path = built(tmp_path_factory.mktemp("nested"), _with(FILES, LINK), "nested").database.path
    return KernelFamily("nested", FragmentDatabase(path))


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
def test_a_kernel_that_launches_kernels_links_with_the_device_runtime(nested: KernelFamily, link_mode: str) -> None:
    plan = nested.plan(arch="sm_90", link_mode=link_mode)
    assert ".text.__cudaCDP2LaunchDeviceV2" in {each.name for each in read_sections(plan.link(use_cache=False).cubin)}
    assert plan.as_dict()["supplied"] == ["libcudadevrt.a"]


def test_a_check_links_it(nested: KernelFamily) -> None:
    assert check(nested.database, targets=[Architecture(90)]).holds


def test_callers_may_add_it_where_a_family_does_not(tmp_path: Path) -> None:
    with raises(BuildError, "build-unplanned-kernels", 'libraries = ["cudadevrt"]'):
        built(tmp_path, FILES, "nested")
    succeeds("build", tmp_path, "-o", tmp_path / "n.fragdb", "--allow-incomplete")
    command = ("plan", "nested", "--db", tmp_path / "n.fragdb", "--arch", "sm_90", "--library", "cudadevrt")
    assert "links for sm_90" in succeeds(*command)


def test_the_digest_is_of_its_content(nested: KernelFamily, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def digest(data: bytes) -> str:
        (tmp_path / "libcudadevrt.a").write_bytes(data)
        monkeypatch.setattr(nvjitlink, "find_library", lambda _: str(tmp_path / "libnvJitLink.so"))
        nvjitlink.read_device_library.cache_clear()
        return nested.plan(arch="sm_90").digest

    try:
        assert digest(b"one") == digest(b"one") != digest(b"other")
    finally:
        nvjitlink.read_device_library.cache_clear()


def test_one_that_is_not_installed_is_named(nested: KernelFamily) -> None:
    with raises(ToolchainError, "toolchain-missing", "libnone.a", "CUDA_PATH"):
        nested.plan(arch="sm_90", link_options={"libraries": ["none"]}).digest  # noqa: B018


def test_it_is_found_in_the_toolkit_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libown_of_test.a").write_bytes(b"!<arch>\n")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert nvjitlink.read_device_library("own_of_test")[0].data == b"!<arch>\n"


@pytest.mark.parametrize("name", ["../cudadevrt", "lib/x", ""])
def test_a_library_is_named_and_not_a_path(tmp_path: Path, name: str) -> None:
    with raises(FamilyError, "family-link-option", "libraries"):
        load_family(write_family(tmp_path, _with(FILES, f"\n[link]\nlibraries = [{json.dumps(name)}]\n")))


def test_a_family_that_uses_another_names_its_libraries(tmp_path: Path) -> None:
    write_family(tmp_path / "low", _with(FILES, LINK))
    user = {**FILES, "family.toml": FILES["family.toml"].replace("nested", "user") + '\n[use]\nnested = "../low"\n'}
    with raises(FamilyError, "family-use", "cudadevrt"):
        load_family(write_family(tmp_path / "user", user))


def test_a_function_of_cpp_that_nothing_provides_is_still_missed(tmp_path: Path) -> None:
    text = "__device__ int far(int);\n__global__ void parent(int* x) { *x = far(*x); }\n"
    with raises(BuildError, "build-unplanned-kernels", "far(int)"):
        built(tmp_path, _with(FILES, LINK) | {"parent.cu.jinja": text}, "nested")


@pytest.mark.gpu
def test_a_kernel_launches_kernels(nested: KernelFamily) -> None:
    import cupy as cp

    x = cp.zeros(4, "float32")
    nested.launcher()(None, 1, 1, x, 4)
    assert x.tolist() == [3, 4, 5, 6]
