"""The tables of docs/compatibility.md: each cell with the real libraries of CUDA 12.8, 12.9, 13.0 and the newest.

``python -m tests.support.toolkits DIRECTORY`` installs them, and JITLTO_TEST_TOOLKITS names the directory. Cells that
need another driver are tested at the decision; those that ran on a GPU stand in docs/benchmarks/compatibility.json.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jitlto.base.errors import ArchitectureError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import device, nvjitlink
from jitlto.cuda.driver import find_incompatibility
from jitlto.database import FragmentDatabase
from jitlto.record.fragment import Image
from jitlto.runtime.family import KernelFamily
from tests.plan.test_plan import altered
from tests.support import compatibility_cases as cases
from tests.support import toolkits
from tests.support.compatibility_cases import Cell, named
from tests.support.errors import raises

PROBE = "tests.support.compatibility_probe"


def release(words: str) -> str:
    """The release that a row or a column names."""
    return next(name for name in (*toolkits.RELEASES, toolkits.NEWEST) if name in words)


class Trials:
    """Every link of the tables, each release asked once for all of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.versions: dict[str, Version] = {}  # of compilers, by release
        self.python = {name: toolkits.python(name) for name in (*toolkits.RELEASES, toolkits.NEWEST)}
        for name in self.python:
            answer: Any = self._run(name, "build", directory / name)
            self.versions[name] = Version.parse(answer["nvrtc"])
        self._run("12.8", "bare", directory / "12.8" / "bare")
        self._of = cache(self._links)

    def _run(self, name: str, what: str, argument: Path) -> object:
        return toolkits.run(self.python[name], PROBE, what, argument, cache=self.directory / "cache")

    def of(self, cell: Cell) -> dict[str, Any]:
        """What came of a cell: ``link``, and the ``linker``'s version."""
        found = self._try([cell]) if cell in cases.CUBINS.cells else self._of(release(cell.column))
        return found[cell.name]

    def _links(self, linker: str) -> dict[str, dict[str, Any]]:
        tables = (cases.BOTH, cases.LTOIR, cases.ASKED, cases.TARGETS)
        return self._try([cell for table in tables for cell in table.cells if release(cell.column) == linker])

    def _try(self, cells: list[Cell]) -> dict[str, dict[str, Any]]:
        """Try cells of one linker in one process."""
        file = self.directory / f"links-{cells[0].name}.json"
        file.write_text(json.dumps([self._link(cell) for cell in cells]))
        answer: Any = self._run(release(cells[0].column), "link", file)
        version = Version.parse(answer["nvjitlink"])
        links = zip(cells, answer["links"], strict=True)
        return {cell.name: found | {"linker": version} for cell, found in links}

    def _link(self, cell: Cell) -> tuple[str, str, str]:
        """Database, target and mode."""
        if cell in cases.TARGETS.cells:
            target = "device sm_130" if cell.row.startswith("a device") else cell.row.split(",")[0]
            return str(self.directory / release(cell.column) / "both.fragdb"), target, "lto"
        made = self.directory / release(cell.row)
        if cell in cases.CUBINS.cells:
            return str(made / "sass.fragdb"), cell.row.split()[-1], "sass"
        if "caller" in cell.row:
            return str(made / "bare"), "sm_90", "lto"
        name = "ltoir" if cell in cases.LTOIR.cells else "both"
        return str(made / f"{name}.fragdb"), "sm_90", "ptx" if cell in cases.ASKED.cells else "lto"


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """What the releases make of each other's fragments."""
    return Trials(tmp_path_factory.mktemp("compatibility"))


def check_way(cell: Cell, found: dict[str, Any]) -> None:
    """The link came out as the cell says."""
    linked = found["link"]
    if cell.holds == cases.REFUSED:
        assert linked.get("error") in ("VersionError", "ArchitectureError"), linked
        assert not linked["said"], "nothing is announced that does not happen"
    else:
        assert "error" not in linked, linked
    if cell.holds in (cases.LTO, cases.PTX, cases.SASS):
        assert linked["elf"]
        assert linked["inlined"] == (cell.holds == cases.LTO)
        assert linked["mode"] == cell.holds.lower()


