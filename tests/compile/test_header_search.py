"""Which header an include means: what nvcc's preprocessor reads there, or an error."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.compile.header_search import HeaderSearch
from jitlto.compile.header_texts import SystemTexts
from tests.support.errors import raises
from tests.support.header_trees import (
    Answer,
    Tree,
    agree,
    ask_as_written,
    ask_gcc,
    ask_nvcc,
    ask_nvrtc,
    load,
    preprocessor,
    trees,
)

CORPUS = Path(__file__).parent / "corpus" / "header_trees.json"
COUNT = int(os.environ.get("JITLTO_TEST_TREES", "0"))


def warns(text: str) -> str:
    return f"#warning {text}\n"


def asked(tmp_path: Path, main: str, files: dict[str, str], *roots: str) -> tuple[str, ...]:
    """What NVRTC reads, which is what GCC reads where it is installed."""
    tree = Tree(roots or ("a", "b"), files, main)
    found = ask_nvrtc(tree, tmp_path / "nvrtc")
    assert found.refused is None
    if preprocessor():
        assert agree(ask_gcc(tree, tmp_path / "gcc"), found)
    return found.warnings


def refused(tmp_path: Path, main: str, files: dict[str, str], code: str) -> JitltoError:
    roots = Tree(("a", "b"), files, main).write(tmp_path)
    with raises(JitltoError, f"jitlto-header-{code}") as caught:
        HeaderSearch(roots, strict=True).closure(main.encode())
    return caught.value


# --- beside the includer, then in the roots ---


@pytest.mark.slow
def test_a_header_beside_its_includer_wins_over_an_earlier_root(tmp_path: Path) -> None:
    files = {"b/h.h": '#include "k.h"\n', "a/k.h": warns("a"), "b/k.h": warns("b")}
    assert asked(tmp_path, '#include "h.h"\n', files) == ("b",)
    assert asked(tmp_path, '#include "h.h"\n#include "k.h"\n', files) == ("b", "a")


def test_angle_brackets_never_look_beside_the_includer(tmp_path: Path) -> None:
    files = {"b/h.h": "#include <k.h>\n", "a/k.h": warns("a"), "b/k.h": warns("b")}
    assert asked(tmp_path, '#include "h.h"\n', files) == ("a",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "include", ['"sub/../k.h"', '"./k.h"', '"sub//../k.h"', '"sub/./../k.h"', "<sub/in/../../k.h>", '"sub/up.h"']
)
def test_a_header_is_the_same_by_any_path(tmp_path: Path, include: str) -> None:
    files = {"a/k.h": "#pragma once\n#warning k\n", "a/sub/in/x.h": "", "a/sub/up.h": '#include "../k.h"\n'}
    assert asked(tmp_path, f'#include "k.h"\n#include {include}\n', files) == ("k",)


def test_a_name_through_a_directory_that_is_not_there_is_no_header(tmp_path: Path) -> None:
    main = (
        '#if __has_include("none/../k.h") || __has_include("k.h/.") || __has_include("sub")\n#warning found\n#endif\n'
    )
    assert asked(tmp_path, main, {"a/k.h": "", "a/sub/x.h": ""}) == ()


def test_blanks_in_a_name_count(tmp_path: Path) -> None:
    main = '#if __has_include(" k.h") || __has_include(<k.h >)\n#warning found\n#endif\n#include "a b/k.h"\n'
    assert asked(tmp_path, main, {"a/k.h": "", "a/a b/k.h": warns("k")}) == ("k",)


def test_behind_a_symbolic_link_two_dots_are_where_it_leads(tmp_path: Path) -> None:
    files = {"a/k.h": warns("a"), "b/k.h": warns("b"), "b/sub/x.h": ""}
    tree = Tree(("a",), files, '#include "link/../k.h"\n#include "k.h"\n', {"a/link": "../b/sub"})
    assert ask_nvrtc(tree, tmp_path).warnings == ("b", "a")


def test_a_file_in_two_places_is_read_once_where_it_says_so(tmp_path: Path) -> None:
    tree = Tree(("a",), {"a/k.h": "#pragma once\n#warning k\n"}, '#include "k.h"\n#include "l.h"\n', {"a/l.h": "k.h"})
    assert ask_nvrtc(tree, tmp_path).warnings == ("k",)


# --- include_next ---


def test_include_next_goes_on_after_the_root_of_its_file(tmp_path: Path) -> None:
    files = {"a/k.h": "#warning a\n#include_next <k.h>\n", "b/k.h": warns("b")}
    assert asked(tmp_path, "#include <k.h>\n", files) == ("a", "b")


def test_include_next_of_a_file_found_beside_its_includer_begins_anew(tmp_path: Path) -> None:
    once = "#ifndef SEEN\n#define SEEN\n#warning b\n#include_next <k.h>\n#endif\n"
    files = {"b/h.h": '#include "k.h"\n', "a/k.h": warns("a"), "b/k.h": once}
    assert asked(tmp_path, "#include <h.h>\n", files) == ("b", "a")


def test_include_next_of_nothing_is_an_error(tmp_path: Path) -> None:
    tree = Tree(("a", "b"), {"a/h.h": "#include_next <k.h>\n", "a/k.h": ""}, "#include <h.h>\n")
    assert ask_nvrtc(tree, tmp_path).stopped


# --- __has_include ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        '__has_include("k.h")',
        "__has_include(<k.h>)",
        "__has_include(H)",
        "HAS",
        "ASK(<k.h>)",
        "ASK(H)",
        "OBJ(H)",
        '__has_include(/* c */ "k.h")',
        '__has_include( \\\n"k.h")',
        '__has_in\\\nclude("k.h")',
        "__has_include(STR(k.h))",
        '__has_include("./k.h")',
        '__has_include("sub/../k.h")',
        '!__has_include("none.h")',
        "HAS && defined(__has_include)",
    ],
)
def test_whether_a_header_exists_is_known_in_any_spelling(tmp_path: Path, condition: str) -> None:
    prelude = """#define H "k.h"
