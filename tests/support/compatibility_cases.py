"""The tables of docs/compatibility.md, cell by cell: what the tests hold is what the page shows.

``python -m tests.support.compatibility_cases`` writes them into the page.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests.support.toolkits import NEWEST, RELEASES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
#: What tests/support/compatibility_gpu.py wrote.
RECORDED = PAGE.parent / "benchmarks" / "compatibility.json"
LTO, PTX, SASS, REFUSED = "LTO", "PTX", "SASS", "refused"
LOADS = "loads"


@dataclass(frozen=True)
class Cell:
    """One cell: its name, where it stands, what holds there; whether it is but decided, and whether it ran on a GPU."""

    name: str
    row: str
    column: str
    holds: str
    decided: bool = False
    gpu: bool = False

    @property
    def text(self) -> str:
        """As the page shows it."""
        return (
            f"{self.holds} `{self.name}`{'†' if self.decided else ''}{'‡' if self.gpu and RECORDED.is_file() else ''}"
        )


@dataclass(frozen=True)
class Table:
    """One table: its letter, its corner, its cells row by row, and the test that holds them."""

    letter: str
    corner: str
    cells: tuple[Cell, ...]
    test: str

    def render(self) -> str:
        """The table in Markdown, and where its cells are tested."""
        columns = list(dict.fromkeys(cell.column for cell in self.cells))
        lines = ["| " + " | ".join([self.corner, *columns]) + " |", "| --- " * (len(columns) + 1) + "|"]
        for row in dict.fromkeys(cell.row for cell in self.cells):
            at = {cell.column: cell.text for cell in self.cells if cell.row == row}
            lines.append("| " + " | ".join([row, *(at[column] for column in columns)]) + " |")
        path = "tests/compatibility/test_compatibility.py"
        lines += ["", f"Cell `{self.letter}N` is tested by `{self.test}[{self.letter}N]` in [`{path}`](../{path})."]
        return "\n".join(lines)


def _table(
    letter: str,
    corner: str,
    columns: list[str],
    rows: dict[str, str],
    test: str,
    *,
    decided: bool = False,
    gpu: tuple[str, ...] = (),
) -> Table:
    """A table from its rows, whose words stand for the columns in order."""
    words = {"L": LTO, "P": PTX, "S": SASS, "-": REFUSED, "+": LOADS}
    cells = []
    for (row, states), (place, column) in product(rows.items(), enumerate(columns)):
        name = f"{letter}{len(cells) + 1}"
        cells.append(Cell(name, row, column, words[states[place]], decided, name in gpu))
    return Table(letter, corner, tuple(cells), test)


_LINKERS = [*RELEASES, NEWEST]
_BY = [f"nvJitLink {release}" for release in _LINKERS]

#: Fragments that hold LTO-IR and PTX, by the release that compiled them and the one that links them.
BOTH = _table(
    "A", "LTO-IR and PTX of", _BY,
    {"NVRTC 12.8": "LLPP", "NVRTC 12.9": "-LPP", "NVRTC 13.0": "--LL", "NVRTC newest": "---L"},
    "test_fragments_with_ltoir_and_ptx", gpu=("A7", "A11", "A15"),
)  # fmt: skip
#: LTO-IR alone: of fragments, and of callers, which tells no version.
LTOIR = _table(
    "B", "LTO-IR alone of", _BY,
    {"NVRTC 12.8, a caller's": "LLLL", "NVRTC 12.8": "LL--", "NVRTC 12.9": "-L--", "NVRTC 13.0": "--LL",
     "NVRTC newest": "---L"},
    "test_ltoir_alone",
)  # fmt: skip
#: Fragments that hold both, linked with ``link_mode="ptx"``.
ASKED = _table(
    "C", "PTX of", _BY,
    {"NVRTC 12.8": "PPPP", "NVRTC 12.9": "-PPP", "NVRTC 13.0": "--PP", "NVRTC newest": "---P"},
    "test_ptx_that_is_asked_for",
)  # fmt: skip
#: Fragments for compute_75 of the linker's own release, by the target.
TARGETS = _table(
    "D", "target", _BY[1:],
    {"sm_70": "---", "sm_75": "LLL", "sm_90": "LLL", "sm_90a": "LLL", "sm_121": "LLL", "sm_101": "L--", "sm_88": "-LL",
     "sm_110": "-LL", "a device with compute capability 13.0": "---", "sm_130, asked for": "---"},
    "test_targets",
)  # fmt: skip
DRIVERS = ["11.8", "12.4", "12.9", "13.0", "14.0"]
#: Linked code, by the driver that is to load it; those on the driver for CUDA 13.0 ran.
CODE = _table(
    "E", "made by", [f"driver for CUDA {version}" for version in DRIVERS],
    {"cubin of nvJitLink 12.9": "-++++", "cubin of nvJitLink 13.0": "---++", "cubin of nvJitLink 13.5": "---++"},
    "test_drivers", decided=True, gpu=("E4", "E9", "E14"),
)  # fmt: skip
#: Fragments that hold cubins, linked with ``link_mode="sass"``; each link is tried in a process of its own.
CUBINS = _table(
    "F", "cubins of", _BY,
    {f"NVRTC {release}, {arch}": states for arch in ("sm_90", "sm_100")
     for release, states in zip(_LINKERS, ("SSSS", "-SSS", "--SS", "---S"), strict=True)},
    "test_cubins",
)  # fmt: skip

TABLES = (BOTH, LTOIR, ASKED, TARGETS, CODE, CUBINS)


def named(cells: tuple[Cell, ...]) -> dict[str, object]:
    """Arguments of ``parametrize``: the cells, called by their names."""
    return {"argvalues": cells, "ids": [cell.name for cell in cells]}


def written(page: str) -> str:
    """A page with the tables as they are now."""
    for table in TABLES:
        begin, end = f"<!-- table {table.letter} -->\n", f"<!-- end of table {table.letter} -->"
        before, found, rest = page.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"the page has no place for table {table.letter}")
        page = before + begin + table.render() + "\n" + rest[rest.index(end) :]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