def check_refused_or_said(cell: Cell, found: dict[str, Any], compiler: Version) -> None:
    """A refusal names both versions and the remedies; that PTX stands in for LTO-IR is said once."""
    linked, linker = found["link"], found["linker"]
    if cell.holds == cases.REFUSED:
        assert linked["error"] == "VersionError"
        assert f"nvJitLink {linker}" in linked["message"]
        if "caller" not in cell.row:
            assert f"{compiler}" in linked["message"]
    if cell.holds == cases.REFUSED and compiler > linker:
        assert f"install an nvJitLink of at least {compiler}" in linked["message"]
        assert f"or build the family with a compiler no newer than {linker}" in linked["message"]
    across = cell.holds == cases.PTX and cell not in cases.ASKED.cells
    expected = (
        f"LTO-IR of CUDA {compiler} does not link with nvJitLink {linker}: "
        "linking PTX instead, without link-time optimisation"
    )
    assert linked["said"] == ([expected] if across else [])


@pytest.mark.parametrize("cell", **named(cases.BOTH.cells))
def test_fragments_with_ltoir_and_ptx(trials: Trials, cell: Cell) -> None:
    check_way(cell, trials.of(cell))
    check_refused_or_said(cell, trials.of(cell), trials.versions[release(cell.row)])


@pytest.mark.parametrize("cell", **named(cases.LTOIR.cells))
def test_ltoir_alone(trials: Trials, cell: Cell) -> None:
    check_way(cell, trials.of(cell))
    check_refused_or_said(cell, trials.of(cell), trials.versions[release(cell.row)])


@pytest.mark.parametrize("cell", **named(cases.ASKED.cells))
def test_ptx_that_is_asked_for(trials: Trials, cell: Cell) -> None:
    check_way(cell, trials.of(cell))
    check_refused_or_said(cell, trials.of(cell), trials.versions[release(cell.row)])


@pytest.mark.parametrize("cell", **named(cases.CUBINS.cells))
def test_cubins(trials: Trials, cell: Cell) -> None:
    found = trials.of(cell)
    check_way(cell, found)
    check_refused_or_said(cell, found, trials.versions[release(cell.row)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*toolkits.RELEASES, toolkits.NEWEST])
def test_every_release_makes_the_same_bytes_in_another_process(tmp_path: Path, name: str) -> None:
    """NVRTC 12.8 takes no seed, and names internal symbols by the time and the process if all else is a template."""
    source = tmp_path / "source.cu"
    source.write_text(
        "static __device__ __noinline__ int inner(int x) { return x * 3; }\n"
        "template <class T> __device__ T outer(T x) { return inner(x); }\n"
        "template __device__ int outer<int>(int);\n"
    )
    first, second = (toolkits.run(toolkits.python(name), PROBE, "digest", source, cache=tmp_path) for _ in range(2))
    assert first == second
    answer: Any = first
    assert [symbol for symbol in answer["provides"] if "outer" not in symbol] == []


@pytest.mark.parametrize("cell", **named(cases.TARGETS.cells))
def test_targets(trials: Trials, cell: Cell) -> None:
    found = trials.of(cell)
    check_way(cell, found)
    linked = found["link"]
    if cell.holds == cases.REFUSED:
        assert linked["error"] == "ArchitectureError"
        known = "compiled for compute_75" if cell.row == "sm_70" else "does not link for"
        assert known in linked["message"]


# Cells that need another driver, at the decision.


def linker_of(row: str) -> Version:
    """The nvJitLink that made what a row names."""
    return Version.parse(row.split()[-1])


