"""Plans: what decides their digest, what is checked before a link, and what the link options do to the code."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base.errors import (
    ArchitectureError,
    LinkError,
    NoDeviceError,
    PlanError,
    VersionError,
)
from jitlto.base.log import LinkWarning
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import device, libraries, nvjitlink
from jitlto.cuda.compatibility import newest_ptx_isa
from jitlto.cuda.elf import read_sections
from jitlto.cuda.ptx import parse_ptx
from jitlto.cuda.toolkit import find_binary
from jitlto.database import FragmentDatabase, writer
from jitlto.plan.plan import Plan
from jitlto.record.fragment import Image, ImageKind
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.errors import raises
from tests.support.families import MINI
from tests.support.process import output_of

TWICE = {"data_type": "float", "op_name": "twice"}
DIVIDE = """
namespace mini {
template <> __device__ float op<float>(float a) { return sqrtf(a) / (a + 3.0f) * 5.0f + a; }
}
"""
CALLED = b"_ZN4mini2opIfEET_S1_"  # stands in a cubin where it was not inlined
ALTERATIONS: dict[str, dict[str, object]] = {
    "another value": {"op_name": "square"},
    "another kernel": {"data_type": "double"},
    "another architecture": {"arch": "sm_80"},
    "an architecture's suffix": {"arch": "sm_90a"},
    "link mode": {"link_mode": "ptx"},
    "fast_math": {"link_options": {"fast_math": True}},
    "ftz": {"link_options": {"ftz": True}},
    "prec_div": {"link_options": {"prec_div": False}},
    "fma": {"link_options": {"fma": False}},
    "max_registers": {"link_options": {"max_registers": 32}},
    "optimization": {"link_options": {"optimization": 0}},
    "split_compile": {"link_options": {"split_compile": 2}},
    "ptxas": {"link_options": {"ptxas": ["-v"]}},
}


def altered(source: Path, target: Path, change: Callable[[Image], Image | None]) -> KernelFamily:
    """The family ``mini`` with the record of each image changed, or left out where ``change`` says None."""
    with FragmentDatabase(source) as old:
        fragments, blobs = [], {}
        for fragment in old.fragments():
            images = tuple(new for image in fragment.images if (new := change(image)))
            fragments.append(replace(fragment, images=images))
            blobs.update({image.sha256: old.read(image) for image in images})
        writer.write(target, old.families.values(), fragments, blobs)
    return KernelFamily("mini", FragmentDatabase(target))


# --- what a plan says ---


def test_a_plan_names_its_fragments_in_link_order(plan: Plan) -> None:
    assert [str(f.key) for f in plan.fragments] == [
        "mini/kern[data_type=float]",
        "mini/op[data_type=float,op_name=twice]",
    ]
    assert plan.entry is plan.fragments[0]
    assert plan.configuration == TWICE
    assert repr(plan) == "<Plan mini/kern(data_type=float, op_name=twice) for sm_90>"


def test_a_plan_as_a_dictionary_holds_plain_values_that_agree_with_it(plan: Plan) -> None:
    described = plan.as_dict()
    assert described["digest"] == plan.digest
    assert described["arch"] == "sm_90"
    assert described["signature"] == ["float* x", "unsigned int n"]
    assert described["entry"] == "void mini::kern<float>(float*, unsigned int)"
    assert described["nvjitlink"] == str(nvjitlink.version())


def test_a_plan_without_architecture_is_for_the_current_device_and_needs_one(mini: KernelFamily) -> None:
    own = mini.plan(**TWICE)
    try:
        expected = device.architecture()
    except NoDeviceError:
        with pytest.raises(NoDeviceError):
            own.link()
        with pytest.raises(NoDeviceError):
            _ = own.digest
    else:
        assert own.target.number == expected.number
    assert own.link("sm_80").architecture == Architecture(80)


# --- the digest ---


def test_the_digest_changes_with_each_alteration(
    mini: KernelFamily, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [mini.plan(**{"arch": "sm_90", **TWICE, **new}) for new in ALTERATIONS.values()]  # type: ignore[arg-type]
    digests = {plan.digest, *(p.digest for p in plans)}
    monkeypatch.setattr(nvjitlink, "version", lambda: Version(99, 0))
    assert len(digests | {mini.plan(arch="sm_90", **TWICE).digest}) == len(ALTERATIONS) + 2


def test_the_digest_does_not_change_with_the_spelling_of_values_options_and_architecture(
    mini: KernelFamily, plan: Plan
) -> None:
    assert mini.plan(arch="90", op_name="twice", data_type="float32").digest == plan.digest
    assert mini.plan(arch=Architecture(90), **TWICE).digest == plan.digest
    assert mini.plan(arch="compute_90", link_options={"fast_math": False, "ftz": None}, **TWICE).digest == plan.digest
    one = {"fast_math": True, "max_registers": 32}
    other = dict(reversed(one.items()))
    assert (
        mini.plan(arch="sm_90", link_options=one, **TWICE).digest
        == mini.plan(arch="sm_90", link_options=other, **TWICE).digest
    )


@pytest.mark.slow
def test_the_digest_does_not_change_with_process_directory_or_place_of_the_database(
    mini_path: Path, plan: Plan, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere.fragdb"
    moved.write_bytes(mini_path.read_bytes())
    code = (
        "import sys, jitlto\n"
        "plan = jitlto.load('mini', sys.argv[1]).plan(op_name='twice', data_type='float', arch='sm_90')\n"
        "print(plan.digest)"
    )
    assert output_of(code, moved, cwd=tmp_path, PYTHONHASHSEED="7").strip() == plan.digest


@pytest.mark.slow
def test_equal_digests_mean_equal_cubins(mini: KernelFamily, mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as opened:
        for mode, (data_type, op_name) in product(("lto", "ptx"), product(("float", "double"), ("twice", "square"))):
            arguments = {"data_type": data_type, "op_name": op_name}
            one = mini.plan(arch="sm_90", link_mode=mode, **arguments)
            other = KernelFamily("mini", opened).plan(arch="sm_90", link_mode=mode, **arguments)
            assert one.digest == other.digest
            assert one.link().cubin == other.link().cubin


# --- linking ---


def test_the_linked_ptx_has_no_call(plan: Plan) -> None:
    text = plan.link_ptx()
    assert re.search(r"\bcall\b", text) is None
    assert parse_ptx(text).requires == ()
    assert set(parse_ptx(text).declarations) == {plan.entry.entry}
    assert plan.calls_left() == []


def test_a_link_without_lto_makes_no_ptx(plan: Plan) -> None:
    with raises(LinkError, "link-no-ptx"):
        replace(plan, mode="ptx").link_ptx()


def test_a_target_below_the_fragments_is_refused_before_linking(plan: Plan) -> None:
    for mode in ("lto", "ptx"):
        with raises(ArchitectureError, None, "mini/kern[data_type=float]", "compute_75", "sm_70"):
            replace(plan, mode=mode).link("sm_70")


@pytest.mark.parametrize("arch", ["sm_130", "sm_999", "sm_80a"])
def test_a_target_that_nvjitlink_does_not_know_is_an_architecture_error(plan: Plan, arch: str) -> None:
    with raises(ArchitectureError, "link-architecture-unsupported", arch):
        plan.link(arch)


def test_unknown_link_modes_and_options_are_plan_errors(mini: KernelFamily) -> None:
    with raises(PlanError, "plan-link-mode", "'cubin'"):
        mini.plan(arch="sm_90", link_mode="cubin", **TWICE)
    with raises(PlanError, "plan-invalid-link", "fast_maths", hint="did you mean 'fast_math'"):
        mini.plan(arch="sm_90", link_options={"fast_maths": True}, **TWICE)
    with raises(PlanError, "plan-invalid-link", "debug"):
        mini.plan(arch="sm_90", link_options={"debug": True}, **TWICE)


# --- options reach the link ---


def linked_ptx(mini: KernelFamily, **options: object) -> str:
    plan = mini.planner(data_type="float").add_source(DIVIDE).plan(arch="sm_90", link_options=options)
    return plan.link_ptx()


@pytest.mark.slow
def test_each_part_of_fast_math_reaches_the_code(mini: KernelFamily) -> None:
    precise, fast = linked_ptx(mini), linked_ptx(mini, fast_math=True)
    assert ".ftz" not in precise
    assert "div.rn.f32" in precise
    assert "fma.rn.f32" in precise
    assert re.search(r"div\.(full|approx)\.ftz\.f32", fast)
    assert "div.rn.ftz.f32" in linked_ptx(mini, fast_math=True, prec_div=True)
    assert "add.ftz.f32" in linked_ptx(mini, ftz=True)
    assert "fma.rn.f32" not in linked_ptx(mini, fma=False)


def test_what_the_compiler_has_decided_is_refused_at_the_link_not_ignored(mini: KernelFamily) -> None:
    """NVRTC picks the square root, PTX holds its arithmetic already, and line numbers are made at the compile."""
    configuration = {"data_type": "float", "op_name": "twice"}
    planner = mini.planner(**configuration)
    for options, mode in [
        ({"prec_sqrt": False}, "lto"),
        ({"lineinfo": True}, "lto"),
        ({"fast_math": True}, "ptx"),
        ({"fma": False}, "ptx"),
    ]:
        plan = planner.plan(arch="sm_90", link_mode=mode, link_options=options)
        with raises(LinkError, "link-option-late", hint="[link]"):
            plan.link()
    # What says no more than the default does, or belongs to the link, is taken.
    for options, mode in [({"prec_sqrt": True}, "lto"), ({"fma": True, "max_registers": 32}, "ptx")]:
        assert planner.plan(arch="sm_90", link_mode=mode, link_options=options).link().cubin


def code_size(cubin: bytes) -> int:
    return sum(len(s.data) for s in read_sections(cubin) if s.name.startswith(".text"))


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
def test_arithmetic_declared_by_the_family_reaches_the_code_in_both_link_modes(
    build_family: BuildFamily, link_mode: str
) -> None:
    files = dict(MINI)
    files["family.toml"] += "\n[link]\nfast_math = true\nlineinfo = true\n"
    files["kern.json"] = '{"data_type": ["float"]}'
    files["op.json"] = '{"data_type": ["float"], "op_name": ["root"], "expr": ["sqrtf(a) / (a + 3.0f)"]}'
    report = build_family(files)
    family = KernelFamily("mini", FragmentDatabase(report.path))
    plan = family.plan(data_type="float", arch="sm_90", link_mode=link_mode)
    if link_mode == "lto":
        text = plan.link_ptx()
        assert "sqrt.approx.ftz.f32" in text
        assert "div.rn" not in text
        assert ".loc" in text
    exact = MINI | {name: files[name] for name in ("kern.json", "op.json")}
    other = KernelFamily("mini", FragmentDatabase(build_family(exact, "exact").path))
    # An exact division and root are longer by a loop each.
    exact_code = other.plan(data_type="float", arch="sm_90", link_mode=link_mode).link().cubin
    assert code_size(plan.link().cubin) < code_size(exact_code)
    assert b".debug_line" in plan.link().cubin


CALLS = """
template <> __device__ float mini::op<float>(float a) { return sinf(a) + logf(a) + a / 3.0f; }
"""


@pytest.mark.slow
@pytest.mark.parametrize(("toolchain", "fast"), [("nvrtc", False), ("nvrtc", True), ("nvcc", True)])
def test_fast_math_of_a_family_has_the_compilers_part_and_the_links(
    build_family: BuildFamily, toolchain: str, fast: bool
) -> None:
    if toolchain == "nvcc" and find_binary("nvcc") is None:
        pytest.skip("nvcc is not installed")
    files = dict(MINI)
    files["family.toml"] = files["family.toml"].replace('"mini"', f'"mini"\ntoolchain = "{toolchain}"', 1)
    files["family.toml"] += f"\n[link]\nfast_math = {str(fast).lower()}\n"
    files["kern.json"] = '{"data_type": ["float"]}'
    files["op.json"] = '{"data_type": ["float"], "op_name": ["calls"], "expr": ["sinf(a) + logf(a) + a / 3.0f"]}'
    family = KernelFamily("mini", FragmentDatabase(build_family(files).path))
    own, callers = (family.planner(data_type="float", **given) for given in ({"op_name": "calls"}, {}))
    if own.plan(arch="sm_90").link_mode == "ptx":
        pytest.skip("nvJitLink is of another CUDA major than nvcc")
    for planner in (own, callers.add_source(CALLS)):
        assert _approximated(planner.plan(arch="sm_90").link_ptx()) == ({"sin", "lg2", "ftz"} if fast else set())
    if fast:
        with raises(LinkError, "link-option-late"):
            family.plan(data_type="float", arch="sm_90", link_options={"fast_math": False}).link()


def _approximated(ptx: str) -> set[str]:
    found = {name for name in ("sin", "lg2") if f"{name}.approx.ftz.f32" in ptx}
    return found | ({"ftz"} if "add.ftz.f32" in ptx or "fma.rn.ftz.f32" in ptx else set())


@pytest.mark.slow
def test_a_callers_source_is_compiled_with_the_options_of_its_plan(mini: KernelFamily) -> None:
    planner = mini.planner(data_type="float").add_source(CALLS)
    precise, fast = planner.plan(arch="sm_90"), planner.plan(arch="sm_90", link_options={"fast_math": True})
    assert _approximated(precise.link_ptx()) == set()
    assert _approximated(fast.link_ptx()) == {"sin", "lg2", "ftz"}
    assert fast.supplied[0].identity != precise.supplied[0].identity
    assert planner.plan(arch="sm_90", link_options={"max_registers": 32}).supplied == precise.supplied


@pytest.mark.slow
def test_the_register_limit_reaches_the_code(mini: KernelFamily) -> None:
    values = "".join(f"float v{n} = x * {n}.5f + __sinf(x + {n});" for n in range(40))
    summed = " + ".join(f"v{n} * v{(n * 7 + 3) % 40}" for n in range(40))
    text = f"template <> __device__ float mini::op<float>(float x) {{ {values} return {summed}; }}"

    def registers(limit: int | None) -> int:
        options = {"max_registers": limit, "ptxas": ["-v"]}
        plan = mini.planner(data_type="float").add_source(text).plan(arch="sm_90", link_options=options)
        used = re.search(r"Used (\d+) registers", plan.link().log)
        assert used is not None
        return int(used[1])

    assert registers(24) <= 24 < registers(None)


# --- versions ---


def test_ltoir_of_a_newer_compiler_of_the_same_major_is_a_version_error_that_names_both(
    mini_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker = nvjitlink.version()
    newer = Version(linker.major, linker.minor + 1)
    family = altered(mini_path, tmp_path / "newer.fragdb", lambda image: replace(image, version=newer))
    names = ("mini/kern[data_type=float]", f"nvrtc {newer}", f"nvJitLink {linker}")
    with monkeypatch.context() as patched:
        loaded = libraries.Loaded("/opt/old/linker.so", True)
        patched.setattr(libraries, "load", lambda _: loaded)
        with raises(VersionError, hint="/opt/old/linker.so"):
            family.plan(arch="sm_90", **TWICE).link()
    with raises(VersionError, None, *names, hint=f"at least {newer}"):
        family.plan(arch="sm_90", **TWICE).link()
    # The PTX images are not concerned: they are read by their ISA version.
    assert family.plan(arch="sm_90", link_mode="ptx", **TWICE).link().cubin[:4] == b"\x7fELF"


def test_ltoir_of_an_older_compiler_of_the_same_major_links(mini_path: Path, tmp_path: Path) -> None:
    older = Version(nvjitlink.version().major, 0)
    family = altered(mini_path, tmp_path / "older.fragdb", lambda image: replace(image, version=older))
    plan = family.plan(arch="sm_90", **TWICE)
    assert plan.link_mode == "lto"
    assert plan.link().cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("difference", [-1, 1])
def test_across_majors_ptx_is_linked_and_that_is_said_once(
    mini_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, difference: int
) -> None:
    linker = nvjitlink.version()
    # No other test uses this minor: what was said once is not said again in one process.
    foreign = Version(linker.major + difference, 40 + difference)
    family = altered(mini_path, tmp_path / "foreign.fragdb", lambda image: replace(image, version=foreign))
    own = family.plan(arch="sm_90", **TWICE)
    with caplog.at_level(logging.WARNING, "jitlto"):
        linked = own.link()
        family.plan(arch="sm_80", **TWICE).link()
    assert own.link_mode == "ptx"
    assert {image.kind for image in own.images} == {ImageKind.PTX}
    assert linked.cubin[:4] == b"\x7fELF"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"CUDA {foreign}" in said[0]
    assert f"nvJitLink {linker}" in said[0]
    assert "without link-time optimisation" in said[0]


def test_across_majors_without_ptx_images_is_a_version_error_with_both_versions(
    mini_path: Path, tmp_path: Path
) -> None:
    linker = nvjitlink.version()
    foreign = Version(linker.major + 1, 0)
    family = altered(
        mini_path,
        tmp_path / "no_ptx.fragdb",
        lambda image: replace(image, version=foreign) if image.kind is ImageKind.LTOIR else None,
    )
    with raises(VersionError, "link-version-no-image", "mini/kern[data_type=float]", str(linker), str(foreign)):
        family.plan(arch="sm_90", **TWICE).link()


def test_without_ltoir_images_an_lto_link_is_a_version_error_and_a_ptx_link_works(
    mini_path: Path, tmp_path: Path
) -> None:
    only_ptx = altered(mini_path, tmp_path / "ptx.fragdb", lambda i: i if i.kind is ImageKind.PTX else None)
    with raises(VersionError, "link-version-no-image", "ltoir"):
        only_ptx.plan(arch="sm_90", **TWICE).link()
    assert only_ptx.plan(arch="sm_90", link_mode="ptx", **TWICE).link().cubin[:4] == b"\x7fELF"


def test_cubins_link_as_they_are_with_calls_between_them(mini: KernelFamily, sass_path: Path) -> None:
    with FragmentDatabase(sass_path) as opened:
        family = KernelFamily("mini", opened)
        plan = family.plan(arch="sm_89", link_mode="sass", **TWICE)
        assert {image.code for image in plan.images} == {"sm_80"}
        assert CALLED in plan.link().cubin
        assert plan.link(arch="sm_90").cubin != plan.link().cubin
        assert CALLED not in family.plan(arch="sm_89", **TWICE).link().cubin
        with raises(ArchitectureError, None, "sm_80, sm_90", "sm_100", hint="sass"):
            plan.link("sm_100")
        for option in ({"fast_math": True}, {"max_registers": 32}, {"optimization": 0}):
            with raises(LinkError, "link-option-late", *option):
                family.plan(arch="sm_90", link_mode="sass", link_options=option, **TWICE).link()
        user = family.planner(data_type="float").add_source(DIVIDE)
        assert user.plan(arch="sm_90", link_mode="sass").link().cubin
    with raises(VersionError, "link-version-no-image", "no sass image"):
        mini.plan(arch="sm_90", link_mode="sass", **TWICE).link()


def test_cubins_newer_than_the_linker_are_a_version_error(sass_path: Path, tmp_path: Path) -> None:
    newer = Version(nvjitlink.version().major, nvjitlink.version().minor + 1)
    family = altered(sass_path, tmp_path / "newer.fragdb", lambda i: replace(i, version=newer))
    with raises(VersionError, "link-version", "cubins", f"{newer}", hint=f"at least {newer}"):
        family.plan(arch="sm_90", link_mode="sass", **TWICE).link()


def test_ptx_newer_than_the_linker_reads_is_a_version_error(mini_path: Path, tmp_path: Path) -> None:
    linker = nvjitlink.version()
    isa = Version(newest_ptx_isa(linker).major, newest_ptx_isa(linker).minor + 1)
    family = altered(
        mini_path, tmp_path / "isa.fragdb", lambda i: replace(i, ptx_isa=isa) if i.kind is ImageKind.PTX else i
    )
    with raises(VersionError, None, f"PTX {isa}", f"nvJitLink {linker}"):
        family.plan(arch="sm_90", link_mode="ptx", **TWICE).link()


def test_an_image_for_one_architecture_only_does_not_link_for_another(mini_path: Path, tmp_path: Path) -> None:
    special = Architecture(90, "a")
    family = altered(mini_path, tmp_path / "special.fragdb", lambda i: replace(i, architecture=special))
    plan = family.plan(arch="sm_90a", **TWICE)
    assert {image.architecture for image in plan.images} == {special}
    with raises(ArchitectureError, None, "compute_90a", "sm_100"):
        _ = plan.for_arch("sm_100").images


# --- threads ---


@pytest.mark.slow
def test_different_plans_link_at_the_same_time(mini: KernelFamily) -> None:
    plans = [
        mini.plan(arch=arch, link_mode=mode, data_type=data_type, op_name=op_name)
        for arch, mode, data_type, op_name in product(
            ("sm_80", "sm_90"), ("lto", "ptx"), ("float", "double"), ("twice", "square")
        )
    ]
    alone = [p.link(use_cache=False).cubin for p in plans]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda p: p.link(use_cache=False).cubin, plans))
    assert together == alone


# --- what the linker warns of ---

RECURSIVE = """
__device__ __noinline__ float down(float a, int n) { return n ? down(a, n - 1) * a : a; }
template <> __device__ float mini::op<float>(float a) { return down(a, int(a)); }
"""


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_warning_of_the_linker_is_one_of_python_once_for_each_kernel(
    mini_path: Path, empty_cache: Path, use_cache: bool
) -> None:
    for _ in range(2):  # linked, or found by the next process
        with FragmentDatabase(mini_path) as database:
            family = KernelFamily("mini", database, session.Session())
            plans = [family.plan(arch=f"sm_{n}", link_options={"max_registers": 3}, **TWICE) for n in (80, 90)]
            with pytest.warns(LinkWarning) as caught:
                for plan in (*plans, *plans):
                    plan.link(use_cache=use_cache)
        assert [warning.filename for warning in caught] == [__file__] * 2
        found = [warning.message for warning in caught]
        assert all(isinstance(each, LinkWarning) and each.text.startswith("ptxas: ") for each in found)
        assert [str(each).partition(": ")[0].rpartition(" ")[2] for each in found] == ["sm_80", "sm_90"]


def test_a_warning_names_functions_as_the_source_does(mini: KernelFamily) -> None:
    plan = mini.planner(data_type="float").add_source(RECURSIVE).plan(arch="sm_90", link_mode="ptx")
    with pytest.warns(LinkWarning, match=r"mini::kern<float>"):
        plan.link(use_cache=False)
