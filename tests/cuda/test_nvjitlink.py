"""nvJitLink: what goes in, what comes out, and which of jitlto's errors its refusals become."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from jitlto.base.errors import ArchitectureError, LinkError, ToolchainError, UnresolvedSymbolError, VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import libraries, nvfatbin, nvjitlink
from jitlto.cuda.compatibility import newest_ptx_isa
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.cuda.ptx import parse_ptx
from jitlto.record.fragment import ImageKind
from tests.support.compiled import compiled, relocatable_cubin
from tests.support.errors import raises
from tests.support.process import output_of

SM_90 = Architecture(90)

KERNEL = """
extern __device__ float op(float);
extern "C" __global__ void kern(float* x) { x[threadIdx.x] = op(x[threadIdx.x]); }
"""
OP = "__device__ float op(float a) { return a * 3.0f; }"
USES_CONSTANT = """
extern __constant__ float factor;
extern "C" __global__ void kern(float* x) { x[threadIdx.x] *= factor; }
"""
USES_VARIABLE = USES_CONSTANT.replace("__constant__", "__device__")


def ltoir(text: str, name: str = "input", arch: int = 75) -> LinkInput:
    return LinkInput(InputKind.LTOIR, compiled(text, arch).ltoir[Architecture(arch)], name)


def ptx(text: str, name: str = "input") -> LinkInput:
    return LinkInput(InputKind.PTX, compiled(text).ptx.encode(), name)


@pytest.mark.slow
def test_lto_links_into_a_cubin_and_into_ptx_without_a_gpu() -> None:
    inputs = [ltoir(KERNEL, "kern"), ltoir(OP, "op")]
    assert link(inputs, SM_90, ["-lto"]).data[:4] == b"\x7fELF"
    module = parse_ptx(link(inputs, SM_90, ["-lto"], ptx=True).data.decode())
    assert module.target == SM_90
    assert module.requires == ()


def test_ltoir_may_come_in_a_fatbin() -> None:
    def wrapped(text: str) -> LinkInput:
        data = nvfatbin.wrap(ImageKind.LTOIR, ltoir(text).data, Architecture(75))
        return LinkInput(InputKind.FATBIN, data, "wrapped")

    inputs = [ltoir(KERNEL), ltoir(OP)]
    assert link([wrapped(KERNEL), wrapped(OP)], SM_90, ["-lto"]).data == link(inputs, SM_90, ["-lto"]).data


def test_ptx_and_ltoir_link_together() -> None:
    linked = link([ltoir(KERNEL), ptx(OP)], SM_90, ["-lto"]).data
    assert linked[:4] == b"\x7fELF"
    # What came as PTX is not inlined: it is still there to be called.
    assert b"_Z2opf" in linked
    assert b"_Z2opf" not in link([ltoir(KERNEL), ltoir(OP)], SM_90, ["-lto"]).data


@pytest.mark.parametrize("mode", ["lto", "ptx"])
def test_an_unresolved_function_is_named_demangled(mode: str) -> None:
    inputs, flags = ([ltoir(KERNEL)], ["-lto"]) if mode == "lto" else ([ptx(KERNEL)], [])
    with raises(UnresolvedSymbolError, None, "op(float)") as caught:
        link(inputs, SM_90, flags)
    assert "_Z2opf" in caught.value.log


@pytest.mark.slow
def test_a_launch_from_a_kernel_is_answered_with_the_device_runtime() -> None:
    launch = "__global__ void child() {} __global__ void parent() { child<<<1, 1>>>(); }"
    for item, flags in ((ltoir(launch), ["-lto"]), (ptx(launch), [])):
        with raises(UnresolvedSymbolError, None, hint="libcudadevrt"):
            link([item], SM_90, flags)


def test_of_a_library_that_another_has_loaded_an_error_about_versions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_foreign in (True, False):
        loaded = libraries.Loaded("/opt/old/libnvJitLink.so", is_foreign)
        monkeypatch.setattr(libraries, "load", lambda _, loaded=loaded: loaded)
        hint = nvjitlink.name_loaded(VersionError("too new", hint="update it"), Version(13, 0)).hint or ""
        assert (loaded.path in hint) is is_foreign
        assert "update it" in hint


@pytest.mark.slow
@pytest.mark.parametrize("text", [USES_CONSTANT, USES_VARIABLE], ids=["constant", "variable"])
@pytest.mark.parametrize("mode", ["lto", "ptx"])
def test_a_missing_variable_is_an_error_and_not_a_mere_warning(text: str, mode: str) -> None:
    inputs, flags = ([ltoir(text)], ["-lto"]) if mode == "lto" else ([ptx(text)], [])
    with raises(UnresolvedSymbolError, None, "factor"):
        link(inputs, SM_90, flags)


OTHER_OP = "__device__ float op(float a) { return a + 1.0f; }"


def test_two_definitions_in_ltoir_are_an_error_that_names_the_function() -> None:
    with raises(LinkError, "link-duplicate", "op(float)") as caught:
        link([ltoir(KERNEL), ltoir(OP), ltoir(OTHER_OP)], SM_90, ["-lto"])
    assert "_Z2opf" in caught.value.log


def test_ptx_for_a_later_architecture_is_an_architecture_error() -> None:
    later = [LinkInput(InputKind.PTX, compiled(text, 90).ptx.encode(), "later") for text in (KERNEL, OP)]
    with raises(ArchitectureError, "link-architecture-input"):
        link(later, Architecture(80), [])


def test_machine_code_runs_on_its_own_major_from_its_minor_on() -> None:
    cubin = LinkInput(InputKind.CUBIN, relocatable_cubin(OP), "theirs")
    assert link([ltoir(KERNEL), cubin], SM_90, ["-lto"]).data[:4] == b"\x7fELF"
    for number in (80, 89, 100):
        with raises(ArchitectureError, "link-architecture-input", "theirs", "sm_90", f"sm_{number}"):
            link([ltoir(KERNEL), cubin], Architecture(number), ["-lto"])
    specific = LinkInput(InputKind.CUBIN, relocatable_cubin(OP, "sm_90a"), "theirs")
    for item in (cubin, specific):
        assert link([ltoir(KERNEL), item], Architecture(90, "a"), ["-lto"]).data[:4] == b"\x7fELF"
    for target in (SM_90, Architecture(100)):
        with raises(ArchitectureError, "link-architecture-input", "sm_90a", target.sm):
            link([ltoir(KERNEL), specific], target, ["-lto"])
    # Given to nvJitLink, they would have kept a lock for this thread.
    with ThreadPoolExecutor() as pool:
        assert pool.submit(link, [ltoir(KERNEL), ltoir(OP)], SM_90, ["-lto"]).result(60).data[:4] == b"\x7fELF"


def test_after_a_failure_that_locks_nvjitlink_another_thread_gets_an_error_and_does_not_wait() -> None:
    code = """
