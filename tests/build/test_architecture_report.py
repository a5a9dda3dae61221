"""A build says which groups would have other code for later architectures, and what is gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from jitlto.base.errors import ToolchainError
from jitlto.build import architecture_report
from jitlto.build.architecture_notes import ArchitectureReport
from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import BuildReport, build
from jitlto.cli import cli
from jitlto.compile.architectures import DOES_NOT_COMPILE, RENAMES
from jitlto.compile.compiler import find_toolchain
from jitlto.cuda import nvjitlink, toolkit
from jitlto.families.declaration import load_family
from jitlto.record.fragment import ImageKind
from tests.support.families import CONVERT, MINI, write_family

FOR_75 = CONVERT | {"family.toml": CONVERT["family.toml"].replace('"auto"', '["75"]')}


def made(directory: Path, files: dict[str, str], cache: Cache | None) -> BuildReport:
    family = load_family(write_family(directory, files))
    return build([family], directory / "made.fragdb", jobs=1, cache=cache, compare_archs=True)


def test_a_group_whose_code_differs_is_named_with_instructions(tmp_path: Path, cache: Cache) -> None:
    (note,) = made(tmp_path, FOR_75, cache).architectures.notes
    assert note.group == "convert/store"
    assert note.example == "convert/store[from_type=__half,to_type=__nv_fp8_e4m3]"
    assert all(gain.after < gain.before for gain in note.gains)
    assert (note.compared, note.of) == (1, 4)
    assert note.group in str(note)
    assert "auto" in str(note)


@pytest.mark.slow
def test_with_time_enough_values_and_architectures_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architecture_report, "_PART", 3)
    report = made(tmp_path, FOR_75, None)
    (note,) = report.architectures.notes
    assert note.where == {"to_type": ("__nv_bfloat16", "__nv_fp8_e4m3")}
    assert [gain.architecture for gain in note.gains] in (["80"], ["89"])
    assert note.compared == 3
    assert missing(report) == {}


@pytest.mark.slow
def test_a_group_of_which_no_fragment_is_in_the_sample_is_named(tmp_path: Path, cache: Cache) -> None:
    assert list(missing(made(tmp_path, FOR_75, cache)).values()) == [("convert/kern",)]


@pytest.mark.slow
def test_a_build_with_nothing_to_compile_says_it_again(tmp_path: Path, cache: Cache) -> None:
    first = made(tmp_path, FOR_75, cache)
    again = made(tmp_path, FOR_75, cache)
    assert again.compiled == 0
    assert again.architectures == first.architectures != ArchitectureReport()


@pytest.mark.slow
def test_a_family_that_ships_such_code_or_has_none_is_not_named(tmp_path: Path, cache: Cache) -> None:
    assert made(tmp_path, CONVERT, cache).architectures == ArchitectureReport()
    assert made(tmp_path / "mini", MINI, cache).architectures == ArchitectureReport()
    declared = FOR_75 | {"family.toml": with_archs('["75", "80", "89"]')}
    assert made(tmp_path / "80", declared, cache).architectures.notes == ()


def with_archs(archs: str) -> str:
    return CONVERT["family.toml"].replace('"auto"', archs)


@pytest.mark.slow
def test_comparing_does_not_change_the_database(tmp_path: Path, cache: Cache) -> None:
    compared = made(tmp_path, FOR_75, cache).path.read_bytes()
    family = load_family(tmp_path / "family.toml")
    assert build([family], tmp_path / "plain.fragdb", jobs=1, cache=cache).path.read_bytes() == compared


@pytest.mark.slow
def test_the_command_prints_it_unless_told_not_to(tmp_path: Path) -> None:
    path = write_family(tmp_path, FOR_75)
    command = ["build", str(path), "-o", str(tmp_path / "made.fragdb"), "--json", "-j", "1"]
    told = CliRunner().invoke(cli, command)
    assert "convert/store" in told.stderr
    (note,) = json.loads(told.stdout)["architectures"]
    assert note["group"] == "convert/store"
    silent = CliRunner().invoke(cli, [*command, "--no-compare-archs"])
    assert silent.stderr == ""
    assert json.loads(silent.stdout)["architectures"] == []


NUMBERED = """
[family]
name = "numbered"
{settings}
[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["count"]
"""
CUB = """#include <cub/block/block_reduce.cuh>
template <typename T> __global__ void kern(float* x, T* storage) {{ "{" }}
  T* own = storage + threadIdx.x;
#if __CUDA_ARCH__ >= 900
  *x += {{count}};
#endif
  cub::BlockReduce<float, 32>(*own).Sum(*x);
}
template __global__ void kern(float*, cub::BlockReduce<float, 32>::TempStorage*);
"""


def numbered(source: str, settings: str = 'archs = ["75"]', counts: str = '["1"]') -> dict[str, str]:
    """A family of one kernel."""
    return {
        "family.toml": NUMBERED.format(settings=settings),
        "kern.json": f'{{"count": {counts}}}',
        "kern.cu.jinja": source,
    }


def missing(report: BuildReport) -> dict[str, tuple[str, ...]]:
    return {each.reason: each.groups for each in report.architectures.not_compared}


def kernel(body: str) -> str:
    return f'extern "C" __global__ void kern(float* x) {{{{ "{{" }}}}\n{body}\n*x += {{{{count}}}};\n}}\n'


LATER = "#if __CUDA_ARCH__ >= 900\n*x = sinf(*x);\n#endif"


@pytest.mark.slow
def test_kernels_whose_names_contain_the_architecture_are_compared(tmp_path: Path, cache: Cache) -> None:
    (note,) = made(tmp_path, numbered(CUB), cache).architectures.notes
    assert note.is_renamed
    assert note.gains
    shipped = made(tmp_path / "auto", numbered(CUB, 'archs = "auto"'), cache)
    assert missing(shipped) == {RENAMES: ("numbered/kern",)}
    assert [len(list(fragment.images_of(ImageKind.LTOIR))) for fragment in shipped.fragments] == [1]


@pytest.mark.slow
def test_a_source_that_compiles_for_no_later_architecture_is_named(tmp_path: Path) -> None:
    source = kernel("#if __CUDA_ARCH__ > 750\n#error not here\n#endif")
    report = made(tmp_path, numbered(source), None)
    assert missing(report) == {DOES_NOT_COMPILE: ("numbered/kern",)}
    assert report.architectures.notes == ()


@pytest.mark.slow
def test_the_latest_architecture_that_a_source_compiles_for_is_compared(tmp_path: Path, cache: Cache) -> None:
    source = kernel(LATER + "\n#if __CUDA_ARCH__ >= 1000\n#error not here\n#endif")
    report = made(tmp_path, numbered(source), cache)
    (note,) = report.architectures.notes
    assert [gain.architecture for gain in note.gains] == ["90"]
    assert missing(report) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "is_named"), [('archs = ["75"]', True), ('archs = "auto"', True), ('archs = ["75", "90a"]', False)]
)
def test_features_of_one_architecture_that_no_image_has_are_named(
    tmp_path: Path, settings: str, is_named: bool
) -> None:
    source = kernel("#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n*x = 2;\n#endif")
    reasons = missing(made(tmp_path, numbered(source, settings), None))
    assert [groups for reason, groups in reasons.items() if "compute_90a" in reason] == [("numbered/kern",)] * is_named


@pytest.mark.slow
def test_without_nvjitlink_nothing_is_compared_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> NoReturn:
        raise ToolchainError("nvJitLink is not installed", code="toolchain-missing")

    monkeypatch.setattr("jitlto.build.architecture_report.nvjitlink.version", find)
    assert list(missing(made(tmp_path, numbered(kernel(LATER)), None)).values()) == [("numbered/kern",)]


@pytest.mark.slow
def test_what_nvcc_compiles_is_compared_if_what_it_read_tests_the_architecture(tmp_path: Path, cache: Cache) -> None:
    if toolkit.find_binary("nvcc") is None:
        pytest.skip("nvcc is not installed")
    if find_toolchain("nvcc").version > nvjitlink.version():
        pytest.skip("nvcc is newer than nvJitLink, which does not read its LTO-IR")
    settings = 'archs = ["75"]\ntoolchain = "nvcc"'
    (note,) = made(tmp_path, numbered(kernel(LATER), settings), cache).architectures.notes
    assert note.group == "numbered/kern"
    untested = made(tmp_path / "untested", numbered(kernel(""), settings), cache)
    assert untested.architectures == ArchitectureReport()
    automatic = made(tmp_path / "auto", numbered(kernel(LATER), 'archs = "auto"\ntoolchain = "nvcc"'), cache)
    images = [str(image.architecture) for image in automatic.fragments[0].images_of(ImageKind.LTOIR)]
    assert images == ["75", "90"]
