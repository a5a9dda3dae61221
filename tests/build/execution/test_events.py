"""The time profile of a build: what Perfetto opens."""

import json
from typing import Any

from jitlto.build.execution.events import Observer, Span
from jitlto.record.fragment import FragmentKey

KEYS = [FragmentKey.make("f", "g", {"n": str(n)}) for n in range(3)]


def observed() -> Observer:
    observer = Observer()
    observer.phase("render")
    observer.phase("compile")
    observer.compiled(Span(KEYS[0], "host:1", 0.5, 0.25))
    observer.compiled(Span(KEYS[1], "host:2", 0.5, 1.0))
    observer.compiled(Span(KEYS[2], "host:1", 0.75, 0.125))
    return observer


def test_phases_and_compiles_are_complete_events_in_named_lanes() -> None:
    events: list[dict[str, Any]] = json.loads(observed().profile())["traceEvents"]
    lanes = {each["tid"]: each["args"]["name"] for each in events if each["ph"] == "M"}
    done = [each for each in events if each["ph"] == "X"]
    assert len(lanes) == 3 and all(each["dur"] >= 0 and each["ts"] >= 0 for each in done)
    assert [each["name"] for each in done if lanes[each["tid"]] == "phases"] == ["render", "compile"]
    times = [(each["name"], each["ts"], each["dur"]) for each in done if lanes[each["tid"]] == "host:1"]
    assert times == [(str(KEYS[0]), 500_000, 250_000), (str(KEYS[2]), 750_000, 125_000)]