#define HAS __has_include(H)
#define ASK(x) __has_include(x)
#define OBJ __has_include
#define STR(x) #x
"""
    assert asked(tmp_path, f"{prelude}#if {condition}\n#warning yes\n#endif\n", {"a/k.h": "", "a/sub/x.h": ""}) == (
        "yes",
    )


def test_a_macro_asks_for_what_is_beside_the_header_that_uses_it(tmp_path: Path) -> None:
    files = {
        "a/ask.h": '#define HAS __has_include("near.h")\n',
        "a/sub/h.h": "#if HAS\n#warning near\n#endif\n",
        "a/sub/near.h": "",
    }
    assert asked(tmp_path, '#include "ask.h"\n#include "sub/h.h"\n', files) == ("near",)


# --- names that macros make ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "include",
    [
        "H",
        "ANGLED",
        "STR(sub/k.h)",
        "JOIN(su, b/k.h)",
        "OTHER",
        "IN(k)",
        "H // c",
        "/* c */ H",
    ],
)
def test_a_header_may_be_named_by_macros(tmp_path: Path, include: str) -> None:
    prelude = """#define H "sub/k.h"
#define DIR sub
#define ANGLED <DIR/k.h>
#define STR2(x) #x
#define STR(x) STR2(x)
#define JOIN(a, b) <a##b>
#define OTHER ANGLED
#define IN(x) <DIR/x.h>
"""
    assert asked(tmp_path, f"{prelude}#include {include}\n", {"a/sub/k.h": warns("k")}) == ("k",)


def test_a_header_that_macros_name_is_looked_for_beside_its_includer(tmp_path: Path) -> None:
    files = {"b/h.h": '#define K "k.h"\n#include K\n', "a/k.h": warns("a"), "b/k.h": warns("b")}
    assert asked(tmp_path, "#include <h.h>\n#include <k.h>\n", files) == ("b", "a")


def test_a_name_of_two_headers_is_refused(tmp_path: Path) -> None:
    files = {"a/one/h.h": "#include K\n", "a/two/h.h": "#include K\n", "a/one/k.h": "", "a/two/k.h": ""}
    error = refused(tmp_path, '#define K "k.h"\n#include "one/h.h"\n#include "two/h.h"\n', files, "ambiguous")
    assert "'k.h'" in error.what


@pytest.mark.parametrize("name", ["__FILE__", "__CUDA_ARCH__", "ARCH", "VARIADIC(k.h)"])
def test_a_name_that_only_the_compiler_knows_is_refused(tmp_path: Path, name: str) -> None:
    main = f"#define ARCH <k/__CUDA_ARCH__.h>\n#define VARIADIC(...) <__VA_ARGS__>\n\n#include {name}\n"
    assert refused(tmp_path, main, {}, "unknown").where == "the source:4"
    refused(tmp_path, main.replace("#include", "#if __has_include(").strip() + ")\n#endif\n", {}, "unknown")


def test_a_header_with_pragma_once_has_one_name_or_is_refused(tmp_path: Path) -> None:
    files = {"a/k.h": "#pragma once\n#warning k\n"}
    main = '#define K "./k.h"\n#include K\n#include "k.h"\n'
    assert asked(tmp_path, main, files) == ("k",)
    refused(tmp_path, main + '#undef K\n#define K "k.h"\n#include K\n', files, "once")


# --- absolute paths ---


@pytest.mark.parametrize(
    "text",
    [
        "#define P {}\n#include P\n",
        "#define R /tmp\n#define P <R/k.h>\n#include P\n",
        "#define S(x) #x\n#include S(/tmp/k.h)\n",
        "#if __has_include({})\n#endif\n",
        "#define P {}\n#if __has_include(P)\n#endif\n",
        "#define A(x) __has_include(x)\n#if A({})\n#endif\n",
    ],
)
def test_an_absolute_path_is_refused_however_it_is_made(tmp_path: Path, text: str) -> None:
    refused(tmp_path, text.replace("{}", '"/tmp/k.h"'), {}, "absolute")
    refused(tmp_path, '#include "h.h"\n', {"a/h.h": text.replace("{}", "</tmp/k.h>")}, "absolute")


def test_an_absolute_path_that_no_include_can_mean_stays(tmp_path: Path) -> None:
    text = b'#define PATH "/usr/share"\n#include <a.h>\n'
    assert HeaderSearch([], {"a.h": b""}, strict=True).closure(text).text == text


# --- what is no include ---


@pytest.mark.parametrize(
    "text",
    ['R"(\n#include "k.h"\n)"', 'u8R"x(\n)"\n#include "k.h"\n)x"', '"\\\n#include "', "1'000 /*\n#include <k.h>\n*/"],
)
def test_strings_and_comments_stay_as_they_are(text: str) -> None:
    source = f"auto x = {text};\n".encode()
    closure = HeaderSearch([], {"k.h": b"", "sub/k.h": b""}, strict=True).closure(source)
    assert (closure.text, closure.headers) == (source, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["// c \\ \n#include <k.h>\n", "int x; /*\n*/ #include <k.h>\n", "// c \\\n#include <k.h>\n"],
)
def test_what_nvcc_takes_for_no_directive_is_none_for_nvrtc(tmp_path: Path, text: str) -> None:
    assert asked(tmp_path, f"{text}#warning end\n", {"a/k.h": warns("k")}) == ("end",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "%:include <k.h>",
        "#inc\\\nlude <k.h>",
        "/* c\n*/ # /* c */ include <k.h> // c",
        "#include <k.h> /*\n*/",
        "\f#\vinclude<k.h>",
    ],
)
def test_a_directive_is_found_in_any_spelling(tmp_path: Path, line: str) -> None:
    assert asked(tmp_path, f"{line}\n#warning end\n", {"a/k.h": warns("k")}) == ("k", "end")


@pytest.mark.parametrize("line", ["#if __has_include_next(<k.h>)", "#if 0\n#elifdef X", "??=include <k.h>", "// ??/"])
def test_what_nvrtc_reads_otherwise_is_refused(tmp_path: Path, line: str) -> None:
    refused(tmp_path, f"{line}\n#endif\n", {"a/k.h": ""}, "unsupported")
    HeaderSearch([], as_written=True).closure(line.encode())  # nvcc reads it


# --- the closure ---


def test_a_source_that_may_include_anything_reaches_every_header(tmp_path: Path) -> None:
    roots = Tree(("a", "b"), {"a/k.h": "", "b/sub/l.h": ""}, "").write(tmp_path)
    assert HeaderSearch(roots).reachable(b"#include __FILE__\n") == {"k.h", "sub/l.h"}


def test_headers_that_macros_name_count_for_the_digest(tmp_path: Path) -> None:
    roots = Tree(("a",), {"a/k.h": "// one"}, "").write(tmp_path)
    text = b'#define K "k.h"\n#include K\n'
    before = HeaderSearch(roots).closure(text).sha256
    (tmp_path / "a" / "k.h").write_text("// another")
    assert HeaderSearch(roots).closure(text).sha256 != before


def test_where_a_header_was_looked_for_in_vain_is_known(tmp_path: Path) -> None:
    roots = Tree(
        ("a", "b"), {"b/h.h": '#include "k.h"\n#define M <m.h>\n#if __has_include(M)\n#endif\n', "a/k.h": ""}, ""
    )
    search = HeaderSearch(roots.write(tmp_path), strict=True)
    looked_up = search.looked_up(b"#include <h.h>\n", ["h.h", "k.h"])
    assert {"h.h", "k.h", "+1//k.h", "m.h"} <= looked_up
    assert search.find("+1//k.h") is None


def test_equal_headers_of_two_roots_are_told_apart(tmp_path: Path) -> None:
    one, other = Tree(("a", "b"), {"b/k.h": "// k"}, "").write(tmp_path)
    assert HeaderSearch([one, other]).sha256("k.h") != HeaderSearch([other, one]).sha256("k.h")


@pytest.mark.slow
@settings(max_examples=100, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(trees().filter(lambda tree: len(tree.roots) == 1))
def test_a_closure_read_again_is_itself(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as directory:
        roots = tree.write(Path(directory))
        try:
            first = HeaderSearch(roots, strict=True).closure(tree.main.encode())
        except JitltoError:
            return
        again = HeaderSearch([], first.headers, strict=True).closure(first.text)
    assert again.text == first.text
    assert again.headers.items() <= first.headers.items()


def test_a_name_that_only_a_directory_can_have_finds_no_header(tmp_path: Path) -> None:
    (tmp_path / "k.h").write_bytes(b"")
    for name in ("k.h/.", "k.h/", "k.h/x/.."):
        for search in (HeaderSearch([tmp_path]), HeaderSearch([], {"k.h": b""})):
            assert search.find(name) is None
            assert "k.h" not in search.closure(f"#include <{name}>\n".encode()).headers


# --- against nvcc's preprocessor ---


@pytest.mark.slow
@pytest.mark.parametrize("ask", [ask_nvrtc, ask_as_written])
def test_the_answers_of_nvccs_preprocessor_are_given(tmp_path: Path, ask: object) -> None:
    if ask is ask_as_written and preprocessor() is None:
        pytest.skip("no g++")
    wrong = []
    for number, (tree, expected) in enumerate(load(CORPUS)):
        found = ask(tree, tmp_path / str(number))  # type: ignore[operator]
        if not agree(expected, found):
            wrong.append((number, expected, found))
    assert not wrong


@pytest.mark.slow
def test_gcc_answers_as_nvcc_does(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None or preprocessor() is None:
        pytest.skip("no nvcc, or no g++")
    for number, (tree, expected) in enumerate(load(CORPUS)[:40]):
        assert ask_gcc(tree, tmp_path / str(number)) == expected
        found = ask_nvcc(nvcc, tree, tmp_path / str(number))
        assert (found.failed, found.warnings[: len(expected.warnings)]) == (expected.failed, expected.warnings)


@pytest.mark.slow
@pytest.mark.skipif(COUNT == 0, reason="JITLTO_TEST_TREES says how many trees to try")
def test_nvrtc_and_nvcc_read_the_same_headers(tmp_path: Path) -> None:
    if preprocessor() is None:
        pytest.skip("no g++")
    wrong: list[tuple[Tree, Answer, Answer]] = []

    @settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(trees())
    def try_one(tree: Tree) -> None:
        with tempfile.TemporaryDirectory() as directory:
            expected = ask_gcc(tree, Path(directory) / "tree")
            for ask in (ask_nvrtc, ask_as_written):
                found = ask(tree, Path(directory) / "tree")
                if not agree(expected, found):
                    wrong.append((tree, expected, found))

    try_one()
    assert not wrong, json.dumps(wrong[0][0].to_json())


_NAMES = ("a.h", "b.h", "sub/a.h", "sub/c.h", "d/e.h")
_LINES = tuple(
    f"#{directive % name}"
    for directive in ("include %s", "include_next %s", "if __has_include(%s)", "define N %s")
    for name in ("<a.h>", '"a.h"', "<sub/a.h>", '"c.h"', '"../b.h"', "<d/../a.h>", '"./e.h"', "<gone.h>", "</a.h>")
)
_FILES = st.dictionaries(st.sampled_from(_NAMES), st.lists(st.sampled_from(_LINES), max_size=3), max_size=4)


def _write(directory: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" + "#endif\n" * line.startswith("#if") for line in lines))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@example(
    [{}, {"sub/c.h": []}],
    {"sub/a.h": ['#include "c.h"'], "b.h": ["#include <sub/a.h>", '#include "sub/c.h"'], "sub/c.h": []},
    ["#include <b.h>"],
    False,
)
@given(st.lists(_FILES, min_size=2, max_size=3), _FILES, st.lists(st.sampled_from(_LINES), max_size=3), st.booleans())
def test_searches_that_share_a_toolkits_headers_find_what_each_alone_does(
    owns: list[dict[str, list[str]]], toolkit: dict[str, list[str]], lines: list[str], as_written: bool
) -> None:
    main = "".join(f"{line}\n" + "#endif\n" * line.startswith("#if") for line in lines).encode()
    how: dict[str, Any] = {"strict": not as_written, "as_written": as_written}

    def answer(search: HeaderSearch) -> object:
        try:
            found = search.closure(main)
            return found, search.looked_up(main, found.headers)
        except JitltoError as error:
            return error.code, error.where, str(error)

    with tempfile.TemporaryDirectory() as directory:
        system = [_write(Path(directory, "system"), toolkit)]
        texts: SystemTexts = {}
        for number, own in enumerate([*owns, owns[0]]):
            roots = [_write(Path(directory, f"own{number}"), own)]
            alone = answer(HeaderSearch(roots, system=system, **how))
            assert answer(HeaderSearch(roots, system=system, texts=texts, **how)) == alone


def test_a_toolkits_headers_are_read_once_for_searches_that_share_them(tmp_path: Path) -> None:
    toolkit = {"a.h": ["#include <b.h>"], "b.h": []}
    system = [_write(tmp_path / "system", toolkit)]
    texts: SystemTexts = {}
    for number in range(3):
        roots = [_write(tmp_path / f"own{number}", {"mine.h": ["#include <a.h>"]})]
        search = HeaderSearch(roots, system=system, texts=texts)
        assert search.reachable(b"#include <mine.h>\n") == {"mine.h", "a.h", "b.h"}
        assert len(texts) == 2
    own = _write(tmp_path / "own3", {"b.h": ["#include <d/e.h>"], "d/e.h": []})
    shadowed = HeaderSearch([own], system=system, texts=texts)
    assert shadowed.reachable(b"#include <a.h>\n") == {"a.h", "b.h", "d/e.h"}
    assert len(texts) == 2
