"""Options of a foreign build: each goes where a family declares it, with its value, or is said to be left out."""

from __future__ import annotations

import pytest

from jitlto.packaging.foreign.compiler_flags import Flags, join_options


def flags(*words: str) -> Flags:
    made = Flags()
    for option in join_options(words):
        made.add(option)
    return made


def test_an_option_and_its_value_stay_together() -> None:
    found = flags(
        "-D", "A=1", "-U", "B", "-I", "inc", "--diag-error", "177", "-maxrregcount", "32", "--pre-include", "x.h"
    )
    assert found.options == ["-DA=1", "-UB", "--diag-error=177"]
    assert [path.name for path in found.include] == ["inc"]
    assert found.link == {"max_registers": 32}
    assert len(found.dropped) == 1


@pytest.mark.parametrize(
    "words",
    [("-ccbin", "/opt/gcc"), ("-ccbin=/opt/gcc",), ("-o", "x.o"), ("--options-file", "flags.txt"), ("-MD",),
     ("-MF", "x.d"), ("--keep",), ("--keep-dir", "tmp"), ("-run",), ("-c",), ("-v",), ("-t", "0"), ("--threads=0",)],
)  # fmt: skip
def test_what_concerns_the_command_alone_is_left_out(words: tuple[str, ...]) -> None:
    found = flags("-DA", *words, "-DB")
    assert found.options == ["-DA", "-DB"]
    assert len(found.dropped) == 1
