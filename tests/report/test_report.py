"""The report of a database tells mistakes from intended gaps, and no name in it becomes markup."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.base.types import Parameter
from jitlto.base.versions import Architecture, Version
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from jitlto.families import declaration
from jitlto.record.check_result import (
    Cause,
    CheckResult,
    FamilyCheck,
    FamilyLinks,
    LinkCheck,
    Note,
    Place,
    read_check_result,
)
from jitlto.record.exclusions import Exclusion, is_excluded
from jitlto.record.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions
from jitlto.report import call_graph, coverage, grid, page
from jitlto.report.content import GroupView, Report, describe
from jitlto.report.coverage import Coverage, Follows, Never, measure_coverage
from jitlto.report.grid import State
from jitlto.runtime.family import KernelFamily
from tests.support.commands import jitlto, python
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.fuzz_targets import rows, with_rows


def sample(
    directory: Path,
    cells: Iterable[Mapping[str, str]],
    *,
    names: tuple[str, str, str] = ("f", "kernel", "called"),
    symbol: str = "called",
    part: PartRecord | None = None,
    gaps: Iterable[FragmentKey] = (),
    exclude: tuple[Exclusion, ...] = (),
) -> FragmentDatabase:
    """Write a database of entrypoints with these parameters that call one device function, with dummy images."""
    name, kernel, called = names
    blobs: dict[str, bytes] = {}

    def image(data: bytes) -> tuple[Image, ...]:
        sha = hashlib.sha256(data).hexdigest()
        blobs[sha] = data
        return (Image(ImageKind.LTOIR, Architecture(75), sha, len(data), "nvrtc", Version(13, 0)),)

    call = Symbol(symbol, SymbolKind.FUNCTION, "()(4)")
    own = [dict(cell) for cell in cells]
    fragments = [
        Fragment(
            FragmentKey.make(name, kernel, cell),
            Role.ENTRYPOINT,
            "kernel",
            (Parameter("x", "float*", 8, 8),),
            (),
            (call,),
            image(str(cell).encode()),
        )
        for cell in own
    ]
    fragments.append(Fragment(FragmentKey.make(name, called, {}), Role.DEVICE, "", (), (call,), (), image(b"x" * 99)))
    groups = (
        GroupRecord(called, Role.DEVICE, (), "called.cuh", False),
        GroupRecord(kernel, Role.ENTRYPOINT, tuple(own[0]) if own else (), None, False, (), exclude),
    )
    record = FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, ())
    write(directory / "sample.fragdb", [record], fragments, blobs, part=part, gaps=gaps)
    return FragmentDatabase(directory / "sample.fragdb")


def group(report: Report, name: str) -> GroupView:
    return next(group for family in report.families for group in family.groups if group.name == name)


def states(drawn: grid.Grid | None) -> Counter[State]:
    assert drawn is not None
    return Counter(state for row in drawn.rows for state, _ in row.cells)


# --- what exists of a product


@pytest.mark.slow
def test_search_has_24_of_64_kernels_and_two_rules_say_why(search: KernelFamily) -> None:
    kernels = group(describe(search.database), "search_kernel")
    assert [(d.name, d.values) for d in kernels.coverage.dimensions] == [
        ("data_type", ("__half", "float")),
        ("out_type", ("double", "float")),
        ("idx_type", ("int64_t", "uint32_t")),
        ("optimized_name", ("optimized", "standard")),
        ("veclen", ("1", "4", "8", "16")),
    ]
    assert (kernels.coverage.product, kernels.coverage.exist, kernels.coverage.missing) == (64, 24, 40)
    assert kernels.coverage.rules == (
        Follows(
            "veclen",
            "optimized_name",
            (("1", "optimized"), ("4", "optimized"), ("8", "standard"), ("16", "standard")),
        ),
        Never("data_type", "__half", "out_type", ("double",)),
    )
    assert kernels.coverage.holes == ()
    assert states(kernels.grid) == {State.EXISTS: 24, State.MISSING: 40}


@pytest.mark.slow
def test_the_320_kernels_of_ivf_flat_are_one_grid_with_adjacent_empty_rows_joined(ivf_flat: KernelFamily) -> None:
    scan = group(describe(ivf_flat.database), "interleaved_scan")
    assert (scan.coverage.product, scan.coverage.exist, scan.coverage.missing) == (1920, 320, 1600)
    assert scan.coverage.holes == ()
    drawn = scan.grid
    assert drawn is not None
    assert (drawn.row_names, drawn.column_names) == (
        ("data_type", "acc_type", "veclen"),
        ("order", "compute_norm", "capacity"),
    )
    assert states(drawn) == {State.EXISTS: 320}
    assert [row.omitted for row in drawn.rows] == [0, 0, 10] * 4
    assert [head.value for head in drawn.column_heads[-1]] == [
        *("0", "1", "2", "4", "8", "16", "32", "64", "128", "256")
    ] * 4


def test_a_combination_that_no_rule_leaves_out_is_a_hole(tmp_path: Path) -> None:
    cells = [dict(zip("abc", cell, strict=True)) for cell in product("12", "12", "12")]
    with sample(tmp_path, cells[:3] + cells[4:]) as database:
        kernels = group(describe(database), "kernel")
    assert kernels.coverage.holes == (("1", "2", "2"),)
    assert states(kernels.grid) == {State.EXISTS: 7, State.HOLE: 1}


def test_fragments_in_a_different_part_are_not_missing(tmp_path: Path) -> None:
    cells = [dict(zip("ab", cell, strict=True)) for cell in product("12", "12")]
    keys = tuple(FragmentKey.make("f", "kernel", cell) for cell in cells[:3])
    part = PartRecord(1, 2, "0" * 64, keys, (("f", "nvrtc"),), (), ())
    with sample(tmp_path, cells[:2], part=part) as database:
        report = describe(database)
    assert report.part == "part 1 of 2"
    kernels = group(report, "kernel")
    assert (kernels.coverage.exist, kernels.coverage.apart, kernels.coverage.missing) == (2, 1, 1)
    assert states(kernels.grid) == {State.EXISTS: 2, State.APART: 1, State.MISSING: 1}


def test_fragments_that_a_merge_left_out_are_marked_and_imply_no_rule(tmp_path: Path) -> None:
    cells = [dict(zip("ab", cell, strict=True)) for cell in product("12", "12")]
    gone = [cells[1], cells[2]]  # without these, b seems to follow from a
    gaps = (*(FragmentKey.make("f", "kernel", cell) for cell in gone), FragmentKey.make("f", "other", {"n": "7"}))
    with sample(tmp_path, [cells[0], cells[3]]) as database:
        pretended = page.to_html(describe(database))
    assert "follows from" in pretended
    assert "missing:</strong>" not in pretended
    with sample(tmp_path, [cells[0], cells[3]], gaps=gaps) as database:
        report = describe(database)
    kernels, other = group(report, "kernel"), group(report, "other")
    assert (report.part, report.gaps) == (None, 3)
    assert (kernels.coverage.rules, kernels.coverage.apart, kernels.coverage.missing) == ((), 2, 0)
    assert states(kernels.grid) == {State.EXISTS: 2, State.APART: 2}
    assert (other.coverage.product, other.apart) == (1, ((("n", "7"),),))
    text = page.to_html(report)
    assert "Parts of the build are missing:" in text
    assert "3 of 6 fragments are left out" in text
    assert text.count('<td class="lost">!') == 2
    assert "1 left out by the merge: <code>n=7</code>" in text
    assert "another part" not in text
    assert "follows from" not in text


def test_a_combination_that_is_excluded_on_purpose_is_no_hole(tmp_path: Path) -> None:
    cells = [dict(zip("abc", cell, strict=True)) for cell in product("12", repeat=3)]
    del cells[3]
    meant = ((("a", "1"), ("b", "2"), ("c", "2")),)
    with sample(tmp_path, cells) as database:
        assert group(describe(database), "kernel").coverage.holes == (("1", "2", "2"),)
    with sample(tmp_path, cells, exclude=meant) as database:
        report = describe(database)
    kernels = group(report, "kernel")
    assert (kernels.coverage.holes, kernels.coverage.excluded) == ((), (("1", "2", "2"),))
    assert states(kernels.grid) == {State.EXISTS: 7, State.EXCLUDED: 1}
    text = page.to_html(report)
    assert text.count('<td class="excluded">') == 1
    assert "1 excluded on purpose: <code>a=1 b=2 c=2</code>" in text
    assert "missing without such a rule" not in text


_CELLS = st.integers(1, 4).flatmap(
    lambda width: st.tuples(
        st.sets(st.tuples(*[st.sampled_from(["1", "2", "10", "a"])] * width), min_size=1, max_size=40),
        st.sets(st.tuples(*[st.sampled_from(["1", "2", "10", "b"])] * width), max_size=5),
        st.lists(st.sampled_from([(("p0", "1"),), (("p0", "2"), ("p1", "a")), (("p1", "10"),)]), max_size=2),
    )
)


def _left_out(coverage: Coverage, cell: tuple[str, ...]) -> bool:
    """Return whether a rule excludes a cell."""
    values = dict(zip((d.name for d in coverage.dimensions), cell, strict=True))
    return any(
        (values[rule.name], values[rule.other]) not in rule.pairs
        if isinstance(rule, Follows)
        else values[rule.name] == rule.value and values[rule.other] in rule.values
        for rule in coverage.rules
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_CELLS)
def test_every_cell_of_the_product_is_drawn_or_counted_once(
    given: tuple[set[tuple[str, ...]], set[tuple[str, ...]], list[Exclusion]],
) -> None:
    present, apart = given[0], given[1] - given[0]
    names = [f"p{n}" for n in range(len(next(iter(present))))]
    coverage = measure_coverage(names, present, apart, tuple(given[2]))
    whole = list(product(*(dimension.values for dimension in coverage.dimensions)))
    assert coverage.product == len(whole)
    assert coverage.missing == len(set(whole) - present - apart)
    # A cell is there, elsewhere, left out by a rule or on purpose, or a hole; and never two of these.
    excluded = set(coverage.excluded or ())
    for cell in whole:
        missing = _left_out(coverage, cell) or cell in excluded
        assert (cell in present | apart) + missing + (cell in (coverage.holes or ())) == 1, cell
        meant = is_excluded(given[2], dict(zip(names, cell, strict=True)))
        assert (cell in excluded) == (meant and cell not in present | apart)
    drawn = grid.draw(coverage, present, apart)
    if drawn is None:
        assert len(coverage.varying) < 2
        return
    found = [(state, cell) for row in drawn.rows for state, cell in row.cells]
    assert len({cell for _, cell in found}) == len(found)
    assert len(found) + drawn.width * sum(row.omitted for row in drawn.rows) == len(whole)
    holes = set(coverage.holes or ())
    expected = {State.EXISTS: present, State.APART: apart, State.HOLE: holes, State.EXCLUDED: excluded}
    for state, cells in expected.items():
        assert {cell for s, cell in found if s is state} == cells
    for row in drawn.rows:
        for (_, cell), across in zip(row.cells, drawn.column_at, strict=False):
            assert dict(zip(names, cell, strict=True)).items() >= dict((*row.at, *across)).items()
    for level in drawn.column_heads:
        assert sum(head.span for head in level) == drawn.width
    # Spans of row heads cover each level exactly.
    covered = Counter[int]()
    for row in drawn.rows:
        for level, head in zip(range(len(drawn.row_names) - len(row.heads), 9), row.heads, strict=False):
            covered[level] += head.span
    omitted = sum(bool(row.omitted) for row in drawn.rows)
    assert [covered[n] for n in range(len(drawn.row_names))] == [
        len(drawn.rows) - (omitted if n else 0) for n in range(len(drawn.row_names))
    ]


def test_a_group_without_fragments_has_no_missing_combinations() -> None:
    for names in ((), ("a", "b")):
        coverage = measure_coverage(names, [])
        assert (coverage.product, coverage.missing, coverage.holes, coverage.rules) == (0, 0, (), ())
        assert grid.draw(coverage, []) is None


def test_numbers_are_in_numerical_order() -> None:
    values = ["128", "8", "float", "16", "a10", "a9", "2.5", ""]
    assert sorted(values, key=coverage.natural) == ["", "2.5", "8", "16", "128", "a9", "a10", "float"]
    assert coverage.natural("9" * 5000) > coverage.natural("9" * 4999)


@pytest.mark.slow
def test_a_product_too_large_to_draw_costs_no_time() -> None:
    cells = [tuple(str((n * (k + 3)) % 97) for k in range(8)) for n in range(3000)]
    coverage = measure_coverage([f"p{n}" for n in range(8)], cells)
    assert coverage.product == 97**8
    drawn = grid.draw(coverage, cells)
    assert drawn is None or sum(len(row.cells) for row in drawn.rows) <= 20_000


# --- sizes, times, calls


@pytest.mark.slow
def test_sizes_add_up_from_fragments_to_the_database(search: KernelFamily) -> None:
    report = describe(search.database)
    fragments = search.database.fragments()
    for kind, size in ((ImageKind.LTOIR, report.size.ltoir), (ImageKind.PTX, report.size.ptx)):
        assert size == sum(image.size for fragment in fragments for image in fragment.images_of(kind))
    for family_view in report.families:
        assert family_view.size.total == sum(group.size.total for group in family_view.groups)
        for group_view in family_view.groups:
            assert group_view.size.total == sum(view.size.total for view in group_view.fragments)
        assert sum(made.size for made in family_view.image_sets) == family_view.size.total
        assert {made.architecture for made in family_view.image_sets} == {"75"}
    assert report.stored <= report.size.total
    numbers = [v.number for family_view in report.families for g in family_view.groups for v in g.fragments]
    assert sorted(numbers) == list(range(len(fragments)))


def test_known_compile_times_add_up(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        keys = [str(fragment.key) for fragment in database.fragments()]
        report = describe(database, seconds={keys[0]: 1.5, keys[-1]: 2.0, "mini/gone[]": 9.0})
        assert (report.timed, report.seconds) == (2, 3.5)
        assert group(report, "kern").seconds == 1.5
        assert describe(database).seconds is None
        with raises(JitltoError, "jitlto-other-database"):
            describe(database, seconds={"mini/gone[]": 9.0})


@pytest.mark.slow
def test_calls_are_described_by_the_values_that_fragments_share(search: KernelFamily) -> None:
    view = describe(search.database).families[0]
    assert [(call.caller, call.callee, call.names) for call in view.calls] == [
        ("search_kernel", "apply_filter", ("apply_filter",)),
        ("search_kernel", "compute_distance", ("compute_distance",)),
    ]
    half = next(item for item in view.interfaces if "compute_distance<__half>" in item.text)
    assert [(s.group, s.count, s.total, s.common, s.exact) for s in half.providers] == [
        ("compute_distance", 2, 4, (("data_type", "__half"),), True)
    ]
    assert [(s.group, s.count, s.total, s.exact) for s in half.requirers] == [("search_kernel", 8, 24, True)]
    assert not any(item.missing for item in view.interfaces)


@pytest.mark.slow
def test_symbols_that_callers_supply_are_not_missing(transform: KernelFamily) -> None:
    view = describe(transform.database).families[-1]
    assert view.name == "transform"
    assert {item.supplied for item in view.interfaces} == {("user_transform",)}
    assert [(call.caller, call.callee) for call in view.calls] == [("apply_transform", "user_transform")]
    assert not any(item.missing for item in view.interfaces)


_EDGES = st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("abcdefg")), max_size=15)


@pytest.mark.slow
@given(_EDGES)
def test_boxes_of_a_drawing_do_not_overlap_and_lie_within(edges: list[tuple[str, str]]) -> None:
    drawing = call_graph.draw(list("abcdefg"), edges)
    assert [box.name for box in drawing.boxes] == list("abcdefg")
    assert {(line.caller, line.callee) for line in drawing.lines} == set(edges)
    for number, box in enumerate(drawing.boxes):
        assert 0 <= box.x <= box.x + box.width <= drawing.width
        assert 0 <= box.y <= box.y + box.height <= drawing.height
        for other in drawing.boxes[:number]:
            apart = abs(box.x - other.x) >= box.width or abs(box.y - other.y) >= box.height
            assert apart, (box, other)


def test_callers_are_left_of_their_callees() -> None:
    drawing = call_graph.draw(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    left, middle, right = (box.x for box in drawing.boxes)
    assert left < middle < right


# --- check results


def checked(*arguments: str | Path) -> str:
    return jitlto("check", *arguments, "--json").stdout


@pytest.mark.slow
def test_the_result_of_a_check_is_read_back(mini_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    file.write_text(checked(mini_path, "--link", "sm_90", "--cover", "1"))
    found = read_check_result(file)
    assert found.holds
    assert found.link is not None
    assert found.link.archs == ("sm_90",)
    (planned,), (linked,) = found.families, found.link.families
    assert (planned.kernels, linked.linked, linked.kernels, linked.cover) == (4, 2, 4, 1)
    with FragmentDatabase(mini_path) as database:
        text = page.to_html(describe(database, check=found))
    assert "2 of 4, covering all 4 values" in text


@pytest.mark.slow
def test_a_fragment_that_a_check_faults_is_marked(tmp_path: Path) -> None:
    source = MINI | {"op.json": MINI["op.json"].replace('["float", "double"]', '["float"]')}
    families = [declaration.load_family(write_family(tmp_path / "gap", source))]
    path = build(families, tmp_path / "gap.fragdb", jobs=1, allow_incomplete=True).path
    file = tmp_path / "check.json"
    file.write_text(checked(path))
    found = read_check_result(file)
    assert not found.holds
    with FragmentDatabase(path) as database:
        report = describe(database, check=found)
    faults = {str(view.key): view.faults for view in group(report, "kern").fragments}
    assert faults == {"mini/kern[data_type=double]": 1, "mini/kern[data_type=float]": 0}
    (missing,) = [item for item in report.families[0].interfaces if item.missing]
    assert missing.text == "double mini::op<double>(double)"
    text = page.to_html(report)
    assert "failed" in text
    assert "nothing in this database" in text


def test_a_check_of_a_different_database_is_refused(mini_path: Path) -> None:
    with (
        FragmentDatabase(mini_path) as database,
        raises(JitltoError, "jitlto-other-database", "abc", hint="jitlto check"),
    ):
        describe(database, check=CheckResult("abc", True, (), None))


# --- the page


class Read(HTMLParser):
    """Tags, attributes and text of a page, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