from tests.cuda.test_nvjitlink import *
nvjitlink._check_inputs = lambda *_: None
try:
    link([LinkInput(InputKind.CUBIN, relocatable_cubin(OP), "theirs")], Architecture(80), [])
except LinkError as error:
    assert "ERROR 4" in error.log, error.log
inputs = [ltoir(KERNEL), ltoir(OP)]
assert link(inputs, SM_90, ["-lto"]).data[:4] == b"\\x7fELF"
with ThreadPoolExecutor() as pool:
    print(pool.submit(link, inputs, SM_90, ["-lto"]).exception().code)
"""
    assert output_of(code) == "link-locked\n"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_130", "sm_999", "sm_80a", "sm_10", "sm_50a", "sm_90f"])
def test_an_unknown_architecture_is_an_error_that_lists_the_known_and_the_process_survives(arch: str) -> None:
    # In a process of its own: given an architecture that it does not know, nvJitLink itself may crash.
    code = f"""
from tests.cuda.test_nvjitlink import *
try:
    link([ltoir(KERNEL), ltoir(OP)], Architecture.parse({arch!r}), ["-lto"])
except ArchitectureError as error:
    assert {arch!r} in str(error) and "sm_90" in str(error), error
else:
    raise SystemExit("linked")
assert link([ltoir(KERNEL), ltoir(OP)], SM_90, ["-lto"]).data[:4] == b"\\x7fELF"
print("survived")
"""
    assert output_of(code) == "survived\n"


@pytest.mark.parametrize("kind", [InputKind.LTOIR, InputKind.FATBIN, InputKind.PTX, InputKind.CUBIN, InputKind.OBJECT])
@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"garbage" * 100, b"\x7fELF" + b"garbage" * 100],
    ids=["empty", "zero", "garbage", "garbage in ELF"],
)
def test_garbage_is_a_link_error_that_names_the_input(kind: InputKind, data: bytes) -> None:
    with raises(LinkError, "link-failed", "rubbish"):
        link([LinkInput(kind, data, "rubbish")], SM_90, ["-lto"])


def test_a_truncated_input_is_a_link_error() -> None:
    whole = ltoir(KERNEL).data
    with raises(LinkError, "link-failed"):
        link([LinkInput(InputKind.LTOIR, whole[: len(whole) // 2], "half"), ltoir(OP)], SM_90, ["-lto"])


def test_an_unknown_flag_is_a_link_error_that_shows_the_options() -> None:
    with raises(LinkError, "link-options", "-no-such-option"):
        link([ltoir(KERNEL), ltoir(OP)], SM_90, ["-lto", "-no-such-option"])


def test_ptx_of_a_newer_isa_is_a_version_error() -> None:
    newest = newest_ptx_isa(nvjitlink.version())
    module = parse_ptx(compiled(OP).ptx)
    newer = compiled(OP).ptx.replace(f".version {module.isa}", f".version {Version(newest.major + 2, 0)}")
    with raises(VersionError, "link-version-newer", str(nvjitlink.version())):
        link([ptx(KERNEL), LinkInput(InputKind.PTX, newer.encode(), "newer")], SM_90, [])


@pytest.mark.slow
def test_a_missing_function_is_an_error_after_a_failed_link_too() -> None:
    # nvJitLink itself lets it pass then: its own report of undefined functions is lost with the failure of ptxas.
    broken = compiled(OP).ptx.replace("ret;", "nonsense;")
    for _ in range(2):
        with pytest.raises(LinkError):
            link([ptx(KERNEL), LinkInput(InputKind.PTX, broken.encode(), "broken")], SM_90, [])
        for inputs, flags in (([ltoir(KERNEL)], ["-lto"]), ([ptx(KERNEL)], [])):
            with raises(UnresolvedSymbolError, None, "op(float)"):
                link(inputs, SM_90, flags)


def test_a_missing_nvjitlink_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nvjitlink.version.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    monkeypatch.delitem(vars(libraries), "nvjitlink", raising=False)
    with raises(ToolchainError, "toolchain-missing", "nvJitLink", hint="pip install"):
        nvjitlink.version()
