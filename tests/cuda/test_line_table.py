"""Line tables: files get other names, and nothing else of a kernel changes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.cuda.elf import read_sections
from jitlto.cuda.line_table import rename_files
from jitlto.database.twin import twin_directory
from jitlto.runtime.family import load
from tests.support.line_information import read_files

CONFIGURATION = {"data_type": "float", "op_name": "twice"}
_MOVED = (".debug_line", ".rela.debug_line")


@pytest.fixture(scope="session")
def cubin(twin_path: Path) -> bytes:
    """A kernel with line information."""
    family = load("mini", twin_directory(twin_path) / twin_path.name)
    return family.plan(arch="sm_90", **CONFIGURATION).link(use_cache=False).cubin


def sections(cubin: bytes) -> dict[str, bytes]:
    return {each.name: each.data for each in read_sections(cubin) if each.name not in _MOVED}


def test_a_kernel_names_the_files_of_its_fragments(cubin: bytes, mini_path: Path) -> None:
    assert len(read_files(cubin)) == 2
    assert all(name.endswith(".cu") for name in read_files(cubin))
    plain = load("mini", mini_path).plan(arch="sm_90", **CONFIGURATION).link(use_cache=False).cubin
    assert read_files(plain) == []
    assert rename_files(plain, str.upper) == plain


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=400)


@pytest.mark.slow
@given(st.lists(names, min_size=2, max_size=2, unique=True))
def test_files_get_any_names(cubin: bytes, new: list[str]) -> None:
    old = read_files(cubin)
    renamed = rename_files(cubin, dict(zip(old, new, strict=True)).__getitem__)
    assert read_files(renamed) == new
    assert sections(renamed) == sections(cubin)
    back = rename_files(renamed, dict(zip(new, old, strict=True)).__getitem__)
    assert read_files(back) == old
    assert sections(back) == sections(cubin)


def test_every_part_of_the_file_stays_aligned(cubin: bytes) -> None:
    renamed = rename_files(cubin, lambda name: f"/somewhere/else{name}")
    assert (len(renamed) - len(cubin)) % 128 == 0
    code, moved = (next(s.data for s in read_sections(c) if ".text." in s.name) for c in (cubin, renamed))
    assert renamed.index(moved) % 128 == cubin.index(code) % 128 == 0


@pytest.mark.slow
@given(st.data())
def test_a_damaged_file_is_an_error_or_another_file(cubin: bytes, data: st.DataObject) -> None:
    damaged = bytearray(cubin)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(cubin) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(cubin)))]) if data.draw(st.booleans()) else bytes(damaged)
    try:
        rename_files(cut, lambda name: f"/x{name}")
    except ValueError:
        return
