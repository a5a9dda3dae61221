"""Interfaces whose sides are compiled in other ways: they cannot depend on it; the linked PTX is the judge."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jitlto.base.errors import BuildError, FamilyError, PlanError
from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import build
from jitlto.cuda import toolkit
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import FamilyDeclaration, load_family
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import write_family
from tests.support.interface_judge import ask
from tests.support.interface_pairs import Family

KERNEL = "__global__ void kern(float* o) { S s{}; s.b = 7; *o = f(s); }\n"
DEVICE = "__device__ float f(const S& s) { return s.b; }\n"
CHOICE = (
    "#define N 2\n#else\n#define N 1\n#endif\nstruct S { float a[N]; float b; };\n__device__ float f(const S& s);\n"
)
IS_NEW = "__CUDA_ARCH__ >= 900 ? 2 : 1"
STRUCTURE = "{} struct S {{ {} float b; }}; __device__ float f(const S& s);\n".format

needs_nvcc = pytest.mark.skipif(toolkit.find_binary("nvcc") is None, reason="needs nvcc")
new_toolkit = pytest.mark.skipif(toolkit.nvrtc_version().major < 13, reason="the macro had no parentheses")


def family(interface: str, **settings: Mapping[str, object]) -> Family:
    headers = {"f.cuh": f"#pragma once\n{interface}", "one": "#define N 1\n", "cuda_two.cuh": "#define N 2\n"}
    return replace(Family(KERNEL, DEVICE, headers), **settings)


ARCHS = {
    "parentheses": STRUCTURE("", f"float a[({IS_NEW})];"),
    "alignment": STRUCTURE("", "float a; alignas(__CUDA_ARCH__ >= 900 ? 32 : 4)"),
    "function": STRUCTURE(f"constexpr __device__ int n() {{ return {IS_NEW}; }}", "float a[n()];"),
    "toolkit": f"#include <cuda/std/cstdint>\n#if _CCCL_PTX_ARCH() >= 900\n{CHOICE}",
    "macro": STRUCTURE(f"#define N ({IS_NEW})\n", "float a[N];"),
    "body": STRUCTURE("inline __device__ void g() {\n#if __CUDA_ARCH__ >= 900\n#define N 2\n#else\n"
                      "#define N 1\n#endif\n}\n", "float a[N];"),
    "through a macro": STRUCTURE("#define HD __device__ constexpr\n#define INLINE HD inline\n"
                                 f"INLINE int n() {{ return {IS_NEW}; }}", "float a[n()];"),
    "ends of a body": STRUCTURE("inline __device__ void g() {\n#if __CUDA_ARCH__ >= 900\n}\nenum { N = 2 };\n"
                                "#else\n}\nenum { N = 1 };\n#endif\n", "float a[N];"),
    "header": STRUCTURE("#if __CUDA_ARCH__ >= 900\n#include <cuda_two.cuh>\n#else\n#include <one>\n#endif\n",
                        "float a[N];"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, marks=[new_toolkit] * (case == "toolkit")) for case in ARCHS])
def test_an_architecture_that_a_declaration_depends_on_is_the_same_for_all(case: str, tmp_path: Path) -> None:
    wrong, right = ({"archs": {who: "90"}} for who in ("device", "family"))
    assert ask(family(ARCHS[case], **wrong), tmp_path / "wrong").refused == "build-interface-architecture"
    assert ask(family(ARCHS[case], **right), tmp_path / "right").value == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "interface",
    [
        "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700\n#error too old\n#endif\n",
        "#ifdef __CUDA_ARCH__\n#define HD __device__\n#else\n#define HD\n#endif\nHD float other(float x);\n",
    ],
)
def test_what_changes_no_declaration_may_differ(interface: str, tmp_path: Path) -> None:
    interface += STRUCTURE("", "float a;")
    assert ask(family(interface, archs={"device": "90"}), tmp_path).value == 7


def test_that_c_plus_plus_is_compiled_is_the_same_for_all(tmp_path: Path) -> None:
    interface = '#ifdef __cplusplus\nextern "C" {\n#endif\n__device__ float other(float x);\n'
    interface += "#if defined(__cplusplus)\n}\n#endif\n" + STRUCTURE("", "float a;")
    assert ask(family(interface, options={"device": ["--minimal"]}), tmp_path).value == 7


def test_the_word_and_both_sides_are_named(tmp_path: Path) -> None:
    files = family(ARCHS["macro"], archs={"device": "90"}).files("pair")
    names = "f.cuh:2", "__CUDA_ARCH__", "pair/kern", "for 75)", "pair/f", "for 75, 90)"
    with raises(BuildError, "build-interface-architecture", *names):
        build([load_family(write_family(tmp_path, files))], tmp_path / "a.fragdb", jobs=1)


OPTIONS = [(["--minimal"], "__CUDACC_RTC_MINIMAL__"), (["--device-int128"], "__CUDACC_RTC_INT128__")]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "macro"), OPTIONS)
def test_so_is_an_option_that_defines_a_macro_of_the_compiler(options: list[str], macro: str, tmp_path: Path) -> None:
    for side, code in (("device", "build-interface-architecture"), ("family", "")):
        answer = ask(family(f"#ifdef {macro}\n{CHOICE}", options={side: options}), tmp_path / side)
        assert (answer.refused, answer.value) == (code, None if code else 7)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    ("option", "macro"),
    [
        ("--expt-relaxed-constexpr", "__CUDACC_RELAXED_CONSTEXPR__"),
        ("-Xcompiler=-fopenmp", "_OPENMP"),
    ],
)
def test_and_one_of_nvcc(option: str, macro: str, tmp_path: Path) -> None:
    files = family(f"#ifdef {macro}\n{CHOICE}", options={"device": [option]}).files("pair")
    files["family.toml"] = files["family.toml"].replace("[family]", '[family]\ntoolchain = "nvcc"')
    with raises(BuildError, "build-interface-architecture", macro, option):
        build([load_family(write_family(tmp_path, files))], tmp_path / "a.fragdb", jobs=1)


def _link(path: Path, name: str = "pair", source: str = "") -> None:
    """Link a kernel, perhaps with a caller's source; it stores 7.0."""
    with FragmentDatabase(path) as database:
        planner = KernelFamily(name, database).planner()
        plan = (planner.add_source(source) if source else planner).plan(arch="sm_90")
        if plan.link_mode == "lto":  # not where nvcc is newer than nvJitLink
            assert "1088421888" in plan.link_ptx()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    ['archs = ["75", "90"]', pytest.param('toolchain = "nvcc"', marks=needs_nvcc)],
)
def test_callers_sources_mean_what_fragments_mean(settings: str, tmp_path: Path, cache: Cache) -> None:
    condition = "#ifdef __CUDACC_RTC__" if "nvcc" in settings else "#if __CUDA_ARCH__ >= 900"
    right = f"{condition}\n#include <nv/target>\n#else\n#include <cuda_fp16.h>\n#endif\n" + STRUCTURE("", "float a;")
    for case, interface in (("wrong", f"{condition}\n{CHOICE}"), ("right", right)):
        files = family(interface).files("pair")
        files["family.toml"] = files["family.toml"].replace("[family]", f"[family]\n{settings}")
        loaded = load_family(write_family(tmp_path / case, files))
        path = build([loaded], tmp_path / f"{case}.fragdb", jobs=1, cache=cache).path
        if case == "right":
            _link(path, source=DEVICE)
            continue
        _link(path)
        with raises(PlanError, "plan-interface-text", "f.cuh:2", "callers' code"):
            _link(path, source=DEVICE)


