"""Virtual headers: everything that a source can reach, by content, and nothing else."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile.headers import HeaderSearch
from jitlto.record.headers import Source, split_leading_includes


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def closure(root: Path, text: str) -> Source:
    return HeaderSearch([root]).closure(text.encode())


def test_nested_relative_quoted_and_angle_includes_are_found(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "a.h": '#include "sub/b.h"\n',
            "sub/b.h": '  #  include "../c.h"\n#include "beside.h"\n#include <sub/deep/d.h>\n',
            "sub/beside.h": "",
            "sub/deep/d.h": '#include "../../e.h"\n',
            "c.h": "",
            "e.h": "",
            "unused.h": "",
        },
    )
    source = closure(root, "#include <a.h>\nint x;\n")
    assert set(source.headers) == {"a.h", "sub/b.h", "sub/beside.h", "sub/deep/d.h", "c.h", "e.h"}
    assert source.headers["sub/b.h"] == b"  #  include <c.h>\n#include <sub/beside.h>\n#include <sub/deep/d.h>\n"


def test_two_headers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "config.h": "// top",
            "one/x.h": '#include "config.h"\n',
            "one/config.h": "// one",
            "two/x.h": '#include "config.h"\n',
            "two/config.h": "// two",
            "three/x.h": '#include "config.h"\n',
            "four/config.h": "// four",
            "four/x.h": "#include <config.h>\n",
        },
    )
    source = closure(root, "".join(f'#include "{n}/x.h"\n' for n in ("one", "two", "three", "four")))
    headers = {name: text.decode() for name, text in source.headers.items()}
    assert headers["one/x.h"] == "#include <one/config.h>\n"
    assert headers["two/x.h"] == "#include <two/config.h>\n"
    assert headers["three/x.h"] == "#include <config.h>\n"
    assert headers["four/x.h"] == "#include <config.h>\n"
    assert {headers[f"{n}config.h"] for n in ("", "one/", "two/")} == {"// top", "// one", "// two"}
    assert "four/config.h" not in headers


def test_the_first_root_wins_and_what_is_given_by_content_wins_over_all(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"a.h": "// one"})
    two = tree(tmp_path / "two", {"a.h": "// two", "b.h": "// two"})
    assert HeaderSearch([one, two]).find("a.h") == b"// one"
    assert HeaderSearch([two, one]).find("a.h") == b"// two"
    assert HeaderSearch([one, two]).find("b.h") == b"// two"
    assert HeaderSearch([one, two], {"a.h": b"// given"}).find("a.h") == b"// given"
    assert HeaderSearch([], {"a.h": b"// given"}).closure(b'#include "a.h"').headers == {"a.h": b"// given"}


@pytest.mark.parametrize("name", ["directory", "no.h", "", ".", "a" * 5000, "nul\0.h", "a.h/b.h"])
def test_what_is_no_file_is_no_header(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path, {"directory/a.h": "", "a.h": ""})
    assert HeaderSearch([root]).find(name) is None
    assert closure(root, f'#include "{name}"\n').headers == {}


def test_every_branch_of_the_preprocessor_is_followed(tmp_path: Path) -> None:
    root = tree(tmp_path, {"a.h": "", "b.h": ""})
    assert set(closure(root, '#if 0\n#include "a.h"\n#else\n#include "b.h"\n#endif\n').headers) == {"a.h", "b.h"}


FILES = {
    "a.h": '#include "sub/b.h"\n#define A 1\n',
    "sub/b.h": '#include "../c.h"\n',
    "c.h": "// c",
    "unrelated.h": "// one thing",
}


def test_the_same_tree_elsewhere_is_the_same_source(tmp_path: Path) -> None:
    here = tree(tmp_path / "here", FILES)
    there = tmp_path / "quite another" / "place"
    shutil.copytree(here, there)
    text = '#include "a.h"\n'
    assert closure(here, text).sha256 == closure(there, text).sha256
    assert closure(here, text) == closure(there, text)


contents = st.dictionaries(st.text("ab/.", min_size=1, max_size=4), st.binary(max_size=4), max_size=4)


@pytest.mark.slow
@given(st.binary(max_size=4), contents, st.binary(max_size=4), contents)
def test_equal_hashes_mean_equal_sources(a: bytes, some: dict[str, bytes], b: bytes, others: dict[str, bytes]) -> None:
    assert (Source(a, some).sha256 == Source(b, others).sha256) == ((a, some) == (b, others))
    shuffled = list(some.items())
    random.Random(0).shuffle(shuffled)  # noqa: S311 - a fixed order other than the first
    assert Source(a, dict(shuffled)).sha256 == Source(a, some).sha256


def test_headers_need_not_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_bytes(b"// caf\xe9\n")
    assert closure(tmp_path, '#include "a.h"\n').headers == {"a.h": b"// caf\xe9\n"}


# --- leading includes ---

LINES = st.sampled_from([
    '#include "a.h"', "  #  include <b.h>  // why", "", "// comment", "/* one line */", "/* two", "lines */",
    "#pragma once", "#line 1", "#define X 1", "int x;", '#include "a.h" \\', "#include MACRO", "#if 0", "#endif",
    "// goes on \\",
])  # fmt: skip


@pytest.mark.slow
@given(st.lists(LINES, max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_the_includes_at_the_head_and_nothing_else(lines: list[str], end: bytes) -> None:
    text = end.join(line.encode() for line in lines)
    prefix, rest = split_leading_includes(text)
    moved = [line for line in prefix.splitlines() if line]
    assert all(b"#" in line and b"include" in line for line in moved)
    before = [line for line in text.splitlines() if b"include" in line]
    after = [line for line in rest.splitlines() if b"include" in line]
    assert [*moved, *after] == before
    for new, old in zip(rest.split(b"\n"), text.split(b"\n"), strict=True):
        assert new in (old, b"")


def test_the_head_ends_at_what_an_include_may_depend_on() -> None:
    assert split_leading_includes(b'#include "a.h"\n#define X\n#include "b.h"\n') == (
        b'#include "a.h"\n',
        b'\n#define X\n#include "b.h"\n',
    )
