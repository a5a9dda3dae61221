"""The toolkit that the extras install has all that device code is usually written with."""

import sys
from pathlib import Path

import pytest

from jitlto.base.errors import ToolchainError
from jitlto.base.versions import Architecture
from jitlto.compile.headers import HeaderSearch
from jitlto.cuda import libraries, nvjitlink, toolkit
from jitlto.cuda.compatibility import ltoir_links
from tests.support.compiled import compile_source
from tests.support.errors import raises

_WMMA = """
__device__ float f(float x) {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> a;
  nvcuda::wmma::fill_fragment(a, x);
  return a.x[0];
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("cuda_fp16.h", "__device__ float f(__half x) { return __half2float(x); }"),
        ("cuda_fp8.h", "__device__ float f(__nv_fp8_e4m3 x) { return float(x); }"),
        ("mma.h", _WMMA),
        ("cuda/std/cstdint", "__device__ cuda::std::int64_t f(cuda::std::int64_t x) { return -x; }"),
        ("cooperative_groups.h", "__device__ void f() { cooperative_groups::this_thread_block().sync(); }"),
        ("cub/block/block_reduce.cuh", "__device__ float f(float x) { return cub::BlockReduce<float, 32>().Sum(x); }"),
    ],
)
def test_the_headers_of_device_code_compile_without_a_cuda_toolkit(header: str, code: str) -> None:
    search = HeaderSearch((), system=toolkit.header_roots())
    compiled = compile_source(
        search.closure(f"#include <{header}>\n{code}".encode()), [Architecture(80)], ["--std=c++17"]
    )
    assert len(compiled.module.provides) >= 1


def test_compiler_and_linker_of_an_extra_go_together() -> None:
    assert ltoir_links(toolkit.nvrtc_version(), nvjitlink.version())
    assert toolkit.nvfatbin_version().major == toolkit.nvrtc_version().major


def test_a_missing_component_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.delitem(vars(libraries), "nvrtc", raising=False)
    with raises(ToolchainError, "toolchain-missing", "cuda.bindings.nvrtc", hint="pip install"):
        toolkit.bindings.__wrapped__("nvrtc")
    assert toolkit.find_library("nvrtc") is not None


def test_what_to_install_is_of_the_cuda_major_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    major = nvjitlink.version().major
    assert toolkit.cuda_major() == major
    with monkeypatch.context() as patch:  # as beside PyTorch, which brings nvJitLink without the bindings
        patch.setattr(libraries, "bindings_release", lambda: None)
        assert toolkit.cuda_major() == major
    for there, named in ((major, {major}), (None, {12, 13})):
        monkeypatch.setattr(toolkit, "cuda_major", lambda there=there: there)
        assert {each for each in (12, 13) if f"cu{each}" in toolkit.install_hint("numba")} == named
        assert toolkit.install_hint("numba").count(",numba]") == len(named)


def test_curand_beside_the_runtime_is_found_where_each_has_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia = tmp_path / "nvidia"
    for name in ("cuda_runtime", "curand"):
        (nvidia / name / "include").mkdir(parents=True)
    (nvidia / "cuda_runtime" / "include" / "cuda_runtime.h").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert nvidia / "curand" / "include" in toolkit.header_roots.__wrapped__()


def test_headers_of_another_cuda_major_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a package is missing and a CUDA toolkit of another major lies about."""
    (tmp_path / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  11080\n")
    monkeypatch.setattr(libraries, "find_packaged", lambda *_: None)
    monkeypatch.setattr(libraries, "find_nvidia_header_directory", lambda _: str(tmp_path))
    with raises(ToolchainError, "toolchain-mixed", "11.8", where=str(tmp_path)):
        toolkit.header_roots.__wrapped__()
