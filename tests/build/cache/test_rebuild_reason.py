"""The reasons for a rebuild are exactly the differences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.build.cache.rebuild_reason import differences, explain

NOTHING: list[str] = []
FIELDS: dict[str, Any] = {
    "source": "line 1\nline 2\nline 3\n",
    "options": "--std=c++17 -DN=1",
    "architectures": "75",
    "images": "ltoir ptx",
    "compiler": "nvrtc 13.0.88",
    "headers": {"search/types.cuh": "aa", "cuda_fp16.h": "bb"},
}


def test_a_fragment_that_was_never_built_has_that_reason() -> None:
    assert explain(None, FIELDS, is_cached=False) == ["never built with this cache"]


def test_the_reasons_say_whether_the_cache_has_the_result() -> None:
    assert explain(FIELDS, FIELDS, is_cached=True) == ["nothing differs: it would be taken from the cache"]
    (lost,) = explain(FIELDS, FIELDS, is_cached=False)
    assert "the cache entry is gone" in lost
    other = FIELDS | {"compiler": "nvrtc 12.9.86"}
    assert explain(FIELDS, other, is_cached=False) == differences(FIELDS, other)
    assert "earlier build" in explain(FIELDS, other, is_cached=True)[-1]


def test_an_option_that_is_changed_new_gone_or_moved() -> None:
    def options(*now: str) -> list[str]:
        return differences(FIELDS, FIELDS | {"options": " ".join(now)})

    assert options("--std=c++20", "-DN=1") == ["options: --std=c++17 → --std=c++20"]
    assert options("--std=c++17", "-DN=1", "-lineinfo") == ["options: -lineinfo is new"]
    assert options("--std=c++17") == ["options: -DN=1 is gone"]
    none = FIELDS | {"options": ""}
    assert differences(none, none | {"options": "-a -b"}) == ["options: -a -b is new"]
    assert options("-DN=1", "--std=c++17") == [
        "options: in a different order or number: --std=c++17 -DN=1 → -DN=1 --std=c++17"
    ]


def test_a_header_that_changed_is_new_or_is_gone() -> None:
    now = FIELDS | {"headers": {"search/types.cuh": "cc", "x.cuh": "dd"}}
    assert differences(FIELDS, now) == [
        "header cuda_fp16.h is gone",
        "header search/types.cuh changed",
        "header x.cuh is new",
    ]


def test_very_many_headers_are_counted() -> None:
    lines = differences(FIELDS | {"headers": {}}, FIELDS | {"headers": {f"h{n:03}": "" for n in range(100)}})
    assert len(lines) < 20
    assert lines[-1] == "and 88 more headers"


def test_a_source_is_compared_line_by_line() -> None:
    (said,) = differences(FIELDS, FIELDS | {"source": "line 1\nline two\nline 3\nline 4\n"})
    first, *diff = said.split("\n")
    assert first == "source: 2 lines differ"
    assert "-line 2" in diff
    assert "+line two" in diff
    assert "+line 4" in diff


def test_a_long_diff_is_cut() -> None:
    (said,) = differences(FIELDS, FIELDS | {"source": "\n".join(map(str, range(1000)))})
    assert said.count("\n") < 30
    assert said.endswith("more lines of the diff")


def test_a_different_compiler_and_several_fields_at_once() -> None:
    now = FIELDS | {"compiler": "nvrtc 13.1.0", "architectures": "75 90", "images": "ltoir"}
    assert differences(FIELDS, now) == [
        "architectures: 90 is new",
        "images: ptx is gone",
        "compiler: 13.0.88 → 13.1.0",
    ]


def test_a_field_that_an_older_record_lacks_is_a_difference() -> None:
    before = {name: value for name, value in FIELDS.items() if name != "compiler"}
    assert differences(before, FIELDS) == ["compiler: nvrtc 13.0.88 is new"]


_WORDS = st.lists(st.text("ab→", min_size=1, max_size=3), max_size=4).map(" ".join)
_FIELDS = st.fixed_dictionaries(
    {
        "source": st.text("ab\n", max_size=8),
        "options": _WORDS,
        "headers": st.dictionaries(st.text("ab/", min_size=1, max_size=3), st.sampled_from(["1", "2"]), max_size=3),
    }
)


@pytest.mark.slow
@given(_FIELDS, _FIELDS)
def test_nothing_differs_exactly_if_the_fields_are_equal(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert (differences(before, now) == NOTHING) == (before == now)
