"""Timings: the files have everything recorded, the page loads nothing, and the plot shows every compile."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import BuildError
from jitlto.build.execution.costs import read_seconds
from jitlto.build.execution.events import Span
from jitlto.build.execution.timings import (
    Phase,
    Recorder,
    Timings,
    check_writable,
    to_html,
    to_json,
    to_svg,
    write,
)
from jitlto.record.fragment import FragmentKey
from tests.support.errors import raises

SVG = "{http://www.w3.org/2000/svg}"


def key(n: object, group: str = "g") -> FragmentKey:
    return FragmentKey.make("f", group, {"n": str(n)})


EXAMPLE = Timings(
    (Phase("render", 0.0, 1.0), Phase("compile", 1.0, 8.0), Phase("write", 9.0, 1.0)),
    (
        Span(key(1), "a", 1.0, 4.0),
        Span(key("<&\">"), "b", 1.0, 8.0),
        Span(key(2, "h"), "a", 5.0, 2.0),
    ),
    7,
    10.0,
)  # fmt: skip
EMPTY = Timings((), (), 0, 0.0)


def test_a_recorder_keeps_phases_compiles_and_hits() -> None:
    now = 50.0
    recorder = Recorder(lambda: now)
    recorder.phase("render")
    now = 51.0
    recorder.phase("compile")
    span = Span(key(1), "a", 1.0, 2.0)
    recorder.cached(key(2))
    recorder.compiled(span)
    now = 54.0
    expected = Timings((Phase("render", 0.0, 1.0), Phase("compile", 1.0, 3.0)), (span,), 1, 4.0)
    assert recorder.timings() == expected


def test_the_costs_come_back_from_the_file(tmp_path: Path) -> None:
    write(EXAMPLE, tmp_path / "t.json")
    assert read_seconds(tmp_path / "t.json") == {str(s.key): s.seconds for s in EXAMPLE.spans}


def test_the_json_is_complete() -> None:
    document = json.loads(to_json(EXAMPLE))
    assert (document["total_seconds"], document["compiled"], document["cached"]) == (10.0, 3, 7)
    assert document["phases"]["compile"] == {"start": 1.0, "seconds": 8.0}
    assert document["fragments"]["f/g[n=1]"] == 4.0
    details = {"key": "f/g[n=1]", "worker": "a", "start": 1.0, "seconds": 4.0}
    assert details in document["spans"]


def test_phases_with_the_same_name_are_summed() -> None:
    twice = Timings((Phase("compile", 1, 2), Phase("check", 3, 1), Phase("compile", 4, 3)), (), 0, 7)
    assert json.loads(to_json(twice))["phases"]["compile"] == {"start": 1, "seconds": 5}
    assert len(lanes(to_svg(twice))) == 2


def test_the_ending_of_the_file_decides_the_form(tmp_path: Path) -> None:
    for name, begin in (("t.json", "{"), ("t.html", "<!doctype html>"), ("T.SVG", "<svg ")):
        write(EXAMPLE, tmp_path / name)
        assert (tmp_path / name).read_text("utf-8").startswith(begin)


@pytest.mark.parametrize("name", ["t.txt", "t", ".json", "nowhere/t.json"])
def test_a_file_that_cannot_be_written_is_refused_before_and_after(tmp_path: Path, name: str) -> None:
    for refusing in (check_writable, lambda path: write(EXAMPLE, path)):
        with pytest.raises(BuildError) as caught:
            refusing(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
        assert caught.value.hint


def test_a_directory_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.html").mkdir()
    with raises(BuildError, "build-unwritable-timings", where="t.html"):
        write(EXAMPLE, tmp_path / "t.html")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"{", ""),
        (b"[" * 100_000, ""),
        (b"\xff\xfe\x00", ""),
        (b"[]", "object"),
        (b"{}", "fragments"),
        (b'{"fragments": [1]}', "$.fragments"),
        (b'{"fragments": {"a": "1"}}', "$.fragments"),
        (b'{"fragments": {"a": true}}', "$.fragments"),
        (b'{"fragments": {"a": -1}}', "$.fragments"),
        (b'{"fragments": {"a": NaN}}', ""),
        (b'{"fragments": {"a": Infinity}}', ""),
    ],
)
def test_an_invalid_file_of_costs_is_rejected(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with raises(BuildError, "build-invalid-timings", name, where="t.json", hint="jitlto build --timings FILE.json"):
        read_seconds(tmp_path / "t.json")


def test_a_missing_file_of_costs_is_named(tmp_path: Path) -> None:
    with raises(BuildError, "build-unreadable-timings", "No such file", where="t.json"):
        read_seconds(tmp_path / "t.json")


# --- the plot


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own


def lanes(svg: str) -> list[ElementTree.Element]:
    return [e for e in parse(svg).iter(f"{SVG}text") if e.get("text-anchor") == "end"]


def bars(svg: str) -> dict[str, list[ElementTree.Element]]:
    """Title → its rectangles, the whole first."""
    groups = parse(svg).iter(f"{SVG}g")
    return {e.findtext(f"{SVG}title") or "": e.findall(f"{SVG}rect") for e in groups}


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "nan"))


def test_a_compile_stands_in_its_workers_lane_at_its_time() -> None:
    drawn = bars(to_svg(EXAMPLE))
    first = drawn["f/g[n=1]: 4.00 s"]
    second = drawn['f/g[n=<&">]: 8.00 s']
    third = drawn["f/h[n=2]: 2.00 s"]
    assert number(first[0], "x") == number(second[0], "x") < number(third[0], "x")
    assert number(first[0], "y") == number(third[0], "y") != number(second[0], "y")
    assert number(second[0], "width") == pytest.approx(2 * number(first[0], "width"), abs=2)


def test_the_plot_can_be_read_without_being_seen() -> None:
    root = parse(to_svg(EXAMPLE))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "plot-title plot-desc"
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc") == (
        "3 fragments compiled and 7 taken from the cache in 10.0 s. 2 workers were busy 88 % of the time from the "
        'first compile to the last: 14.0 s of compiling. The longest was f/g[n=<&">] with 8.00 s.'
    )


_SECONDS = st.floats(0, 1e5)
_SPANS = st.builds(
    Span,
    st.builds(key, st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=5)),
    st.sampled_from(["1", "2", "a host with a long name:12345"]),
    _SECONDS,
    _SECONDS,
)
_TIMINGS = st.builds(
    Timings,
    st.lists(st.builds(Phase, st.sampled_from(["render", "compile"]), _SECONDS, _SECONDS), max_size=3).map(tuple),
    st.lists(_SPANS, max_size=6).map(tuple),
    st.integers(0, 9),
    _SECONDS,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(_TIMINGS)
def test_every_plot_is_well_formed_and_within_its_bounds(timings: Timings) -> None:
    root = parse(to_svg(timings))
    width, height = (number(root, name) for name in ("width", "height"))
    for rect in root.iter(f"{SVG}rect"):
        assert number(rect, "width") >= 0
        assert 0 <= number(rect, "x") <= number(rect, "x") + number(rect, "width") <= width
        assert 0 <= number(rect, "y") <= number(rect, "y") + number(rect, "height") <= height
    assert 5 <= len(list(root.iter(f"{SVG}line"))) <= 13


# --- the page


class Page(HTMLParser):
    """Links, table rows and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows and self.tags[-1] in ("td", "button") and data.strip():
            self.rows[-1].append(data)


