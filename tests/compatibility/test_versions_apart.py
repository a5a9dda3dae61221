"""The NVRTC at hand beside an older nvJitLink, and fragments of an older NVRTC beside a caller's source.

The older libraries, of the same major, are real ones, which ``python -m tests.support.toolkits DIRECTORY`` installs,
see JITLTO_TEST_TOOLKITS.
"""

from pathlib import Path

import pytest

from jitlto.base.errors import LinkError
from jitlto.base.versions import Version
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support import toolkits
from tests.support.errors import raises
from tests.support.families import calling_op, write_family
from tests.support.process import output_of

OLDER = {12: Version(12, 8), 13: Version(13, 0)}

# From 13.1 on, NVRTC's pointers to shared memory have 32 bits; and what tells local memory differs between releases.
HELPERS = """#include <cuda/atomic>
inline __device__ int most(int n) {
  __shared__ int seen[64];
  seen[threadIdx.x % 64] = n;
  __syncthreads();
  for (int i = 0; i < 64; i++) n = max(n, seen[i]);
  return n;
}
inline __device__ int count(int* to) {
  return cuda::atomic_ref<int, cuda::thread_scope_block>(*to).fetch_add(__any_sync(~0u, *to));
}
"""
OP = "__device__ int op(int* x) { return count(x) + most(*x); }\n"

# cuda.bindings takes a library of that name that is loaded already.
PRELUDE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import jitlto
from jitlto.cuda import nvjitlink
from jitlto.base.errors import LinkError, VersionError
from jitlto.record.fragment import ImageKind
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.base.versions import Architecture
print("nvJitLink", nvjitlink.version())
family = jitlto.load("mini", sys.argv[2])
plan = family.plan(arch="sm_90", data_type="float", op_name="twice")
"""


@pytest.fixture(scope="module")
def older() -> tuple[Version, str]:
    """An older nvJitLink: its version, and the path of its library."""
    compiler = toolkit.nvrtc_version()
    version = OLDER[compiler.major]
    if compiler <= version:
        pytest.skip(f"CUDA {compiler} is not newer than nvJitLink {version}")
    (path,) = toolkits.place(str(version)).rglob("libnvJitLink.so.*")
    return version, str(path)


def run(older: tuple[Version, str], database: Path, code: str) -> str:
    first, _, rest = output_of(PRELUDE + code, older[1], database).partition("\n")
    assert first == f"nvJitLink {older[0]}"
    return rest


def test_newer_ltoir_is_refused_before_linking_with_both_versions(older: tuple[Version, str], mini_path: Path) -> None:
    said = run(older, mini_path, "try: plan.link()\nexcept VersionError as error: print(error)")
    assert f"mini/kern[data_type=float] has LTO-IR made by nvrtc {toolkit.nvrtc_version()}" in said
    assert f"nvJitLink {older[0]} cannot read" in said
    assert f"install an nvJitLink of at least {toolkit.nvrtc_version()}" in said


def test_nvjitlinks_own_refusal_of_newer_ltoir_is_a_version_error_too(
    older: tuple[Version, str], mini_path: Path
) -> None:
    code = """
inputs = [
    LinkInput(InputKind.FATBIN, family.database.read(image), str(fragment.key))
    for fragment in plan.fragments for image in fragment.images_of(ImageKind.LTOIR)
]
try:
    link(inputs, Architecture(90), ["-lto"])
except VersionError as error:
    print(error)
    print("LOG", error.log)
"""
    said = run(older, mini_path, code)
    assert f"newer toolkit than nvJitLink {older[0]}" in said
    assert "install an nvJitLink at least as new as the compiler" in said
    assert said.partition("LOG")[2].strip()


@pytest.fixture(scope="module")
def of_older_nvrtc(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    """A family that an older NVRTC compiled; its callers supply ``op``."""
    release = OLDER[toolkit.nvrtc_version().major]
    if toolkit.nvrtc_version() <= release:
        pytest.skip(f"NVRTC {toolkit.nvrtc_version()} is not newer than {release}")
    kernel = f"{HELPERS}__global__ void kern(int* x) {{ x[threadIdx.x] = op(x) + most(x[1]) * count(x); }}"
    directory = tmp_path_factory.mktemp("older")
    file = write_family(directory, calling_op("older", "__device__ int op(int* x);", kernel))
    probe = "tests.support.compatibility_probe"
    path = toolkits.run(toolkits.python(str(release)), probe, "family", file, cache=directory / "cache")
    return KernelFamily("older", FragmentDatabase(str(path)))


@pytest.mark.slow
def test_what_releases_of_the_toolkit_define_differently_is_no_conflict(of_older_nvrtc: KernelFamily) -> None:
    assert of_older_nvrtc.planner().add_source(HELPERS + OP).plan().link("sm_90").cubin


@pytest.mark.slow
def test_what_a_caller_defines_differently_is_one_across_releases_too(of_older_nvrtc: KernelFamily) -> None:
    planner = of_older_nvrtc.planner().add_source(HELPERS.replace("max(", "min(") + OP)
    with raises(LinkError, "link-conflicting-definitions", "most(int)", "older/kern[]", "user.cu"):
        planner.plan().link("sm_90")


@pytest.mark.slow
def test_a_callers_newer_source_is_refused_beside_older_fragments(
    older: tuple[Version, str], mini_path: Path, of_older_nvrtc: KernelFamily
) -> None:
    code = f"""
planner = jitlto.load("older", {str(of_older_nvrtc.database.path)!r}).planner()
try:
    planner.add_source({HELPERS + OP!r}).plan(arch="sm_90").link()
except VersionError as error:
    print(error.code, error)
"""
    said = run(older, mini_path, code)
    assert said.startswith("link-version-newer")
    assert f"newer toolkit than nvJitLink {older[0]}" in said
