"""Generator expressions: what they are for CUDA sources of a release build; what is unknown stands for nothing."""

from __future__ import annotations

import pytest

from jitlto.packaging.foreign.generator_expressions import evaluate


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("a;b", ["a", "b"]),
        ("$<BUILD_INTERFACE:/src/include>;$<INSTALL_INTERFACE:include>", ["/src/include"]),
        ("$<$<COMPILE_LANGUAGE:CUDA>:-a;-b>;$<$<COMPILE_LANGUAGE:CXX>:-c>", ["-a", "-b"]),
        ("$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--x=1,2>", ["--x=1,2"]),
        ("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wall>", []),
        ("$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Debug>>>:-O>", ["-O"]),
        ("$<$<OR:$<CONFIG:Debug>,$<BOOL:OFF>>:-g>", []),
        ("$<IF:$<STREQUAL:a,b>,one,two>", ["two"]),
        ("$<$<BOOL:x-NOTFOUND>:a>$<$<BOOL:yes>:b>", ["b"]),
        ("$<TARGET_NAME_IF_EXISTS:lib>;$<TARGET_NAME_IF_EXISTS:other>", ["lib"]),
        ("$<$<TARGET_EXISTS:lib>:-DLIB>", ["-DLIB"]),
        ("-D$<UPPER_CASE:name>$<COMMA>x", ["-DNAME,x"]),
        ("$<LINK_ONLY:lib>", ["lib"]),
        ("$<CONFIG>", ["Release"]),
    ],
)
def test_values(text: str, elements: list[str]) -> None:
    assert evaluate(text, {"lib"}) == (elements, [])


def test_unknown_expressions_are_named() -> None:
    assert evaluate("a;$<TARGET_PROPERTY:raft,INCLUDES>;b") == (["a", "b"], ["$<TARGET_PROPERTY:raft,INCLUDES>"])


@pytest.mark.parametrize("text", ["$<", "$<BUILD_INTERFACE:x", "$<>", "$<:>", ">", "$<IF:1>", "$<AND>"])
def test_malformed_ones_end(text: str) -> None:
    evaluate(text)


def test_what_is_nested_too_deeply_is_unknown() -> None:
    elements, (unknown,) = evaluate("$<1:" * 5000 + "-a" + ">" * 5000)
    assert (elements, unknown[:8]) == ([], "$<1:$<1:")
