"""The report of a database tells mistakes from intended gaps, and no name in it becomes markup."""

import functools
import hashlib
import html
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.types import Parameter
from jitlto.base.versions import Architecture, Version
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from jitlto.record.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions
from jitlto.report import content, grid, page
from jitlto.report.content import GroupView, Report, describe
from jitlto.runtime.family import KernelFamily
from tests.support.commands import fails, jitlto


def sample(
    directory: Path,
    cells: Iterable[Mapping[str, str]],
    *,
    names: tuple[str, str, str] = ("f", "kernel", "called"),
    symbol: str = "called",
    part: PartRecord | None = None,
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
        GroupRecord(kernel, Role.ENTRYPOINT, tuple(own[0]) if own else (), None, False),
    )
    record = FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, ())
    write(directory / "sample.fragdb", [record], fragments, blobs, part=part)
    return FragmentDatabase(directory / "sample.fragdb")


def group(report: Report, name: str) -> GroupView:
    return next(group for family in report.families for group in family.groups if group.record.name == name)


def states(drawn: grid.Grid | None) -> Counter[str]:
    assert drawn is not None
    return Counter(state for _, cells in drawn.rows for state, _ in cells)


# --- what exists of a product


@pytest.mark.slow
def test_search_has_24_of_64_kernels_and_no_hole(search: KernelFamily) -> None:
    kernels = group(describe(search.database), "search_kernel")
    assert dict(kernels.values) == {
        "data_type": ["__half", "float"],
        "out_type": ["double", "float"],
        "idx_type": ["int64_t", "uint32_t"],
        "optimized_name": ["optimized", "standard"],
        "veclen": ["1", "4", "8", "16"],
    }
    assert (kernels.product, len(kernels.by_cell)) == (64, 24)
    assert describe(search.database, family="search").families[0].summary == "32 fragments → 96 kernels"
    assert states(kernels.grid) == {"exists": 24, "missing": 40}


def test_a_combination_whose_values_occur_together_is_a_hole(tmp_path: Path) -> None:
    cells = [dict(zip("abc", cell, strict=True)) for cell in product("12", "12", "12")]
    with sample(tmp_path, cells[:3] + cells[4:]) as database:
        report = describe(database)
    drawn = group(report, "kernel").grid
    assert states(drawn) == {"exists": 7, "hole": 1}
    assert drawn is not None
    assert [cell for _, row in drawn.rows for state, cell in row if state == "hole"] == [("1", "2", "2")]
    assert page.to_html(report).count('<td class="hole">') == 1


def test_kernels_are_counted_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sample(tmp_path, [{"a": text} for text in "1234"]) as database:
        assert describe(database).families[0].summary == "5 fragments → 4 kernels"
        monkeypatch.setattr(content, "_MOST_COUNTED", 3)
        assert describe(database).families[0].summary == "5 fragments → more than 3 kernels"


def test_a_part_of_a_build_has_no_page(tmp_path: Path) -> None:
    part = PartRecord(1, 2, "0" * 64, 1, (("f", "nvrtc"),), (), ())
    with sample(tmp_path, [{"a": "1"}], part=part) as database:
        assert describe(database).families[0].summary == "2 fragments"
    done = jitlto("report", tmp_path / "sample.fragdb", "-o", tmp_path / "x.html")
    fails(done, 1, "[database-part]", "jitlto merge")
    assert not (tmp_path / "x.html").exists()