@pytest.mark.parametrize("cell", **named(cases.CODE.cells))
def test_drivers(cell: Cell) -> None:
    cuda = Version.parse(cell.column.split()[-1])
    linker = linker_of(cell.row)
    found = find_incompatibility(cuda, linker)
    assert (found is None) == (cell.holds == cases.LOADS)
    if found:
        assert f"driver for CUDA {cuda}" in found[0]
        assert f"nvJitLink {linker}" in found[0]
        assert f"cuda-compat-{linker.major}-{linker.minor}" in found[1]
        assert f"install a driver for CUDA {linker.major}.0 or newer" in found[1]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What came of the cells on a GPU."""
    if not cases.RECORDED.is_file():
        pytest.skip(f"{cases.RECORDED.name} is not recorded")
    read: dict[str, Any] = json.loads(cases.RECORDED.read_text("utf-8"))
    return read


def of_gpu(table: cases.Table) -> tuple[Cell, ...]:
    return tuple(cell for cell in table.cells if cell.gpu)


@pytest.mark.parametrize("cell", **named(of_gpu(cases.CODE)))
def test_code_came_out_on_a_gpu_as_the_table_says(recorded: dict[str, Any], cell: Cell) -> None:
    assert recorded["cuda"] == cell.column.split()[-1]
    ran = recorded["code"][cell.name]
    assert ran["made_by"] == cell.row
    assert ran["loads"] == (cell.holds == cases.LOADS)
    if ran["loads"]:
        assert ran["right"]
        return
    expected = find_incompatibility(Version.parse(recorded["cuda"]), linker_of(cell.row))
    assert expected
    assert expected[0] in ran["message"]
    assert expected[1] in ran["message"]


@pytest.mark.parametrize("cell", **named(of_gpu(cases.BOTH)))
def test_databases_came_out_on_a_gpu_as_the_table_says(recorded: dict[str, Any], cell: Cell) -> None:
    assert recorded["nvjitlink"] == release(cell.column)
    made = {"newest": max(recorded["databases"], key=Version.parse)}.get(release(cell.row), release(cell.row))
    ran = recorded["databases"][made]
    if cell.holds == cases.REFUSED:
        assert ran["error"] == "VersionError"
        assert f"made by nvrtc {made}" in ran["message"]
        assert f"no newer than {recorded['nvjitlink']}" in ran["message"]
        return
    assert ran["right"]
    assert ran["mode"] == cell.holds.lower()
    assert len(ran["said"]) == (1 if cell.holds == cases.PTX else 0)


# The page.


def test_the_page_shows_these_tables() -> None:
    page = cases.PAGE.read_text("utf-8")
    assert cases.written(page) == page, "python -m tests.support.compatibility_cases writes them"
    shown = re.findall(r"`([A-F]\d+)`[†‡]*(?= \|)", page)
    assert sorted(shown) == sorted(cell.name for table in cases.TABLES for cell in table.cells)


@pytest.mark.parametrize("table", cases.TABLES, ids=lambda table: table.letter)
def test_each_cell_is_a_case_of_the_test_that_the_page_names(table: cases.Table) -> None:
    (mark,) = globals()[table.test].pytestmark
    assert mark.kwargs == named(table.cells)


def test_a_kernel_of_fragments_of_two_majors_links_as_ptx(mini_path: Path, tmp_path: Path) -> None:
    other = Version(nvjitlink.version().major - 1, 0)

    def mixed(image: Image) -> Image:
        return replace(image, version=other) if image.sha256 in operators else image

    with FragmentDatabase(mini_path) as database:
        operators = {i.sha256 for f in database.fragments() if f.key.group == "op" for i in f.images}
    family = altered(mini_path, tmp_path / "mixed.fragdb", mixed)
    assert family.plan(arch="sm_90", data_type="float", op_name="twice").link_mode == "ptx"


def test_a_device_that_came_after_nvjitlink_is_refused_with_the_remedy(
    mini: KernelFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "architecture", lambda: Architecture(130))
    for mode in ("lto", "ptx"):
        with raises(ArchitectureError, "link-architecture-unsupported", "sm_130", hint="newer nvJitLink"):
            mini.plan(data_type="float", op_name="twice", link_mode=mode).link()
