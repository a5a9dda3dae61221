"""Which header an include means: what nvcc's preprocessor reads there, or an error."""

import shutil
from pathlib import Path

import pytest

from jitlto.base.errors import JitltoError
from jitlto.compile.headers import HeaderSearch, lay_out
from jitlto.record.headers import digest_content
from tests.support.errors import raises
from tests.support.header_trees import (
    Tree,
    agree,
    ask_as_written,
    ask_gcc,
    ask_nvcc,
    ask_nvrtc,
    load,
    preprocessor,
)

CORPUS = Path(__file__).parent / "corpus" / "header_trees.json"


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


@pytest.mark.slow
@pytest.mark.parametrize("include", ['"sub/../k.h"', "<sub/in/../../k.h>", '"sub/up.h"'])
def test_a_header_is_the_same_by_any_path(tmp_path: Path, include: str) -> None:
    files = {"a/k.h": "#pragma once\n#warning k\n", "a/sub/in/x.h": "", "a/sub/up.h": '#include "../k.h"\n'}
    assert asked(tmp_path, f'#include "k.h"\n#include {include}\n', files) == ("k",)


def test_what_links_make_ambiguous_is_refused(tmp_path: Path) -> None:
    files = {"a/k.h": "", "b/k.h": "", "b/sub/x.h": ""}
    tree = Tree(("a",), files, '#include "link/../k.h"\n#include "k.h"\n', {"a/link": "../b/sub"})
    assert ask_nvrtc(tree, tmp_path).refused == "jitlto-header-ambiguous"


# --- __has_include ---


@pytest.mark.parametrize(
    "condition",
    [
        '__has_include("k.h")',
        "__has_include(<k.h>)",
        '__has_include( \\\n"k.h")',
        "__has_include(<k.h>) && defined(__has_include)",
        "ANGLED",
    ],
)
def test_whether_a_header_exists_is_known(tmp_path: Path, condition: str) -> None:
    main = f"#define ANGLED __has_include(<k.h>)\n#if {condition}\n#warning yes\n#endif\n"
    assert asked(tmp_path, main, {"a/k.h": "", "a/sub/x.h": ""}) == ("yes",)


@pytest.mark.parametrize(
    "text",
    [
        "#if __has_include(H)",
        "#define ASK(x) __has_include(x)\n#if ASK(H)",
        "#if _CCCL_HAS_INCLUDE(H)",
    ],
)
def test_a_question_through_a_macro_is_refused(tmp_path: Path, text: str) -> None:
    refused(tmp_path, f"{text}\n#endif\n", {"a/k.h": ""}, "unknown")
    with raises(JitltoError, "jitlto-header-unknown"):  # nvcc may look where no header is sent
        HeaderSearch([], as_written=True).closure(f"{text}\n#endif\n".encode())


# --- names that macros make ---


@pytest.mark.parametrize("include", ["H", "__FILE__", "STR(sub/k.h)", "H // c", "/* c */ H"])
def test_a_header_that_a_macro_names_is_refused(tmp_path: Path, include: str) -> None:
    assert (
        refused(tmp_path, f'#define H "k.h"\n\n#include {include}\n', {"a/k.h": ""}, "unknown").where == "the source:3"
    )
    assert refused(tmp_path, "#include <l.h>\n", {"a/l.h": f"#include {include}\n"}, "unknown").where == "l.h:1"