def test_the_page_needs_nothing_from_anywhere() -> None:
    text = to_html(EXAMPLE)
    assert Page(text).links == []
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_lists_phases_groups_and_fragments_the_longest_first() -> None:
    page = Page(to_html(EXAMPLE))
    assert page.rows == [
        ["phase", "begin", "seconds"],
        ["render", "0.000", "1.000"],
        ["compile", "1.000", "8.000"],
        ["write", "9.000", "1.000"],
        ["group", "compiled", "seconds", "mean", "longest"],
        ["f/g", "2", "12.000", "6.000", "8.000"],
        ["f/h", "1", "2.000", "2.000", "2.000"],
        ["fragment", "worker", "begin", "seconds"],
        ['f/g[n=<&">]', "b", "1.000", "8.000"],
        ["f/g[n=1]", "a", "1.000", "4.000"],
        ["f/h[n=2]", "a", "5.000", "2.000"],
    ]
    assert page.tags.count("caption") == 3


def test_a_build_that_compiled_nothing_has_a_page_too(tmp_path: Path) -> None:
    for name in ("t.html", "t.svg", "t.json"):
        write(EMPTY, tmp_path / name)
    assert "0 fragments compiled and 0 taken from the cache" in (tmp_path / "t.html").read_text("utf-8")
    assert read_seconds(tmp_path / "t.json") == {}