_HOSTILE = st.one_of(
    st.sampled_from(
        [
            "</script><script>alert(1)</script>",
            "</style><img src=x onerror=alert(1)>",
            '"><svg/onload=alert(1)>',
            "' onmouseover='alert(1)",
            "{{ 7 * 7 }}{% raw %}",
            "<!--",
            "]]>",
            "&lt;b&gt;",
            "\u202eevil",
            "\0",
            "a b\tc\n",
            "javascript:alert(1)",
        ]
    ),
    st.text(max_size=8),
    st.text("<>\"'&/=!-", max_size=8),
)


@functools.cache
def faulty_page(value: str, symbol: str, message: str) -> str:
    """A page with all that a database and a check can contain."""
    cells = [{"p": value, "p2": "1"}, {"p": f"{value}2", "p2": "2"}]
    where = (Place(f"m{message}", {message: message}, message),)
    cause = Cause(message, (message,), message, f"m{message}", f"m{message}", where)
    families = (FamilyCheck("f", False, 1, 0, (cause,), (Note(message, message, message, {message: message}),)),)
    links = (FamilyLinks("f", False, 1, 1, None, None, (cause,)),)
    with (
        tempfile.TemporaryDirectory() as directory,
        sample(Path(directory), cells, names=("f", "k", "c"), symbol=symbol) as opened,
    ):
        found = CheckResult(opened.digest, False, families, LinkCheck((message,), message, message, links))
        return page.to_html(describe(opened, check=found))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(_HOSTILE, _HOSTILE, _HOSTILE)
