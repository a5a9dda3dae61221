"""The headers that a text includes whatever macros are defined."""

from __future__ import annotations

import pytest

from jitlto.model.header_search import HeaderSearch
from jitlto.model.sure_includes import sure_includes

IN = '#include "i.h"\n'


@pytest.mark.parametrize(
    "text",
    [
        IN,
        f"#pragma once\n{IN}",
        f"#ifndef G\n#define G\n{IN}#endif\n",
        f"// c\n#if !defined(G)\n#define G\n#if X\n#else\n#endif\n{IN}#endif // G\n",
        f"#ifdef __CUDACC__\n{IN}#endif\n",
        f"#if 1\n{IN}#endif\n",
        f"#if X\n#endif\n{IN}",
        '# /* c */ include \\\n "i.h" // c\n',
    ],
)
def test_an_include_outside_of_conditions_is_sure(text: str) -> None:
    assert HeaderSearch([], {"i.h": b""}).surely_included(text.encode()) == {"i.h"}


@pytest.mark.parametrize(
    "text",
    [
        f"#if 0\n{IN}#endif\n",
        f"#ifdef X\n{IN}#else\n{IN}#endif\n",
        f"#if 1\n#else\n{IN}#endif\n",
        f"#ifndef G\n{IN}#endif\n",
        f"#ifndef G\n#define G\n#else\n{IN}#endif\n",
        f"#ifndef G\n#define G\n#endif\n#ifdef X\n{IN}#endif\n",
        f"#define G\n#ifndef G\n#define G\n{IN}#endif\n",
        f"/*\n{IN}*/\n",
        f'const char* s = R"(\n{IN})";\n',
        "#define I <i.h>\n#if X\n#include I\n#endif\n",
    ],
)
def test_any_other_include_is_not(text: str) -> None:
    assert HeaderSearch([], {"i.h": b""}).surely_included(text.encode()) == frozenset()


def test_what_a_sure_include_includes_is_sure_unless_its_guard_is_defined_elsewhere() -> None:
    headers = {"a.h": f"#ifndef A\n#define A\n{IN}#endif\n".encode(), "i.h": b"#pragma once\n"}
    search = HeaderSearch([], headers)
    assert search.surely_included(b'#include "a.h"\n') == {"a.h", "i.h"}
    assert search.surely_included(b'#define A\n#include "a.h"\n') == {"a.h"}


def test_the_guard_is_told() -> None:
    assert sure_includes(b"#ifndef G\n#define G\n#endif\n").guard == b"G"
    assert sure_includes(b"#ifndef G\n#define H\n#endif\n").guard is None
