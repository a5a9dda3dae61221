"""Callers' inputs beside fragments are read, checked against the interface, and linked."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy as copy
from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import (
    ArchitectureError,
    CompileError,
    InterfaceMismatchError,
    JitltoError,
    LinkError,
    MissingProviderError,
    PlanError,
    UnresolvedSymbolError,
)
from jitlto.base.versions import Architecture
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.cuda import nvfatbin, toolkit
from jitlto.cuda.ptx import parse_ptx
from jitlto.database import FragmentDatabase
from jitlto.plan.plan import Plan
from jitlto.plan.planner import Planner
from jitlto.plan.user_code import compilation, inputs
from jitlto.plan.user_code.compilation import compile_once
from jitlto.record.fragment import ImageKind
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.compiled import archive, compiled, relocatable_cubin
from tests.support.errors import raises
from tests.support.families import built, calling_op
from tests.support.user_cache import read_source, source_keys, user_cache

BASE = Architecture(75)
OP = "namespace mini { template <> __device__ float op<float>(float a) { return a * 3.0f; } }\n"
# The same function for compilers that do not see the interface header.
ALONE = "namespace mini { template <typename T> __device__ T op(T a); }\n" + OP

# A kernel that calls a function with C linkage, which callers supply.
C_FAMILY = {
    "family.toml": """
[family]
name = "plain"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type"]

[device.op]
supplied = true
interface = "op.cuh"
""",
    "kern.json": '{"data_type": ["float"]}',
    "op.cuh": '#pragma once\nextern "C" __device__ float op(float a);\n',
    "kern.cu.jinja": """#include "op.cuh"