def test_no_text_of_a_database_or_a_check_becomes_markup(value: str, symbol: str, message: str) -> None:
    """A database with invalid names of families, groups or parameters does not open."""
    text = faulty_page(value, symbol, message)
    text.encode("utf-8")
    hostile, plain = Read(text), Read(faulty_page("v", "s", "m"))
    assert set(hostile.tags) == set(plain.tags)
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert hostile.tags.count("script") == hostile.tags.count("style") == 1
    assert all(value.startswith("#") for name, value in hostile.attributes if name == "href")
    assert not any(name in ("src", "srcset", "style", "action", "xlink:href") for name, _ in hostile.attributes)


def test_invisible_and_unencodable_characters_are_escaped() -> None:
    text = faulty_page("\u202ev", "s", "\ud800 \x1b[2J\0 a\nb")
    assert "\u202e" not in text
    assert "\\u202ev" in text
    assert "m\\ud800 \\x1b[2J\\x00 a\nb" in text


def test_a_name_that_is_not_valid_unicode_is_one_clear_error(tmp_path: Path) -> None:
    with sample(tmp_path, [{"p": "marker"}]) as database:
        path = database.path
    with_rows(path, [[*name, json.dumps(record).replace("marker", "\\ud800")] for *name, record in rows(path)])
    done = jitlto("report", path, "-o", tmp_path / "r.html")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "[database-damaged]" in done.stderr


