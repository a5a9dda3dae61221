"""The check of a database as a library call: its result and its callbacks."""

from pathlib import Path

import pytest

from jitlto.base.errors import DatabaseError
from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.check.check import FamilyCheck, check
from jitlto.compile.compiler import find_toolchain
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import ltoir_links
from jitlto.cuda.toolkit import find_binary
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from jitlto.families.declaration import load_family
from jitlto.record.fragment import ImageKind
from tests.support.errors import raises
from tests.support.families import MINI, tiered, write_family

needs_nvcc = pytest.mark.skipif(find_binary("nvcc") is None, reason="needs nvcc")


def test_kernels_are_planned_and_nothing_is_linked_by_default(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        result = check(database)
        assert (result.digest, result.holds, result.archs) == (database.digest, True, ())
    (family,) = result.families
    assert (family.family, family.fragments, family.kernels, family.completed_by_callers) == ("mini", 6, 4, 0)


def test_kernels_link_from_their_cubins_too(sass_path: Path) -> None:
    with FragmentDatabase(sass_path) as database:
        (family,) = check(database, compare=False, targets=[Architecture(90), Architecture(120)]).families
    assert family.holds
    assert (family.linked, family.cubins) == (4, 4), "no fragment has a cubin for sm_120"


# A function that keeps many values alive, and a kernel that leaves it 64 registers.
GREEDY = """{
  T v[96], s = 0;
  #pragma unroll
  for (int i = 0; i < 96; i++) v[i] = a * (a + i) / (i + 1);
  #pragma unroll
  for (int i = 0; i < 96; i++) s = s * v[i] + v[95 - i];
  return s + ({{expr}});
}"""


def _greedy(directory: Path, toolchain: str, limit: str = "") -> tuple[FamilyCheck, set[str]]:
    """A check of it with cubins, linked for sm_90, and the hashes of its other images."""
    directory.mkdir()
    toml = MINI["family.toml"].replace("[family]", f'[family]\ntoolchain = "{toolchain}"\nsass = ["90"]\n{limit}', 1)
    kernel = MINI["kern.cu.jinja"].replace("__global__", "__global__ __launch_bounds__(1024)", 1)
    op = MINI["op.cu.jinja"].replace("{ return {{expr}}; }", GREEDY)
    files = {"family.toml": toml, "kern.cu.jinja": kernel, "op.cu.jinja": op}
    files |= {each: MINI[each].replace(', "double"', "") for each in ("kern.json", "op.json")}
    path = write_family(directory / "family", MINI | files)
    with FragmentDatabase(build([load_family(path)], directory / "mini.fragdb", jobs=1).path) as opened:
        images = (image for fragment in opened.fragments() for image in fragment.images)
        others = {image.sha256 for image in images if image.kind is not ImageKind.SASS}
        return check(opened, compare=False, targets=[Architecture(90)]).families[0], others


@pytest.mark.slow
def test_a_kernel_of_fewer_registers_than_a_functions_cubin_is_a_note_that_proposes_the_limit(tmp_path: Path) -> None:
    greedy, others = _greedy(tmp_path / "greedy", "nvrtc")
    assert greedy.holds
    assert {note.code for note in greedy.notes} == {"link-tier"}
    assert "sass_registers = 64" in str(greedy.notes[0].hint)
    modest, same = _greedy(tmp_path / "modest", "nvrtc", "sass_registers = 64")
    assert (modest.holds, list(modest.notes)) == (True, [])
    assert same == others, "the limit is for cubins alone"


@pytest.mark.slow
def test_a_kernel_with_two_tiers_whose_code_refers_to_variables_is_a_note(tmp_path: Path) -> None:
    op = MINI["op.cu.jinja"].replace("template <", "__device__ int counter;\ntemplate <", 1)
    op = op.replace("{{expr}}", "{{expr}} + atomicAdd(&counter, 1)")
    path = write_family(tmp_path, tiered(MINI | {"op.cu.jinja": op}))
    with FragmentDatabase(build([load_family(path)], tmp_path / "mini.fragdb", jobs=1).path) as opened:
        family = check(opened, compare=False, targets=[Architecture(90)]).families[0]
    assert (family.holds, {note.code for note in family.notes}) == (True, {"link-tier"})
    assert "mini::counter" in family.notes[0].message


@pytest.mark.slow
def test_a_kernel_whose_cubins_are_not_for_its_ltoir_is_a_note(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('"mini"\n', '"mini"\narchs = ["75", "86"]\n', 1)
    path = write_family(tmp_path, tiered(MINI | {"family.toml": toml}, sass='"80"'))
    with FragmentDatabase(build([load_family(path)], tmp_path / "mini.fragdb", jobs=1).path) as opened:
        family = check(opened, compare=False, targets=[Architecture(80), Architecture(86)]).families[0]
    assert (family.holds, {note.code for note in family.notes}) == (True, {"link-tier"})
    assert all("sm_86" in note.message for note in family.notes)


@pytest.mark.slow
@needs_nvcc
def test_nvcc_takes_the_limit_of_cubins_too(tmp_path: Path) -> None:
    if not ltoir_links(find_toolchain("nvcc").version, nvjitlink.version()):
        pytest.skip("this nvJitLink links no LTO-IR of this nvcc")
    modest, _ = _greedy(tmp_path / "modest", "nvcc", "sass_registers = 64")
    assert (modest.holds, list(modest.notes)) == (True, [])


def test_a_database_without_families_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "empty.fragdb", [], [], {})
    with FragmentDatabase(tmp_path / "empty.fragdb") as database, raises(DatabaseError, "database-empty"):
        check(database)
