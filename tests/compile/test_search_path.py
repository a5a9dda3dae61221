"""A build with nvcc is stale where a host header would now be found that was not before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile import search_path
from jitlto.compile.search_path import SearchPath, entered_files


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    for name in ("first", "second/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "second" / "sub" / "a.h").write_text('#include "b.h"\n#if __has_include(<c.h>)\n#endif\n')
    return [tmp_path / "first", tmp_path / "second"]


def states(directories: list[Path], own: bytes = b"") -> dict[str, str | None]:
    search = SearchPath(directories)
    records = search.records(frozenset({str(directories[1] / "sub" / "a.h")}), [own])
    return {record: search.state(record) for record in records}


@pytest.mark.parametrize(
    "name", ["first/sub/a.h", "first/b.h", "second/b.h", "second/sub/b.h", "first/c.h", "second/c.h"]
)
def test_a_header_that_appears_where_one_was_looked_for_changes_the_state(directories: list[Path], name: str) -> None:
    before = states(directories)
    path = directories[0].parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    assert states(directories) != before


def test_a_link_that_leads_somewhere_at_last_is_a_header_that_appears(directories: list[Path]) -> None:
    (directories[0] / "c.h").symlink_to(directories[0] / "target.h")
    (directories[0] / "b.h").mkdir()
    before = states(directories)
    (directories[0] / "target.h").write_text("")
    assert states(directories) != before


def test_any_other_header_changes_nothing(directories: list[Path]) -> None:
    before = states(directories)
    (directories[0] / "other.h").write_text("")
    assert states(directories) == before


def test_what_the_familys_own_texts_ask_for_counts(directories: list[Path]) -> None:
    own = b"#if __has_include(<rare.h>)\n#endif\n"
    before = states(directories, own)
    (directories[1] / "rare.h").write_text("")
    assert states(directories, own) != before


def test_no_other_name_is_a_search(directories: list[Path]) -> None:
    assert SearchPath(directories).state("<host>/usr/include/math.h") is None


def test_the_directories_are_those_that_gcc_prints() -> None:
    printed = 'x\n#include "..." search starts here:\n'
    printed += "#include <...> search starts here:\n /usr/a/../b\n /c d\nEnd of search list.\n"
    assert search_path.host_directories(printed) == [Path("/usr/b"), Path("/c d")]


PREPROCESSED = b"""# 0 "source.cu"
# 0 "<built-in>"
# 1 "/usr/include/stdc-predef.h" 1 3 4
# 0 "<command-line>" 2
# 1 "source.cu"
# 1 "include/one.h" 1
# 7 "feigned.h"
int x;
# 2 "source.cu" 2
# 1 "include/one.h" 1
# 3 "source.cu" 2
const char* text = "# 1 \\"in/text.h\\" 1";
"""

_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


def test_entered_files_are_listed_once_and_sorted() -> None:
    assert entered_files(PREPROCESSED) == ("/usr/include/stdc-predef.h", "include/one.h")


@pytest.mark.slow
@given(st.lists(_NAMES, unique=True))
def test_any_name_is_read_as_it_was_meant(names: list[str]) -> None:
    spelled = [name.replace("\\", "\\\\").replace('"', '\\"') for name in names]
    text = "".join(f'# 1 "{name}" 1 3\nint x;\n# 2 "s.cu" 2\n' for name in spelled)
    assert entered_files(text.encode()) == tuple(sorted(names))


def test_octal_escapes_are_bytes() -> None:
    assert entered_files(b'# 1 "caf\\303\\251.h" 1\n') == ("café.h",)