def _two(directory: Path, interface: str, user: str = "", used: str = "", **headers: str) -> list[Path]:
    """Write a family with a kernel, and one with a device function that it uses."""
    files = family(interface).files("used")
    parts = files["family.toml"].partition("[entrypoint.kern]")[0].replace("[family]", f"[family]\n{used}")
    toml = f'[family]\nname = "user"\n{user}\n[use]\nused = "../used"\n'
    toml += '[entrypoint.kern]\nmatrix = "m.json"\ntemplate = "k.jinja"\n'
    tree = {f"used/{name}": text for name, text in files.items()} | {"used/family.toml": parts}
    tree |= {"user/family.toml": toml, "user/m.json": "{}", "user/k.jinja": KERNEL}
    write_family(directory, tree | {f"user/{name}": text for name, text in headers.items()})
    return [directory / name / "family.toml" for name in ("used", "user")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "user", "used"),
    [
        (ARCHS["parentheses"], "", 'archs = ["75", "90"]'),
        (f"#ifdef __CUDACC_RTC_MINIMAL__\n{CHOICE}", 'options = ["--minimal"]', ""),
        pytest.param(f"#ifdef __CUDACC_RTC__\n{CHOICE}", 'toolchain = "nvcc"', "", marks=needs_nvcc),
        pytest.param(f"#ifdef __x86_64__\n{CHOICE}", 'toolchain = "nvcc"', "", marks=needs_nvcc),
        pytest.param(f"#ifdef INT_MAX\n{CHOICE}", 'toolchain = "nvcc"', "", marks=needs_nvcc),
        pytest.param(
            f"#if WIDE > 1\n{CHOICE}",
            'toolchain = "nvcc"\noptions = ["-Xcompiler=-O2,-DWIDE=2"]',
            'toolchain = "nvcc"\noptions = ["-Xcompiler=-O2,-DWIDE=1"]',
            marks=needs_nvcc,
        ),
    ],
)
def test_families_that_use_each_other_are_compared(
    interface: str, user: str, used: str, tmp_path: Path, cache: Cache
) -> None:
    def link(name: str, interface: str) -> None:
        loaded = [load_family(path) for path in _two(tmp_path / name, interface, user, used)]
        path = build(loaded, tmp_path / f"{name}.fragdb", jobs=1, cache=cache).path
        _link(path, "user")

    with raises(BuildError, "build-interface-architecture", "f.cuh", "used/f", "user/kern"):
        link("wrong", interface)
    link("right", STRUCTURE("", "float a;"))


@pytest.mark.slow
def test_an_interface_means_the_same_in_cubins_and_in_ltoir(tmp_path: Path, cache: Cache) -> None:
    def made(name: str, settings: str) -> list[FamilyDeclaration]:
        return [load_family(path) for path in _two(tmp_path / name, ARCHS["parentheses"], settings, settings)]

    with raises(BuildError, "build-interface-architecture", "f.cuh", "used/f", "75, 90"):
        build(made("wrong", 'sass = ["90"]'), tmp_path / "wrong.fragdb", jobs=1, cache=cache)
    both = build(made("right", 'sass = ["90"]\narchs = ["75", "90"]'), tmp_path / "right.fragdb", jobs=1, cache=cache)
    with FragmentDatabase(both.path) as opened:
        assert KernelFamily("user", opened).plan(link_mode="sass").link("sm_90").cubin


def test_a_header_that_an_interface_asks_for_is_not_its_users(tmp_path: Path) -> None:
    interface = f'#if __has_include("extra.cuh")\n{CHOICE}'
    loaded = [load_family(path) for path in _two(tmp_path, interface, **{"extra.cuh": "// mine\n"})]
    with raises(FamilyError, "family-use", "f.cuh", "extra.cuh"):
        build(loaded, tmp_path / "a.fragdb", jobs=1)