extern "C" __device__ float unused_here(float);
template <typename T> __global__ void kern(T* x) { x[threadIdx.x] = op(x[threadIdx.x]); }
template __global__ void kern<{{data_type}}>({{data_type}}*);
""",
}
# The same in C++, with the interface left to the kernel's own source.
CPP_FAMILY = calling_op(
    "helped",
    "__device__ float op(float a);",
    "__global__ void kern(float* x) { x[threadIdx.x] = op(x[threadIdx.x]); }",
)
CALLS_ELSEWHERE = "__device__ float elsewhere(float);\n" + OP.replace("a * 3.0f", "elsewhere(a)")


def ltoir(text: str) -> bytes:
    return compiled(text).ltoir[BASE]


@pytest.fixture
def planner(mini: KernelFamily) -> Planner:
    return mini.planner(data_type="float")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("plain"), C_FAMILY, "plain")


@pytest.fixture(scope="module")
def in_cpp(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("helped"), CPP_FAMILY, "helped")


def links(plan: Plan) -> bool:
    return plan.link("sm_90").cubin[:4] == b"\x7fELF"


def inlined(plan: Plan) -> bool:
    return plan.calls_left("sm_90") == []


# --- source ---


@pytest.mark.parametrize("mode", ["lto", "ptx"])
def test_a_source_replaces_a_group_in_both_link_modes(planner: Planner, mode: str) -> None:
    plan = planner.add_source(OP).plan(link_mode=mode)
    assert [str(f.key) for f in plan.fragments] == ["mini/kern[data_type=float]"]
    assert links(plan)
    if mode == "lto":
        assert inlined(plan)
        assert "0f40400000" in plan.link_ptx("sm_90")  # 3.0f


TOOLKIT = "__half2float(__float2half(a)) + cuda::std::numeric_limits<float>::max()"


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [
        ['#include "op.cuh"\n' + OP],
        ["#include <cuda/std/limits>\n#include <cuda_fp16.h>\n" + OP.replace("a * 3.0f", TOOLKIT)],
        ["__constant__ float factor = 3.0f;\n" + OP.replace("3.0f", "factor")],
        ["// größer – 大\n" + OP],
        ["__constant__ cudaTextureObject_t image;\n" + OP.replace("a * 3.0f", "tex1Dfetch<float>(image, int(a))")],
        [CALLS_ELSEWHERE, "__device__ float elsewhere(float a) { return a + 1.0f; }"],
    ],
    ids=["interface", "toolkit headers", "own constant", "not ASCII", "texture", "two sources"],
)
def test_what_a_source_may_hold(planner: Planner, texts: list[str]) -> None:
    for number, text in enumerate(texts):
        planner.add_source(text, name=f"{number}.cu")
    plan = planner.plan()
    assert links(plan)
    assert inlined(plan)


@pytest.mark.slow
def test_c_linkage_is_kept_by_a_definition_that_does_not_repeat_it(plain: KernelFamily) -> None:
    plan = plain.planner().add_source("__device__ float op(float a) { return a; }").plan()
    assert links(plan)
    assert inlined(plan)


INSTANTIATED = "namespace mini {{ template <> __device__ {0} op<{0}>({0} a) {{ return {1}; }} }}\n"
TEMPLATE = "namespace mini { template <typename T> __device__ T op(T a) { return a; } }"
WRONG: dict[str, tuple[str, str, type[JitltoError], str | None, list[str], str]] = {
    "compile error": ("mini", f"// a comment\n\n{INSTANTIATED.format('float', 'b')}", CompileError, None,
        ["my.cu(3): error: identifier", "namespace mini"], ""),
    "other function": ("mini", "__device__ float other(float a) { return a; }", PlanError, "plan-unused-input",
        ["other(float)", "op<float>(float)"], ""),
    "nothing": ("mini", "// nothing\n", PlanError, "plan-empty-input", [], ""),
    "template": ("mini", TEMPLATE, PlanError, "plan-empty-input", [], "explicit instantiation"),
    "other type": ("mini", INSTANTIATED.format("int", "a"), InterfaceMismatchError, None,
        ["int mini::op<int>(int)", "float mini::op<float>(float)"], ""),
    "other result": ("in_cpp", "__device__ int op(float a) { return 1; }", CompileError, None,
        ["op.cuh:2: declares `__device__ float op(float a);`", "my.cu:1: has `__device__ int op(float a)`"],
        "the same types"),
    "C for C++": ("in_cpp", 'extern "C" __device__ float op(float a) { return a; }', CompileError, None,
        ["my.cu(1)"], ""),
    "C++ for C": ("plain", "__device__ float op(double a) { return 1.0f; }", InterfaceMismatchError, None,
        ["op(double)"], 'extern "C"'),
    "missing header": ("mini", '#include "not_there.cuh"\n' + OP, CompileError, "compile-missing-header",
        [], "not_there.cuh"),
    "host header": ("mini", "#include <limits>\n" + OP, CompileError, "compile-missing-header",
        [], "include <cuda/std/limits>"),
    "missing function": ("mini", CALLS_ELSEWHERE, MissingProviderError, None, ["elsewhere(float)", "my.cu"], ""),
}  # fmt: skip
FAST = ("compile error", "other type", "host header", "missing function")


@pytest.mark.parametrize("case", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in WRONG])
def test_a_source_that_cannot_serve_is_an_error_that_says_why(
    mini: KernelFamily, plain: KernelFamily, in_cpp: KernelFamily, case: str
) -> None:
    family, text, error, code, words, hint = WRONG[case]
    planner = in_cpp.planner() if family == "in_cpp" else (mini, plain)[family == "plain"].planner(data_type="float")
    where = None if error is MissingProviderError else "my.cu"
    with raises(error, code, *words, where=where, hint=hint or None):
        planner.add_source(text, name="my.cu").plan()


def test_a_source_must_be_text(planner: Planner) -> None:
    for wrong in ("// \ud800\n" + OP, OP.encode()):
        with raises(PlanError, "plan-invalid-input", where="user.cu"):
            planner.add_source(wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "name", "place"),
    [
        ("#define S int", "S", "op.cuh:2"),
        ("template <> struct L<int> { float a; };", "L", "op.cuh:3"),
        ("struct Open { int a; };", "Open", "op.cuh:4"),
    ],
)
def test_a_source_does_not_change_what_the_interfaces_mean(
    build_family: BuildFamily, line: str, name: str, place: str
) -> None:
    interface = "struct S { float a; };\ntemplate <class T> struct L { T a; };\nstruct Open;\n"
    files = C_FAMILY | {"op.cuh": f'#pragma once\n{interface}extern "C" __device__ float op(float a);\n'}
    files["family.toml"] = files["family.toml"].replace('"plain"', '"plain"\nopaque = ["Open"]', 1)
    with FragmentDatabase(build_family(files).path) as database:
        planner = KernelFamily("plain", database).planner(data_type="float")
        source = 'extern "C" __device__ float op(float a) { return a; }\n'
        with raises(PlanError, "plan-interface-text", name, place, where="mine.cu:2"):
            planner.add_source(f"{source}{line}\n", name="mine.cu").plan(arch="sm_90")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ('\n#include "{path}"', "absolute"),
        ('#define H "{path}"\n#include H', "unknown"),
        ('\n#if __has_include("{path}")\n#endif', "absolute"),
        ('#line 1 "{path}"\n#include __FILE__', "unknown"),
    ],
)
def test_files_of_the_machine_cannot_be_included(planner: Planner, tmp_path: Path, lines: str, code: str) -> None:
    header = tmp_path / "private.cuh"
    header.write_text("#define PRIVATE 1\n")
    text = lines.format(path=header)
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "include" in line)
    with raises(JitltoError, f"jitlto-header-{code}", where=f"mine.cu:{line}", hint="of the toolkit"):
        planner.add_source(f"{text}\n{OP}", "mine.cu").plan()


@pytest.mark.slow
def test_nvccs_long_and_nvrtcs_long_long_are_told_apart_by_name(build_family: BuildFamily) -> None:
    files = CPP_FAMILY | {
        "op.cuh": "#pragma once\n__device__ float op(long a);\n",
        "kern.cu.jinja": '#include "op.cuh"\n__global__ void kern(float* x) { *x = op(2L); }\n',
    }
    family = KernelFamily("helped", FragmentDatabase(build_family(files).path))
    text = "#include <cuda/std/cstdint>\n__device__ float op(cuda::std::int64_t a) { return a; }"
    with raises(InterfaceMismatchError, None, "op(long long)", "op(long)", hint="nvcc"):
        family.planner().add_source(text).plan()


# --- LTO-IR, fatbins, PTX ---


@pytest.mark.slow
def test_ltoir_bare_or_in_a_fatbin_replaces_a_group(mini: KernelFamily) -> None:
    for data in (ltoir(ALONE), nvfatbin.wrap(ImageKind.LTOIR, ltoir(ALONE), BASE)):
        plan = mini.planner(data_type="float").add_ltoir(data).plan()
        assert [str(f.key) for f in plan.fragments] == ["mini/kern[data_type=float]"]
        assert links(plan)
        assert inlined(plan)


def test_ltoir_says_what_it_provides_and_requires(planner: Planner) -> None:
    with raises(PlanError, "plan-unused-input", where="user.ltoir"):
        copy(planner).add_ltoir(ltoir("__device__ float other(float a) { return a; }")).plan()
    more = "__device__ float elsewhere(float);\n" + ALONE.replace("a * 3.0f", "elsewhere(a)")
    with raises(UnresolvedSymbolError, None, "elsewhere(float)"):
        copy(planner).add_ltoir(ltoir(more)).plan().link("sm_90")
    unused = "__device__ float elsewhere(float);\n__device__ float unused(float a) { return elsewhere(a); }\n"
    assert copy(planner).add_ltoir(ltoir(unused + ALONE)).plan().link("sm_90").cubin


OTHER_LAYOUT = 'extern "C" __device__ float op(double a, int b) { return a + b; }'


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "fatbin", "fatbin with PTX", "cubin", "fatbin with a cubin"])
def test_a_different_layout_is_an_error(plain: KernelFamily, kind: str) -> None:
    text, data, code = compiled(OTHER_LAYOUT).ptx, ltoir(OTHER_LAYOUT), relocatable_cubin(OTHER_LAYOUT)
    planner = {
        "ptx": lambda: plain.planner().add_ptx(text),
        "ltoir": lambda: plain.planner().add_ltoir(data),
        "fatbin": lambda: plain.planner().add_binary(fatbin_of(ltoir=data), "fatbin"),
        "fatbin with PTX": lambda: plain.planner().add_binary(fatbin_of(text, data), "fatbin"),
        "cubin": lambda: plain.planner().add_binary(code, "cubin"),
        "fatbin with a cubin": lambda: plain.planner().add_binary(in_a_fatbin(code), "fatbin"),
    }[kind]()
    layouts = "op", "(4)(8,4)", "plain/kern", "(4)(4)"
    with raises(InterfaceMismatchError, "plan-interface-mismatch-layout", *layouts, where=f"user.{kind.split()[0]}"):
        planner.plan()


def test_inputs_may_be_anything_that_holds_bytes_and_nothing_else(mini: KernelFamily) -> None:
    planner = mini.planner(data_type="float")
    assert planner.add_ltoir(memoryview(ltoir(ALONE))).plan().supplied  # type: ignore[arg-type]
    for wrong in ("text", 1, None, ["a"]):
        with raises(PlanError, "plan-invalid-input", type(wrong).__name__, where="mine"):
            planner.add_ltoir(wrong, name="mine")  # type: ignore[arg-type]
        with raises(PlanError, "plan-invalid-input", type(wrong).__name__, where="mine"):
            planner.add_binary(wrong, "cubin", name="mine")  # type: ignore[arg-type]
    with raises(PlanError, "plan-invalid-input", "int", where="user.ptx"):
        planner.add_ptx(1)  # type: ignore[arg-type]
    with raises(PlanError, "plan-invalid-input", "'exe'", hint="fatbin, cubin, object, library"):
        planner.add_binary(b"", "exe")


@pytest.mark.parametrize("data", [b"", b"\0", b"\x50\xed\x55\xba rubbish", b"BC\xc0\xde"])
def test_garbage_is_a_plan_error_that_names_the_input(mini: KernelFamily, data: bytes) -> None:
    with raises(PlanError, "plan-unreadable-input", where="mine"):
        mini.planner(data_type="float").add_ltoir(data, name="mine").plan()
    with raises(PlanError, "plan-unreadable-input", where="mine"):
        mini.planner(data_type="float").add_ptx(data, name="mine").plan()


# --- other binaries ---


def test_a_binary_that_lacks_what_callers_supply_is_told_what_the_kernels_call(plain: KernelFamily) -> None:
    other = compiled('extern "C" __device__ float other(float a) { return a; }', 75).ptx
    with raises(PlanError, "plan-unused-input", "other", where="user.fatbin", hint="op"):
        plain.planner().add_binary(fatbin_of(ptx=other), "fatbin").plan()


@pytest.mark.parametrize("kind", ["cubin", "fatbin"])
def test_machine_code_that_defines_what_another_input_or_a_fragment_defines_is_refused(
    mini: KernelFamily, plain: KernelFamily, kind: str
) -> None:
    """NvJitLink takes one of the two without an error."""
    helper = 'extern "C" __device__ __noinline__ float helper(float a) { return a; }\n'
    mine = helper + 'extern "C" __device__ float op(float a) { return helper(a); }'
    cubins = [relocatable_cubin(text) for text in (mine, helper)]
    one, other = cubins if kind == "cubin" else map(in_a_fatbin, cubins)
    other_op = relocatable_cubin('extern "C" __device__ float op(float a) { return a; }')
    planner = plain.planner().add_binary(one, kind, "one")
    for name, again in (("op", other_op if kind == "cubin" else in_a_fatbin(other_op)), ("helper", other)):
        with raises(PlanError, "plan-duplicate-definition" if name == "op" else "plan-unused-input", "other"):
            copy(planner).add_binary(again, kind, "other").plan()
    entry = mini.plan(data_type="float", op_name="square").entry.entry
    data = relocatable_cubin(f'{ALONE}\nextern "C" __global__ void {entry}(float* x) {{ *x = 1; }}')
    data = data if kind == "cubin" else in_a_fatbin(data)
    with raises(PlanError, "plan-duplicate-definition", "mini/kern", f"user.{kind}"):
        mini.planner(data_type="float").add_binary(data, kind).plan()


@pytest.mark.parametrize("kind", ["cubin", "fatbin"])
def test_a_binary_may_call_another_and_fragments(plain: KernelFamily, kind: str) -> None:
    helper = 'extern "C" __device__ float helper(float a) { return a; }\n'
    mine = 'extern "C" __device__ float helper(float); extern "C" __device__ float op(float a) { return helper(a); }'
    one, other = (relocatable_cubin(text) for text in (mine, helper))
    one, other = (one, other) if kind == "cubin" else (in_a_fatbin(one), in_a_fatbin(other))
    plan = plain.planner().add_binary(other, kind, "other").add_binary(one, kind, "one").plan(arch="sm_90")
    assert plan.link().cubin


@pytest.mark.parametrize("kind", ["cubin", "object", "library", "fatbin"])
def test_garbage_of_any_kind_is_one_of_our_errors(mini: KernelFamily, kind: str) -> None:
    with pytest.raises((LinkError, PlanError), match=f"user.{kind}"):
        mini.planner(data_type="float").add_binary(b"garbage" * 64, kind).plan().link("sm_90")


def fatbin_of(ptx: str = "", ltoir: bytes = b"", cubin: bytes = b"", architecture: str = "75") -> bytes:
    """A fatbin that holds PTX, LTO-IR, machine code, or several of them."""
    toolkit.find_library("nvfatbin")
    bindings = pytest.importorskip("cuda.bindings.nvfatbin")
    handle = bindings.create([], 0)
    try:
        if ptx:
            text = ptx.encode() + b"\0"
            bindings.add_ptx(handle, text, len(text), architecture, "user", "")
        if ltoir:
            bindings.add_ltoir(handle, ltoir, len(ltoir), architecture, "user", "")
        if cubin:
            bindings.add_cubin(handle, cubin, len(cubin), architecture, "user")
        buffer = bytearray(bindings.size(handle))
        bindings.get(handle, buffer)
    finally:
        bindings.destroy(handle)
    return bytes(buffer)


def in_a_fatbin(cubin: bytes, architecture: str = "90") -> bytes:
    return fatbin_of(cubin=cubin, architecture=architecture)


def test_ltoir_alone_serves_no_link_without_lto(planner: Planner) -> None:
    for add in (
        lambda: copy(planner).add_ltoir(ltoir(ALONE), "mine"),
        lambda: copy(planner).add_binary(fatbin_of(ltoir=ltoir(ALONE)), "fatbin", "mine"),
    ):
        with raises(LinkError, "link-needs-lto", "mine"):
            add().plan(link_mode="ptx").link("sm_90")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lto", "ptx"])
@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: in_a_fatbin(relocatable_cubin(ALONE, "sm_80"), "80"), "sm_80"),
        (lambda: in_a_fatbin(relocatable_cubin(ALONE, "sm_90a"), "90a"), "sm_90a"),
        (lambda: fatbin_of(ptx=compiled(ALONE, 100).ptx, architecture="100"), "compute_100"),
    ],
    ids=["machine code", "specific machine code", "PTX"],
)
def test_a_fatbin_for_another_architecture_is_an_architecture_error_that_names_it(
    mini: KernelFamily, mode: str, made: Callable[[], bytes], named: str
) -> None:
    plan = mini.planner(data_type="float").add_binary(made(), "fatbin").plan(arch="sm_90", link_mode=mode)
    with raises(ArchitectureError, "link-architecture-input", named, "sm_90"):
        plan.link()


@pytest.mark.slow
@pytest.mark.parametrize("code", ["sm_80", "compute_80", "lto_80"])
def test_an_archive_links_for_the_architectures_that_it_holds_and_otherwise_names_them(
    mini: KernelFamily, tmp_path: Path, code: str
) -> None:
    data = archive(tmp_path, ALONE, code)
    planner = mini.planner(data_type="float").add_binary(data, "library", "mine.a")
    if code == "sm_80":
        with raises(ArchitectureError, "link-architecture-input", "mine.a", "sm_80", "sm_90"):
            planner.plan(arch="sm_90").link()
    assert planner.plan(arch="sm_80").link().cubin
    if code == "lto_80":
        with raises(LinkError, "link-needs-lto", "mine.a"):
            planner.plan(arch="sm_80", link_mode="ptx").link()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cubin", "fatbin", "library", "ptx"])
def test_what_is_not_ltoir_is_no_part_of_linked_ptx_and_its_functions_are_calls(
    mini: KernelFamily, tmp_path: Path, kind: str
) -> None:
    planner = mini.planner(data_type="float")
    if kind == "ptx":
        planner = planner.add_ptx(compiled(ALONE).ptx)
    else:
        cubin = relocatable_cubin(ALONE)
        make: dict[str, Callable[[], bytes]] = {
            "cubin": lambda: cubin,
            "fatbin": lambda: in_a_fatbin(cubin),
            "library": lambda: archive(tmp_path, ALONE, "sm_90"),
        }
        planner = planner.add_binary(make[kind](), kind)
    plan = planner.plan(arch="sm_90")
    assert plan.link().cubin
    assert plan.calls_left() == ["float mini::op<float>(float)"]
    assert [symbol.name for symbol in parse_ptx(plan.link_ptx()).requires] == [compiled(ALONE).module.provides[0].name]


# --- compiled once ---


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheDir]:
    """An empty user's cache, with nothing compiled yet in this process."""
    monkeypatch.setenv("JITLTO_CACHE_DIR", str(tmp_path / "cache"))
    session.default.reset()
    compile_once.cache_clear()
    yield user_cache()
    monkeypatch.undo()
    session.default.reset()
    compile_once.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that makes this process behave like a new one without a compiler."""

    def forget() -> None:
        def refuse(name: str) -> None:
            raise AssertionError(f"{name} was asked for")

        compile_once.cache_clear()
        monkeypatch.setattr(
            nvrtc.toolkit,
            "bindings",
            lambda name, found=toolkit.bindings: refuse(name) if name == "nvrtc" else found(name),
        )

    return forget


@pytest.mark.slow
def test_a_second_process_compiles_nothing(mini: KernelFamily, kept: CacheDir, no_compiler: Callable[[], None]) -> None:
    first = mini.planner(data_type="float").add_source(OP).plan()
    assert links(first)
    toolkit.header_roots()
    no_compiler()
    again = mini.planner(data_type="float").add_source(OP).plan()
    assert again == first
    assert again.link("sm_100").layer == "link"
    assert inlined(again)


@pytest.mark.slow
def test_a_different_text_name_or_header_is_compiled_separately(mini: KernelFamily, kept: CacheDir) -> None:
    record = mini.record
    changed = replace(record, headers=tuple((name, text + "// more\n") for name, text in record.headers))
    other_options = replace(record, options=(*record.options, "--use_fast_math"))
    sources = [(OP, "user.cu", record), (OP + "\n", "user.cu", record), (OP, "other.cu", record)]
    sources += [(OP, "user.cu", changed), (OP, "user.cu", other_options)]
    identities = {inputs.from_source(*each, kept).identity for each in sources}
    assert len(identities) == len(source_keys(kept)) == len(sources)


@pytest.mark.slow
def test_a_changed_toolkit_header_is_noticed(tmp_path: Path, kept: CacheDir, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "include" / "value.h"
    header.parent.mkdir()
    monkeypatch.setattr(toolkit, "header_roots", lambda: (header.parent,))
    header.with_name("outer.h").write_text("#include <value.h>\n")
    text = b"#include <outer.h>\n__device__ int f() { return VALUE; }\n"

    def value(number: int) -> str:
        header.write_text(f"#define VALUE {number}\n")
        compile_once.cache_clear()
        return compile_once(text, (), BASE, (), kept).ptx

    first = value(1001)
    assert value(1002) != first == value(1001)


def test_an_entry_that_cannot_be_read_is_a_miss(kept: CacheDir) -> None:
    def compiled(text: str) -> str:
        compile_once.cache_clear()
        return compile_once(text.encode(), (), BASE, (), kept).ptx

    one = "__device__ int one() { return 1; }"
    expected = compiled(one)
    (key,) = source_keys(kept)
    whole = json.loads(read_source(kept, key))
    changed = ({"ltoir": "no base64"}, {"ptx": "no PTX"}, {"identity": 1})
    damaged = [json.dumps(whole | change).encode() for change in changed]
    for wrong in (b"[]", b"{}", b"\xff", b'{"key": 1}', b"[" * 100_000, *damaged):
        kept.put(compilation.ENTRIES, key, wrong)
        assert compiled(one) == expected


@pytest.mark.slow
def test_a_name_that_is_no_identifier_is_not_compiled() -> None:
    """Names of a hostile database must not become code."""
    names = ['f(); }\n#error "reached"\nvoid g', "plain", "a b", ""]
    assert inputs.make_stub(names, None).data == inputs.make_stub(["plain"], None).data