_CELLS = st.integers(1, 4).flatmap(
    lambda width: st.sets(st.tuples(*[st.sampled_from(["1", "2", "10", "a"])] * width), min_size=1, max_size=40)
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(_CELLS)
def test_every_cell_of_the_product_is_drawn(present: set[tuple[str, ...]]) -> None:
    names = [f"p{n}" for n in range(len(next(iter(present))))]
    values = [sorted(set(column)) for column in zip(*present, strict=True)]
    whole = list(product(*values))
    drawn = grid.draw(dict(zip(names, values, strict=True)), present)
    if drawn is None:
        assert all(len(several) == 1 for several in values)
        return
    found = {cell: state for _, row in drawn.rows for state, cell in row}
    width = len(drawn.rows[0][1])
    assert len(found) == len(drawn.rows) * width == len(whole)
    for cell in whole:
        assert (found[cell] == "exists") == (cell in present)
    for line, row in drawn.rows:
        assert all(
            set(dict(zip(names, cell, strict=True)).items()) >= {*zip(drawn.down, line, strict=True)} for _, cell in row
        )
    assert width == len(drawn.columns)


# --- sizes, calls


@pytest.mark.slow
def test_calls_are_those_that_groups_require_and_provide(search: KernelFamily) -> None:
    view = describe(search.database).families[0]
    assert dict(view.calls) == {
        ("search_kernel", "apply_filter"): ["apply_filter"],
        ("search_kernel", "compute_distance"): ["compute_distance"],
    }
    first = "├─ search_kernel: entrypoint, 24 fragments, "
    for columns in (40, 60, 200):
        lines = list(view.tree(columns))
        assert any(line.startswith(first[: columns // 2]) for line in lines)
        assert max(map(len, lines)) <= columns
    assert lines[1].startswith(first) and lines[1].endswith("; calls apply_filter, compute_distance")


def test_what_nothing_provides_is_said(tmp_path: Path) -> None:
    with sample(tmp_path, [{"p": "1"}]) as database:
        fragments = [fragment for fragment in database.fragments() if fragment.role is Role.ENTRYPOINT]
        record = database.families["f"]
    write(tmp_path / "torn.fragdb", [record], fragments, {})
    with FragmentDatabase(tmp_path / "torn.fragdb") as database:
        report = describe(database)
    assert dict(report.families[0].calls) == {("kernel", ""): ["called"]}
    assert "calls called (of no fragment here)" in page.to_html(report)


# --- the page


class Read(HTMLParser):
    """Tags and attributes of a page, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


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
def hostile_page(value: str, symbol: str) -> str:
    """A page with all that a database can contain."""
    cells = [{"p": value, "p2": "1"}, {"p": f"{value}2", "p2": "2"}]
    with (
        tempfile.TemporaryDirectory() as directory,
        sample(Path(directory), cells, names=("f", "k", "c"), symbol=symbol) as opened,
    ):
        return page.to_html(describe(opened))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(_HOSTILE, _HOSTILE)
def test_no_text_of_a_database_becomes_markup(value: str, symbol: str) -> None:
    """A database with invalid names of families, groups or parameters does not open."""
    text = hostile_page(value, symbol)
    text.encode("utf-8")
    hostile, plain = Read(text), Read(hostile_page("v", "s"))
    assert set(hostile.tags) == set(plain.tags)
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert "script" not in hostile.tags
    assert hostile.tags.count("style") == 1
    assert all(value.startswith("#") for name, value in hostile.attributes if name == "href")
    assert not any(name in ("src", "srcset", "style", "action", "xlink:href") for name, _ in hostile.attributes)


def test_invisible_and_unencodable_characters_are_escaped() -> None:
    text = hostile_page("\u202ev \x1b[2J", "s")
    assert "\u202e" not in text
    assert "\\u202ev \\x1b[2J" in text
    assert page.visible("\ud800 \0 a\nb") == "\\ud800 \\x00 a\nb"


@pytest.mark.slow
def test_the_page_holds_all_that_is_known_of_each_fragment(search: KernelFamily) -> None:
    text = html.unescape(page.to_html(describe(search.database)))
    for fragment in search.database.fragments():
        (row,) = re.findall(f'<tr id="{re.escape(str(fragment.key))}">.*?</tr>', text, re.S)
        assert f"<summary>{fragment.key}</summary>" in row
        assert row.count("SHA-256") == len(fragment.images)
        assert ("<dt>Calls</dt>" in row) == bool(fragment.requires)
        assert ("<dt>Kernel</dt>" in row) == (fragment.role is Role.ENTRYPOINT)
    assert re.search("<dt>Calls</dt>.*?compute_distance<__half>", text, re.S)


def test_the_page_names_its_style_by_hash_and_loads_and_runs_nothing() -> None:
    text = hostile_page("v", "s")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for word in ("<script", "//", "url(", "@import"):
        assert word not in text.replace(policy, ""), word


# --- the command


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("no.fragdb", "-o", "r.html"), 1, ["no.fragdb", "no such file"]),
        (("m.fragdb",), 2, ["--output"]),
        (("m.fragdb", "-o", "m.fragdb"), 2, ["would overwrite another file"]),
        (("m.fragdb", "-o", "no/r.html"), 1, ["no/r.html", "cannot be written", "hint"]),
    ],
)
def test_a_failing_report_is_one_message(
    arguments: tuple[str, ...], status: int, words: list[str], tmp_path: Path, mini_path: Path
) -> None:
    (tmp_path / "m.fragdb").write_bytes(mini_path.read_bytes())
    done = jitlto("report", *arguments, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.fragdb"]
