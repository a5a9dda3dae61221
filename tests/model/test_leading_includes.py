"""The head of a source: includes and nothing else, and the rest with its lines where they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jitlto.model.headers import split_leading_includes

LINES = st.sampled_from(
    [
        '#include "a.h"',
        "  #  include <b.h>  // why",
        "",
        "// comment",
        "/* one line */",
        "/* two",
        "lines */",
        "#pragma once",
        "#line 1",
        "#define X 1",
        "int x;",
        '#include "a.h" \\',
        "#include MACRO",
        "#if 0",
        "#endif",
        "// goes on \\",
    ]
)


@given(st.lists(LINES, max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_the_includes_at_the_head_and_nothing_else(lines: list[str], end: bytes) -> None:
    text = end.join(line.encode() for line in lines)
    prefix, rest = split_leading_includes(text)
    moved = [line for line in prefix.splitlines() if line]
    assert all(b"#" in line and b"include" in line for line in moved)
    before = [line for line in text.splitlines() if b"include" in line]
    after = [line for line in rest.splitlines() if b"include" in line]
    assert [*moved, *after] == before
    # A line stands where it stood after the last `#line 1` at the head.
    kept = rest.split(b"\n")
    original = text.split(b"\n")[-len(kept) :]
    for new, old in zip(kept, original, strict=True):
        assert new in (old, b"")


def test_the_head_ends_at_what_an_include_may_depend_on() -> None:
    assert split_leading_includes(b'#include "a.h"\n#define X\n#include "b.h"\n') == (
        b'#include "a.h"\n',
        b'\n#define X\n#include "b.h"\n',
    )
    assert split_leading_includes(b'#include "i.h"\n#line 1\n// t\n#include "a.h"\nint x;') == (
        b'#include "i.h"\n#include "a.h"\n',
        b"// t\n\nint x;",
    )