@pytest.mark.slow
def test_the_page_names_its_one_script_and_one_style_by_hash_and_loads_nothing(search: KernelFamily) -> None:
    text = page.to_html(describe(search.database))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy
    assert "//" not in re.sub(r"(?m)^ *//.*$", "", text).replace(policy, "")
    assert "url(" not in text
    assert "@import" not in text


def unpacked(text: str) -> list[list[Any]]:
    """The rows that a page about many fragments holds compressed."""
    (packed,) = re.findall(r'<script type="text/plain" id="rows">([A-Za-z0-9+/=]*)</script>', text)
    rows: list[list[Any]] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return rows


@pytest.mark.slow
def test_of_many_fragments_the_page_holds_the_rows_compressed(tmp_path: Path) -> None:
    cells = [dict(zip("abc", map(str, c), strict=True)) for c in product(range(30), range(5), range(4))]
    with sample(tmp_path, cells) as database:
        text = page.to_html(describe(database))
        keys = [str(fragment.key) for fragment in database.fragments()]
    rows = unpacked(text)
    assert sorted(row[0] for row in rows) == sorted(keys)
    assert all(f'<tr id="f{row[1]}" data-key="{row[0]}"' in row[6] for row in rows)
    assert [row[4] for row in rows] == [row[2] + row[3] for row in rows]
    assert "<tr id=" not in text
    assert Read(text).tags.count("a") < 50  # the grid is compressed too
    assert len(text) < 50_000 + 100 * len(rows)


