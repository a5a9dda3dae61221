"""Directives are found by a quick search as by reading a text from its first byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.compile import directives
from jitlto.compile.directives import all_directives, read_directives

PIECES = st.sampled_from(
    [
        "#",
        "include",
        " ",
        "\n",
        "\n",
        '"k.h"',
        "<k.h>",
        "/*",
        "*/",
        "//",
        "\\\n",
        "'",
        '"',
        "int x;",
        "#include <k.h>\n",
        "%:",
        "#if ",
        "#define H ",
        "__has_include",
        "(",
        ")",
        'R"(',
        ')"',
        "import",
        "\\ \n",
        "\t",
        "\r\n",
        "1'0",
        "_next",
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map(lambda pieces: "".join(pieces).encode())


@pytest.mark.slow
@given(TEXTS)
def test_the_quick_search_finds_what_a_whole_reading_finds(text: bytes) -> None:
    quick = read_directives(text)
    normal, lines = directives._normalize(text)
    whole = [read for start, end in lines if (read := directives._read_line(normal, start, end))]
    assert [(d.word, [n[2:] for n in d.names], d.through_macros, d.asks_next) for d in quick.found] == [
        (d.word, [n[2:] for n in d.names], d.through_macros, d.asks_next) for d in whole
    ]


@pytest.mark.slow
@given(st.one_of(TEXTS, st.binary(max_size=40)))
def test_no_line_moves(text: bytes) -> None:
    read = read_directives(text)
    assert read.text.count(b"\n") == text.count(b"\n")
    for directive in read.found:
        assert read.text[directive.start :].startswith(directive.word)
        assert all(read.text[n.start] in b'"<' and read.text[n.end - 1] in b'">' for n in directive.names)


@given(TEXTS)
def test_lines_without_directives_may_be_left_out_of_a_whole_reading(text: bytes) -> None:
    whole = directives._normalize(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directives, "_PLAIN_LINES", re.compile(rb"(?!)"))
        assert directives._normalize(text) == whole


@pytest.mark.slow
@given(TEXTS)
def test_all_directives_of_a_plain_text_are_those_of_a_whole_reading(text: bytes) -> None:
    normal, lines = directives._normalize(text)
    matches = [(match, end) for start, end in lines if (match := directives._DIRECTIVE.match(normal, start, end))]
    assert list(all_directives(text)) == [(match[1], normal[match.end() : end].strip()) for match, end in matches]


def test_all_directives_are_told_without_comments() -> None:
    text = b"#define A /* c */ 1 // c\n/*\n#define B\n*/\n# if A \\\n && B\n#endif\n"
    assert list(all_directives(text)) == [(b"define", b"A   1"), (b"if", b"A  && B"), (b"endif", b"")]
