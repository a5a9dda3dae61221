"""Link options: canonical flags, checked names and values, and a form to store."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.record.options import LinkOptions, describe_invalid_option
from tests.support.errors import raises

maybe = st.none() | st.booleans()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "fast_math": st.booleans(),
    "ftz": maybe,
    "prec_div": maybe,
    "prec_sqrt": maybe,
    "fma": maybe,
    "max_registers": st.none() | st.integers(1, 255),
    "optimization": st.sampled_from([None, 0, 3]),
    "lineinfo": st.booleans(),
    "split_compile": st.none() | st.integers(0, 64),
    "ptxas": st.lists(st.sampled_from(["-v", "--allow-expensive-optimizations=true", "-O2"]), max_size=3),
}
mappings = st.fixed_dictionaries({}, optional=VALUES)


@pytest.mark.slow
@given(mappings)
def test_the_stored_form_reads_back(options: dict[str, Any]) -> None:
    link = LinkOptions.from_mapping(options)
    assert LinkOptions.from_mapping(json.loads(msgspec.json.encode(link))) == link
    assert hash(LinkOptions.from_mapping(msgspec.to_builtins(link))) == hash(link)


@pytest.mark.slow
@given(mappings, mappings)
def test_merging_puts_the_given_options_over(base: dict[str, Any], over: dict[str, Any]) -> None:
    assert LinkOptions.from_mapping(base).merge(over) == LinkOptions.from_mapping(base | over)


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"fast_math": True}, ("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1")),
        ({"fast_math": True, "prec_div": True, "ftz": False}, ("-ftz=0", "-prec-div=1", "-prec-sqrt=0", "-fma=1")),
        ({"max_registers": 64, "optimization": 0}, ("-maxrregcount=64", "-O0")),
        ({"lineinfo": True, "split_compile": 0}, ("-lineinfo", "-split-compile=0")),
        ({"ptxas": ["-v", "-O2"]}, ("-Xptxas=-v", "-Xptxas=-O2")),
    ],
)
def test_flags(options: dict[str, Any], flags: tuple[str, ...]) -> None:
    assert LinkOptions.from_mapping(options).flags() == flags


def test_fast_math_is_given_to_the_compiler_with_what_was_taken_back() -> None:
    plain, mixed = LinkOptions(fast_math=True), LinkOptions(fast_math=True, prec_div=True)
    assert "--use_fast_math" in plain.compile_flags()
    assert "--prec-div=false" in plain.compile_flags()
    assert "--use_fast_math" in mixed.compile_flags()
    assert "--prec-div=true" in mixed.compile_flags()
    assert LinkOptions(ftz=True, prec_div=False, prec_sqrt=False, fma=True).compile_flags() == plain.compile_flags()[1:]


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
def test_no_link_takes_fast_math_back_or_adds_it_to_ptx(link_mode: str) -> None:
    four = {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": True}
    fast, like_fast = LinkOptions(fast_math=True), LinkOptions.from_mapping(four)
    assert fast.find_ineffective(fast, link_mode) == []
    assert like_fast.find_ineffective(fast, link_mode) == ["fast_math"]
    assert fast.find_ineffective(like_fast, link_mode) == (["fast_math"] if link_mode == "ptx" else [])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("max_register", "max_registers"), ("fastmath", "fast_math"), ("line_info", "lineinfo"), ("fmad", "fma")],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with raises(JitltoError, "jitlto-link-option", repr(name), hint=repr(nearest)):
        LinkOptions.from_mapping({name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("fast_math", "lineinfo") for value in (1, "true", None)),
        *((name, value) for name in ("ftz", "prec_div", "prec_sqrt", "fma") for value in (0, "false", 1.0)),
        *(("max_registers", value) for value in (0, -1, 256, 300, True, 1.5, "64")),
        *(("optimization", value) for value in (1, 2, "3", False, 3.0, [])),
        *(("split_compile", value) for value in (-1, False, 1.5, "0")),
        *(("ptxas", value) for value in ("-v", ["-v", 1], 5, None, {"-v": 1}, b"-v")),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: object) -> None:
    with raises(JitltoError, "jitlto-link-option", name, repr(value)):
        LinkOptions.from_mapping({name: value})


@pytest.mark.parametrize(
    "options",
    [
        *({name: True} for name in ("debug", "device_debug", "G", "g")),
        *({"ptxas": [option]} for option in ("-g", "--device-debug")),
    ],
)
def test_device_debugging_is_refused(options: dict[str, object]) -> None:
    with raises(JitltoError, "jitlto-link-option", hint="lineinfo"):
        LinkOptions.from_mapping(options)


@pytest.mark.parametrize(
    "options",
    [
        ["-" + "x" * 1_000_000],
        ["-" + "x" * 1000],
        ["-v"] * 101,
        ["-v\0x"],
        ["-v\n-g"],
        ["-é"],
        ["-\ud800"],
        ["-"],
        ["--"],
        ["-="],
    ],
    ids=lambda options: f"{len(options)} of {len(options[0])}: {options[0][:8]!a}",
)
def test_what_would_crash_the_assembler_or_end_early_is_refused(options: list[str]) -> None:
    with raises(JitltoError, "jitlto-link-option") as caught:
        LinkOptions.from_mapping({"ptxas": options})
    assert len(str(caught.value)) < 500
    assert LinkOptions(ptxas=("-" + "x" * 999,) * 100).ptxas


@pytest.mark.parametrize("value", [1 << 31, 10**30, 10**5000, -(10**5000)], ids=["2**31", "10**30", "large", "small"])
@pytest.mark.parametrize("name", ["max_registers", "split_compile", "optimization"])
def test_a_number_beyond_those_of_the_linker_is_refused(name: str, value: int) -> None:
    with raises(JitltoError, "jitlto-link-option", name):
        LinkOptions.from_mapping({name: value})


@pytest.mark.parametrize(
    "option", ["-DX=\0", "-DX=a\nb", "-DX=\ud800", "-DX=" + "x" * 30_000], ids=lambda o: ascii(o[:8])
)
def test_a_compile_option_is_one_line_of_some_length(option: str) -> None:
    found = describe_invalid_option(option)
    assert found is not None
    assert len(found[0]) < 500
    assert describe_invalid_option("-DX=" + "x" * 29_000) is None


@pytest.mark.parametrize(
    "option",
    ["-Xcudafe=--diag_suppress=177,2361", "-Xcudafe=--display_error_number", "--diag-error=1215", "-diag-suppress=1215",
     "-Werror=reorder", "-Wreorder", "-DW=w"],
)  # fmt: skip
def test_options_for_diagnostics_reach_the_front_end(option: str) -> None:
    assert describe_invalid_option(option) is None


@pytest.mark.parametrize(
    "option",
    [
        "-Xcudafe=--list=x",
        "-Xcudafe=--preinclude=x",
        "-Xcudafe",
        "-Xnvvm=-x",
        "-Xcicc=x",
        "-ccbin=/x",
        "--save-temps",
        "-o x",
        "-DX=</x.h>",
        "-DHAS=__has_include(<x.h>)",
    ],
)
def test_others_do_not_for_they_read_and_write_files(option: str) -> None:
    assert describe_invalid_option(option) is not None
    assert "NVCC_CCBIN" in str(describe_invalid_option("-ccbin=clang"))
