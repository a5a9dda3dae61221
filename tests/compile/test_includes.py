"""What a scan finds in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile.includes import all_directives, rewrite, scan, scan_quickly

PIECES = st.sampled_from([
    "#", "include", "\n", "\n", " ", "\t", "\r\n", "\\\n", "\\ \n", "'", '"', '"k.h"', "<k.h>", "/*", "*/", "//",
    "int x;", "#include <k.h>\n", "%:", "#if ", "#define H ", "__has_include", "(", ")", 'R"(', ')"', "import", "_next",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=14).map(lambda pieces: "".join(pieces).encode())


@pytest.mark.slow
@given(st.one_of(TEXTS, st.binary(max_size=40)))
def test_names_are_where_they_are_said_to_be(text: bytes) -> None:
    found = [include for include in scan(text)[0] if include.end]
    for include in (*found, *scan_quickly(text)):
        first, last = (b'"', b'"') if include.quoted else (b"<", b">")
        assert text[include.start : include.end] == first + include.name.encode("utf-8", "surrogateescape") + last
    assert rewrite(text, [(each, each.name) for each in found if not each.quoted]) == text
    assert rewrite(text, [(each, "other") for each in found]).count(b"\n") == text.count(b"\n")


@pytest.mark.slow
@given(TEXTS)
def test_a_quick_scan_finds_what_the_other_does(text: bytes) -> None:
    if not scan(text)[1] and b"/*" not in text:
        assert {each[2:] for each in scan(text)[0]} <= {each[2:] for each in scan_quickly(text)}


def test_all_directives_are_told_without_comments() -> None:
    text = b"#define A /* c */ 1 // c\n/*\n#define B\n*/\n# if A \\\n && B\n#endif\n"
    assert list(all_directives(text)) == [("define", "A   1"), ("if", "A  && B"), ("endif", "")]
