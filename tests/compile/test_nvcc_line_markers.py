"""Line markers: every entered file is found, and #line directives fake none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile.line_markers import entered_files

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
