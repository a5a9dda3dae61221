"""What a fragment costs: the same number on every machine, from the source or from a file that is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.build.execution.costs import costs, estimate, read_costs
from jitlto.record.headers import Source

HEAVY = Source(b'#include "h"\n', {"h": b"template <typename T> struct S {};\n" * 3000})


def test_templates_of_headers_cost_most() -> None:
    light = Source(b"__device__ int f(int x) { return x; }\n", {"big": b"// nothing to do\n" * 100_000})
    assert estimate(HEAVY, 1) > 20 * estimate(light, 1)
    assert estimate(light, 1) > 0


def test_a_longer_source_costs_more_and_so_does_each_architecture() -> None:
    source = Source(b"__device__ int f(int x) { return x; }\n" * 100, {})
    assert estimate(source, 1) > estimate(Source(source.text[:50], {}), 1)
    assert estimate(source, 3) == 3 * estimate(source, 1)


def test_recorded_times_are_read_in_milliseconds(tmp_path: Path) -> None:
    file = tmp_path / "timings.json"
    file.write_text('{"fragments": {"f/g[a=1]": 1.25, "f/g[a=2]": 0}, "seconds": 3}')
    assert read_costs([file]) == {"f/g[a=1]": 1250, "f/g[a=2]": 1}
    again = tmp_path / "again.json"
    again.write_text('{"fragments": {"f/g[a=2]": 2, "f/g[a=3]": 3}}')
    assert read_costs([file, again]) == {"f/g[a=1]": 1250, "f/g[a=2]": 2000, "f/g[a=3]": 3000}
    assert read_costs([]) == {}


def test_estimates_are_scaled_to_recorded_costs() -> None:
    assert costs({"a": 10, "b": 20, "c": 40}, {"a": 100, "b": 200, "old": 7}) == {"a": 100, "b": 200, "c": 400}
    assert costs({"a": 10}, {"old": 7}) == {"a": 10}
    assert costs({"a": 10}, {}) == {"a": 10}


milliseconds = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**7))


@pytest.mark.slow
@given(milliseconds, milliseconds)
def test_every_fragment_has_a_positive_cost(estimates: dict[str, int], recorded: dict[str, int]) -> None:
    result = costs(estimates, recorded)
    assert result.keys() == estimates.keys()
    assert all(value >= 1 for value in result.values())
    assert all(result[key] == recorded[key] for key in estimates.keys() & recorded.keys())
