"""The report in a browser: it fetches nothing, logs no error, opens in under a second and is accessible."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from jitlto.database import FragmentDatabase
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import FragmentKey
from jitlto.report import page
from jitlto.report.content import describe
from jitlto.runtime.family import KernelFamily
from tests.report.test_report import sample
from tests.support import chromium
from tests.support.process import ROOT

# What WCAG 2.1 asks for at level AA, and axe's own best practices.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
_PROGRAM = chromium.find()

pytestmark = pytest.mark.skipif(
    _PROGRAM is None, reason="no Chromium found: install it or name it JITLTO_TEST_CHROMIUM"
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    """One browser for all tests."""
    assert _PROGRAM is not None
    with chromium.browser(_PROGRAM, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def _page(database: FragmentDatabase, path: Path) -> Path:
    path.write_text(page.to_html(describe(database)), "utf-8")
    return path


@pytest.fixture(scope="module")
def search_page(search: KernelFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _page(search.database, tmp_path_factory.mktemp("pages") / "search.html")


@pytest.fixture(scope="module")
def every_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a hole, with combinations that a rule excludes, and with one in another part."""
    directory = tmp_path_factory.mktemp("states")
    cells = [dict(zip(("name", "length", "type"), c, strict=True)) for c in product("ab", map(str, range(20)), "xyz")]
    del cells[31]
    lost = FragmentKey.make("f", "kernel", cells.pop())
    own = [cell for cell in cells if (cell["name"], cell["type"]) != ("a", "z")]
    part = PartRecord(1, 2, "0" * 64, (lost,), (("f", "nvrtc"),), (), ())
    with sample(directory, own, part=part) as database:
        return _page(database, directory / "states.html")


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, https://github.com/dequelabs/axe-core."""
    named = os.environ.get("JITLTO_TEST_AXE")
    path = Path(named) if named else ROOT / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("no axe-core: `npm install --no-save axe-core`, or name its axe.min.js JITLTO_TEST_AXE")
    return path.read_text("utf-8")


def test_it_opens_in_under_a_second_fetches_nothing_and_nothing_complains(
    tab: chromium.Page, search_page: Path
) -> None:
    taken = []
    for _ in range(5):  # other work may run on the machine
        tab.open(search_page)
        assert tab.complaints() == []
        assert tab.requests() == [search_page.resolve().as_uri()]
        taken.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert 0 < min(taken) < 1000, taken


@pytest.mark.parametrize(
    ("name", "scheme"), [("search", "light"), ("search", "dark"), ("every_state", "light"), ("ivf_flat", "dark")]
)
def test_axe_finds_nothing(
    name: str, scheme: str, tab: chromium.Page, search_page: Path, every_state: Path, axe: str
) -> None:
    tab.open(every_state if name == "every_state" else search_page, prefers_color_scheme=scheme)
    # Not all fragments are opened, and most of a long list is left out: they are alike, and axe would take a minute.
    tab.evaluate("[...document.querySelectorAll('details')].slice(0, 12).forEach(each => each.open = true)")
    tab.evaluate("[...document.querySelectorAll('#list tr')].slice(20).forEach(row => row.hidden = true)")
    tab.evaluate(axe)
    found = tab.evaluate(
        f"axe.run({{runOnly: {RULES}}}).then(result => [result.passes.length, result.violations.map("
        "rule => `${rule.id}: ${rule.help}: ${rule.nodes.slice(0, 3).map(node => node.html).join(' ')}`)])"
    )
    passed, violated = found
    assert violated == []
    assert passed > 30  # rules that found something to look at


def test_nothing_on_the_page_can_run_what_a_database_says(tab: chromium.Page, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>"
    cells = [{"p": evil, "q": "1"}, {"p": "x", "q": evil}]
    with sample(tmp_path, cells, symbol=evil) as database:
        tab.open(_page(database, tmp_path / "evil.html"))
    assert tab.complaints() == []
    assert len(tab.requests()) == 1
    assert tab.evaluate("document.querySelectorAll('img, script').length") == 0