@pytest.mark.slow
def test_compressed_rows_and_grids_are_those_of_a_smaller_page(
    search: KernelFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page.to_html(describe(search.database))
    monkeypatch.setattr(page, "MOST_ROWS", 1)
    text = page.to_html(describe(search.database))
    rows = unpacked(text)
    assert len(rows) == whole.count("<tr id=") == 34
    assert all(row[6].strip() in whole for row in rows)
    grids = re.findall(r'<script type="text/plain">([A-Za-z0-9+/=]*)</script>', text)
    assert len(grids) == whole.count('<table class="grid')
    assert all(zlib.decompress(base64.b64decode(grid)).decode().strip() in whole for grid in grids)


def test_the_same_input_makes_the_same_page(mini_path: Path, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        assert jitlto("report", mini_path, "-o", tmp_path / name).returncode == 0
    text = (tmp_path / "a.html").read_text("utf-8")
    assert text == (tmp_path / "b.html").read_text("utf-8")
    assert str(tmp_path) not in text
    assert str(mini_path.parent) not in text


@pytest.mark.slow
def test_headings_go_down_by_one_and_every_table_has_a_caption(search: KernelFamily) -> None:
    read = Read(page.to_html(describe(search.database)))
    levels = [int(tag[1]) for tag in read.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert read.tags.count("caption") == read.tags.count("table")
    assert {"header", "nav", "main", "footer", "search"} <= set(read.tags)
    targets = {value for name, value in read.attributes if name == "id"}
    assert {value[1:] for name, value in read.attributes if name == "href"} <= targets


def test_an_empty_database_has_a_page_too(tmp_path: Path) -> None:
    write(tmp_path / "empty.fragdb", [], [], {})
    with FragmentDatabase(tmp_path / "empty.fragdb") as database:
        assert "<dd>0</dd>" in page.to_html(describe(database))


# --- the command


@pytest.mark.slow
def test_a_report_is_written_with_timings_and_a_check(tmp_path: Path) -> None:
    source = write_family(tmp_path / "mini", MINI)
    built = jitlto("build", source, "-o", tmp_path / "m.fragdb", "--timings", tmp_path / "t.json", "--no-cache")
    assert built.returncode == 0, built.stderr
    (tmp_path / "c.json").write_text(checked(tmp_path / "m.fragdb"))
    arguments = ("-o", "r.html", "--timings", "t.json", "--check", "c.json")
    done = jitlto("report", "m.fragdb", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "6 fragments in r.html\n", "")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "of compiling" in text
    assert '<dd class="good">passed</dd>' in text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("no.fragdb", "-o", "r.html"), 1, ["no.fragdb", "no such file"]),
        (("m.fragdb",), 2, ["--output"]),
        (("m.fragdb", "-o", "m.fragdb"), 2, ["would overwrite an input"]),
        (("m.fragdb", "-o", "no/r.html"), 1, ["no/r.html", "cannot be written", "hint"]),
        (("m.fragdb", "-o", "r.html", "--check", "no.json"), 1, ["no.json", "cannot be read", "jitlto check"]),
        (("m.fragdb", "-o", "r.html", "--check", "bad.json"), 1, ["bad.json", "[jitlto-malformed-file]"]),
        (("m.fragdb", "-o", "r.html", "--check", "list.json"), 1, ["list.json", "[jitlto-malformed-file]"]),
        (("m.fragdb", "-o", "r.html", "--check", "{}.json"), 1, ["[jitlto-malformed-file]", "digest"]),
        (("m.fragdb", "-o", "r.html", "--timings", "list.json"), 1, ["list.json", "[build-invalid-timings]"]),
    ],
)
def test_a_failing_report_is_one_message(
    arguments: tuple[str, ...], status: int, words: list[str], tmp_path: Path, mini_path: Path
) -> None:
    (tmp_path / "m.fragdb").write_bytes(mini_path.read_bytes())
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "{}.json").write_text("{}")
    done = jitlto("report", *arguments, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json", "list.json", "m.fragdb", "{}.json"]


@pytest.mark.slow
def test_the_report_imports_neither_wing() -> None:
    code = "import json, sys; import jitlto.report.page, jitlto.report.content; print(json.dumps(sorted(sys.modules)))"
    done = python("-c", code)
    names = json.loads(done.stdout)
    assert "jitlto.report.content" in names
    assert not [name for name in names if name.startswith(("jitlto.build", "jitlto.runtime"))]