def test_a_header_in_a_directory_that_a_macro_of_the_toolkit_names_is_given(tmp_path: Path) -> None:
    for path, text in {
        "part/a.h": "#define DIR part/one\n#define FILE <DIR/b.h>\n#include FILE\n",
        "part/one/b.h": "#define ONE\n",
        "part/two/b.h": "#define TWO\n",
        "part/two/c.h": "",
        "other/b.h": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    source = HeaderSearch((), system=[tmp_path], strict=True).closure(b"#include <part/a.h>\n")
    assert set(source.headers) == {"part/a.h", "part/one/b.h", "part/two/b.h"}


def test_a_header_that_macros_of_the_toolkit_name_is_given_to_a_source_that_names_it(tmp_path: Path) -> None:
    (own, system) = Tree(("a", "b"), {"b/t.h": "#define K <u.h>\n#include K\n", "b/u.h": ""}, "").write(tmp_path)
    search = HeaderSearch([own], system=[system], strict=True)
    assert set(search.closure(b"#include <t.h>\n").headers) == {"t.h"}
    assert set(search.closure(b"#include <t.h>\n#if 0\n#include <u.h>\n#endif\n").headers) == {"t.h", "u.h"}


# --- absolute paths ---


@pytest.mark.parametrize("text", ["#include {}\n", "#if __has_include({})\n#endif\n"])
@pytest.mark.parametrize("how", ["strict", "as_written"])
def test_an_absolute_path_is_refused(tmp_path: Path, text: str, how: str) -> None:
    for name in ('"/some/k.h"', "</some/k.h>"):
        with raises(JitltoError, "jitlto-header-absolute", "/some/k.h"):
            HeaderSearch([], **{how: True}).closure(text.replace("{}", name).encode())


# --- what is no include ---


@pytest.mark.parametrize(
    "text",
    ['R"(\n#include "k.h"\n)"', 'u8R"x(\n)"\n#include "k.h"\n)x"', '"\\\n#include "', "1'000 /*\n#include <k.h>\n*/"],
)
def test_strings_and_comments_stay_as_they_are(text: str) -> None:
    source = f"auto x = {text};\n".encode()
    closure = HeaderSearch([], {"k.h": b"", "sub/k.h": b""}, strict=True).closure(source)
    assert (closure.text, closure.headers) == (source, {})


@pytest.mark.parametrize(
    "line",
    [
        "#if __has_include_next(<k.h>)",
        "??=include <k.h>",
        "// ??/",
        "#include_next <k.h>",
        "#inc\\\nlude <k.h>",
        "int x; /*\n*/ #include <k.h>",
    ],
)
def test_what_nvrtc_reads_otherwise_is_refused(tmp_path: Path, line: str) -> None:
    refused(tmp_path, f"{line}\n#endif\n", {"a/k.h": ""}, "unsupported")
    HeaderSearch([], as_written=True).closure(line.encode())  # nvcc reads it


# --- the closure ---


def test_a_source_that_may_include_anything_reaches_every_header(tmp_path: Path) -> None:
    roots = Tree(("a", "b"), {"a/k.h": "", "b/sub/l.h": ""}, "").write(tmp_path)
    assert HeaderSearch(roots).closure(b"#include __FILE__\n").headers.keys() == {"k.h", "sub/l.h"}


@pytest.mark.parametrize("how", ["strict", "as_written"])
def test_a_header_is_another_where_its_includes_are(tmp_path: Path, how: str) -> None:
    files = {"b/h.h": '#include "k.h"\n#if __has_include(<m.h>)\n#endif\n', "a/k.h": ""}
    roots = Tree(("a", "b"), files, "").write(tmp_path)

    def state() -> str | None:
        name = "+1//h.h" if how == "as_written" else "h.h"
        return HeaderSearch(roots, **{how: True}).sha256(name)

    states = [state()]
    for path in ("a/other.h", "b/k.h", "b/m.h", "a/m.h"):
        (tmp_path / path).touch()
        states.append(state())
    assert states[0] == states[1]
    assert len(set(states)) == 4


def test_headers_that_lie_in_a_shared_directory_are_linked_and_others_written(tmp_path: Path) -> None:
    shared, work = tmp_path / "shared", tmp_path / "work"
    shared.mkdir()
    (shared / digest_content(b"a\n").hex()).write_bytes(b"a\n")
    lay_out(work, {"a.h": b"a\n", "+1//b/c.h": b"c\n"}, shared)
    assert (work / "include/a.h").samefile(shared / digest_content(b"a\n").hex())
    assert (work / "include1/b/c.h").read_bytes() == b"c\n"


# --- against nvcc's preprocessor ---


@pytest.mark.slow
@pytest.mark.parametrize("ask", [ask_nvrtc, ask_as_written])
def test_the_answers_of_nvccs_preprocessor_are_given(tmp_path: Path, ask: object) -> None:
    if ask is ask_as_written and preprocessor() is None:
        pytest.skip("no g++")
    wrong, read = [], 0
    for number, (tree, expected) in enumerate(load(CORPUS)[::2]):
        found = ask(tree, tmp_path / str(number))  # type: ignore[operator]
        read += found.refused is None
        if not agree(expected, found):
            wrong.append((number, expected, found))
    assert not wrong
    assert read > 75


@pytest.mark.slow
def test_gcc_answers_as_nvcc_does(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None or preprocessor() is None:
        pytest.skip("no nvcc, or no g++")
    for number, (tree, expected) in enumerate(load(CORPUS)[:12]):
        assert ask_gcc(tree, tmp_path / str(number)) == expected
        found = ask_nvcc(nvcc, tree, tmp_path / str(number))
        assert (found.failed, found.warnings[: len(expected.warnings)]) == (expected.failed, expected.warnings)
